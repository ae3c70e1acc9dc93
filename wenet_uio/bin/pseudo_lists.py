"""Make the data lists of pseudo labels; the command is that of the add-on `corpora`."""

from __future__ import annotations

from wenet_uio.base.cli import run
from wenet_uio.base.imports import command_of_add_on

parser, main = command_of_add_on("wenet_uio.addons.corpora.pseudo_command")

if __name__ == "__main__":
    run(main)
