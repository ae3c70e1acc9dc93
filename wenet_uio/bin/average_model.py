"""Average the weights of the best or newest epochs of a run, or take its running average.

    %(prog)s --src_path exp/conformer \\
        --dst_model exp/conformer/avg.pt --num 5 --val_best

The folder has epoch_N.pt, and epoch_N.yaml with its validation loss.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wenet_uio.cli import add_json, command_parser, print_json, run
from wenet_uio.config import load_config
from wenet_uio.config.command_line import change_nothing
from wenet_uio.config.train import LoraConf
from wenet_uio.run_files import TRAIN_CONFIG
from wenet_uio.train.averaging import (
    EPOCHS,
    average_checkpoints,
    choose_epochs,
    newest_running,
    running_weights,
    save_average,
    usual_range,
    with_start,
)
from wenet_uio.train.baseline import BEFORE


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("--dst_model", required=True, help="output file")
    parser.add_argument(
        "--src_path", required=True, help="folder of the run, with epoch_N.pt and epoch_N.yaml"
    )
    parser.add_argument(
        "--num",
        type=int,
        help=f"number of epochs to average (default: {EPOCHS}; a running average with decay or "
        "since is taken whole)",
    )
    parser.add_argument(
        "--val_best",
        action="store_true",
        help="take the epochs with the lowest validation loss, not the newest",
    )
    parser.add_argument(
        "--with_start",
        action="store_true",
        help="of a run that started from a trained model: let this model count as one more epoch",
    )
    parser.add_argument(
        "--running",
        action="store_true",
        help="take the running average (model_avg) of the newest epochs; a --num larger than their "
        "number takes it from the first step",
    )
    parser.add_argument(
        "--min_epoch",
        type=int,
        default=0,
        help="first epoch that may be taken",
    )
    parser.add_argument(
        "--max_epoch", type=int, help="last epoch that may be taken (default: no limit)"
    )
    parser.add_argument(
        "--merge_lora",
        action="store_true",
        help="merge low-rank weights (LoRA) into those beside them; every command takes the output "
        "like other weights",
    )
    parser.add_argument(
        "--only_lora",
        action="store_true",
        help="write the low-rank weights (LoRA) alone: a small file, which --lora_ckpt_path adds to the "
        "weights that the training started from",
    )
    add_json(parser, "the epochs and their losses as one JSON object")
    of_epochs = "weights are saved at the end of epochs; use --min_epoch and --max_epoch"
    change_nothing(parser, dict.fromkeys(("--mode", "--min_step", "--max_step"), of_epochs))

    return parser


def main() -> None:
    """Average the weights and print the epochs."""
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.num is not None and arguments.num < 1:
        parser.error(f"argument --num: expected at least 1, found {arguments.num}")

    if arguments.running and arguments.val_best:
        parser.error(
            "argument --running: a running average has the epochs in order; leave out --val_best"
        )

    if arguments.running and arguments.with_start:
        parser.error(
            "argument --running: a running average is of epochs only; leave out --with_start"
        )

    if arguments.merge_lora and arguments.only_lora:
        parser.error("argument --only_lora: --merge_lora leaves no low-rank weights")

    (_take_running if arguments.running else _average_epochs)(arguments)


def _take_running(arguments: argparse.Namespace) -> None:
    """Write the running average of the newest epochs."""
    last = newest_running(arguments.src_path, arguments.min_epoch, arguments.max_epoch)
    num = arguments.num or usual_range(arguments.src_path, last)
    save_average(
        running_weights(arguments.src_path, last, num),
        arguments.dst_model,
        _lora(arguments),
        only_lora=arguments.only_lora,
    )
    if arguments.json:
        print_json({"model": arguments.dst_model, "running_average_of": last, "last_epochs": num})
        return

    of = "" if num is None else f", of the last {num} epochs"
    print(f"{arguments.dst_model}: running average at the end of epoch {last}{of}")


def _average_epochs(arguments: argparse.Namespace) -> None:
    """Write the mean of the weights of several epochs."""
    num = arguments.num or EPOCHS
    epochs = choose_epochs(
        arguments.src_path,
        num,
        val_best=arguments.val_best,
        min_epoch=arguments.min_epoch,
        max_epoch=arguments.max_epoch,
    )
    if len(epochs) < num:
        print(
            f"warning: --num {num}, but only {len(epochs)} of them found; averaging what is there",
            file=sys.stderr,
        )

    if arguments.with_start:
        epochs = with_start(epochs, arguments.src_path)

    average_checkpoints(
        epochs, arguments.dst_model, _lora(arguments), only_lora=arguments.only_lora
    )
    if arguments.json:
        losses = [{"epoch": epoch.number, "loss": epoch.loss} for epoch in epochs]
        print_json({"model": arguments.dst_model, "mean_of": losses})
        return

    for epoch in epochs:
        name = "before fine-tuning" if epoch.number == BEFORE else f"epoch {epoch.number}"
        print(name + ("" if epoch.loss is None else f"  loss {epoch.loss:.4f}"))

    print(f"{arguments.dst_model}: mean of {len(epochs)}")


def _lora(arguments: argparse.Namespace) -> LoraConf | None:
    """Return the low-rank weights to merge, if --merge_lora asks for it."""
    if not arguments.merge_lora:
        return None
    return load_config(Path(arguments.src_path, TRAIN_CONFIG), of_model=True).lora_conf


if __name__ == "__main__":
    run(main)
