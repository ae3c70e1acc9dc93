"""Commands: train, average, recognise, transcribe, align and export. Each parses its options and
calls the package.
"""

import wenet_uio.base.cli  # noqa: F401 - first, so that Ctrl-C is quiet while a command imports torch
