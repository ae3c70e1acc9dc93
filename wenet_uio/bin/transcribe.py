#!/usr/bin/env python3
"""Transcribe audio files of any length; the command is that of the add-on `listen`."""

from __future__ import annotations

from wenet_uio.base.cli import run
from wenet_uio.base.imports import command_of_add_on

parser, main = command_of_add_on("wenet_uio.addons.listen.transcribe")

if __name__ == "__main__":
    run(main, prints_data=True)
