#!/usr/bin/env python3
"""Serve a trained model; the command is that of the add-on `serve`."""

from __future__ import annotations

from wenet_uio.base.cli import run
from wenet_uio.base.imports import command_of_add_on

parser, main = command_of_add_on("wenet_uio.addons.serve.command")

if __name__ == "__main__":
    run(main)
