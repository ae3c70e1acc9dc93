"""Export a trained model to ONNX; the command is that of the add-on `runtimes`."""

from __future__ import annotations

from wenet_uio.base.cli import run
from wenet_uio.base.imports import command_of_add_on

parser, main = command_of_add_on("wenet_uio.addons.runtimes.command")

if __name__ == "__main__":
    run(main)
