"""The command `wenet-uio`: the commands of wenet_uio.bin under one name.

wenet-uio transcribe --model exp/conformer talk.mp3
wenet-uio export jit --config exp/conformer/train.yaml ...
"""

from __future__ import annotations

import sys
from importlib import import_module

from wenet_uio.cli import run

COMMANDS = {
    "train": ("train", "train a model on one device, or resume its run"),
    "launch": ("launch", "train on several devices: launch ... -m wenet_uio.bin.train ..."),
    "average": ("average_model", "average the weights of the best or newest epochs"),
    "recognize": ("recognize", "recognise a test set in several decode modes"),
    "transcribe": ("transcribe", "transcribe recordings of any length"),
    "serve": ("serve", "a page to speak to, streams over WebSockets, recordings over HTTP"),
    "align": ("align", "times of tokens and words, and transcripts that do not fit"),
    "pull": ("pull", "download a model of a hub"),
    "convert": ("convert_checkpoint", "convert a model of another package"),
    "export jit": ("export_jit", "TorchScript model for WeNet's C++ runtime"),
    "export onnx": ("export_onnx", "ONNX models for WeNet's C++ runtime and sherpa-onnx"),
}
"""{sub-command: (module of wenet_uio.bin, what it does)}."""


def main() -> None:
    """Run the sub-command that the command line names."""
    arguments = sys.argv[1:]
    words_of_name = 2 if arguments[:1] == ["export"] else 1
    name = " ".join(arguments[:words_of_name])

    if name in COMMANDS:
        sys.argv = [f"wenet-uio {name}", *arguments[words_of_name:]]
        run(import_module(f"wenet_uio.bin.{COMMANDS[name][0]}").main)

    lines = [f"  {command:12} {purpose}" for command, (_, purpose) in COMMANDS.items()]
    usage = "\n".join(["usage: wenet-uio COMMAND [OPTIONS]; wenet-uio COMMAND --help", "", *lines])

    if name in ("", "-h", "--help", "export", "export -h", "export --help"):
        run(lambda: print(usage, flush=True) or (0 if arguments else 2))

    print(f"error: wenet-uio {name}: unknown command\n{usage}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
