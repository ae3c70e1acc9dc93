"""Pack a manifest with its audio into a tarred data set of NeMo; the command is that of the add-on
`nemo`.
"""

from __future__ import annotations

from wenet_uio.base.cli import run
from wenet_uio.base.imports import command_of_add_on

parser, main = command_of_add_on("wenet_uio.addons.nemo.tars.command")

if __name__ == "__main__":
    run(main)
