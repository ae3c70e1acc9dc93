"""Average the weights of the best or newest epochs of a run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wenet_uio.cli import run
from wenet_uio.config import load_config
from wenet_uio.config.command_line import change_nothing
from wenet_uio.run_files import TRAIN_CONFIG
from wenet_uio.train.averaging import average_checkpoints, choose_epochs


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dst_model", required=True, help="output file")
    parser.add_argument("--src_path", required=True, help="folder of the run, with epoch_N.pt and epoch_N.yaml")
    parser.add_argument("--num", type=int, default=5, help="number of epochs to average (default: %(default)s)")
    parser.add_argument(
        "--val_best", action="store_true", help="take the epochs with the lowest validation loss, not the newest"
    )
    parser.add_argument("--min_epoch", type=int, default=0, help="first epoch that may be taken (default: %(default)s)")
    parser.add_argument("--max_epoch", type=int, help="last epoch that may be taken (default: no limit)")
    parser.add_argument(
        "--merge_lora",
        action="store_true",
        help="merge low-rank weights (LoRA) into those beside them; every command takes the output like other weights",
    )
    of_epochs = "weights are saved at the end of epochs; use --min_epoch and --max_epoch"
    change_nothing(parser, dict.fromkeys(("--mode", "--min_step", "--max_step"), of_epochs))
    return parser


def main() -> None:
    """Average the weights and print the epochs."""
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.num < 1:
        parser.error(f"argument --num: expected at least 1, found {arguments.num}")
    epochs = choose_epochs(
        arguments.src_path,
        arguments.num,
        val_best=arguments.val_best,
        min_epoch=arguments.min_epoch,
        max_epoch=arguments.max_epoch,
    )
    if len(epochs) < arguments.num:
        print(f"warning: --num {arguments.num}, but only {len(epochs)} epochs found; averaging these", file=sys.stderr)
    lora = (
        load_config(Path(arguments.src_path, TRAIN_CONFIG), of_model=True).lora_conf if arguments.merge_lora else None
    )
    average_checkpoints(epochs, arguments.dst_model, lora)
    for epoch in epochs:
        print(f"epoch {epoch.number}" + ("" if epoch.loss is None else f"  loss {epoch.loss:.4f}"))
    print(f"{arguments.dst_model}: mean of {len(epochs)}")


if __name__ == "__main__":
    run(main)
