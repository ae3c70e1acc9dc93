"""The manual: pages in Markdown, and the generator of its reference."""
