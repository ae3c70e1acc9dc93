"""What every package may use: files, addresses, messages, options, processes, templates of pages."""
