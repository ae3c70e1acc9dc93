"""Commands: train, average, recognise, transcribe, align and export. Each parses its options and
calls the package.
"""
