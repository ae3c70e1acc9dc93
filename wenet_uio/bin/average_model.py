"""Average the weights of the best or newest epochs of a run, or take its running average.

    %(prog)s --src_path exp/conformer \\
        --dst_model exp/conformer/avg.pt --num 5 --val_best

The folder has epoch_N.pt, and epoch_N.yaml with its validation loss. Several folders are runs that
started from one trained model, such as fine-tunings with other seeds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from wenet_uio.base.cli import add_json, command_parser, print_json, run
from wenet_uio.base.options import positive_int
from wenet_uio.base.run_files import TRAIN_CONFIG
from wenet_uio.config import load_config
from wenet_uio.config.command_line import add_trust_code, change_nothing
from wenet_uio.config.train import LoraConf
from wenet_uio.train.averaging import (
    EPOCHS,
    Epoch,
    add_start,
    average_checkpoints,
    check_common_start,
    choose_epochs,
    merge_if_lora,
    newest_running,
    running_weights,
    save_average,
    usual_range,
)
from wenet_uio.train.baseline import BEFORE


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("--dst_model", required=True, help="output file")
    parser.add_argument(
        "--src_path",
        nargs="+",
        required=True,
        metavar="FOLDER",
        help="folder of the run, with epoch_N.pt and epoch_N.yaml; several: runs from one trained model",
    )
    parser.add_argument(
        "--num",
        type=positive_int,
        help=f"number of epochs of each run to average (default: {EPOCHS}; a running average with "
        "decay or since is taken whole)",
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
    add_trust_code(parser)
    add_json(parser, "the epochs and their losses as one JSON object")
    of_epochs = "weights are saved at the end of epochs; use --min_epoch and --max_epoch"
    change_nothing(parser, dict.fromkeys(("--mode", "--min_step", "--max_step"), of_epochs))

    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Average the weights and print the epochs."""
    command_line = parser()
    args = command_line.parse_args(arguments)
    conflict = _find_conflict(args)
    if conflict is not None:
        command_line.error(f"argument {conflict}")

    if args.running:
        _take_running(args)
    else:
        _average_epochs(args)


def _find_conflict(arguments: argparse.Namespace) -> str | None:
    """Return what is wrong with two options that exclude each other; None if nothing is."""
    if arguments.running and arguments.val_best:
        return "--running: a running average has the epochs in order; leave out --val_best"
    if arguments.running and arguments.with_start:
        return "--running: a running average is of epochs only; leave out --with_start"
    if arguments.running and len(arguments.src_path) > 1:
        return "--running: a running average is of one run; give one --src_path"
    if arguments.merge_lora and arguments.only_lora:
        return "--only_lora: --merge_lora leaves no low-rank weights"
    return None


def _take_running(arguments: argparse.Namespace) -> None:
    """Write the running average of the newest epochs."""
    (folder,) = arguments.src_path
    last = newest_running(folder, arguments.min_epoch, arguments.max_epoch)
    num = arguments.num or usual_range(folder, last)
    weights = merge_if_lora(running_weights(folder, last, num), _lora_to_merge(arguments))
    save_average(weights, arguments.dst_model, only_lora=arguments.only_lora)
    if arguments.json:
        print_json({"model": arguments.dst_model, "running_average_of": last, "last_epochs": num})
        return

    last_epochs = "" if num is None else f", of the last {num} epochs"
    print(f"{arguments.dst_model}: running average at the end of epoch {last}{last_epochs}")


def _average_epochs(arguments: argparse.Namespace) -> None:
    """Write the mean of the weights of several epochs."""
    folders = arguments.src_path
    if len(folders) > 1:
        check_common_start(folders, merges_lora=arguments.merge_lora)

    epochs: list[Epoch] = []
    for folder in folders:
        epochs += _choose_run_epochs(folder, arguments)
    if arguments.with_start:
        epochs = add_start(epochs, folders[0])

    lora_conf = _lora_to_merge(arguments)
    average_checkpoints(epochs, arguments.dst_model, lora_conf, only_lora=arguments.only_lora)
    if not arguments.json:
        _print_mean(epochs, arguments)
        return

    means = [
        {"epoch": epoch.number, "loss": epoch.loss, "weights": str(epoch.weights)}
        for epoch in epochs
    ]
    print_json({"model": arguments.dst_model, "mean_of": means})


def _print_mean(epochs: list[Epoch], arguments: argparse.Namespace) -> None:
    """Print the epochs of a mean, with the folders of their runs if these are several."""
    for epoch in epochs:
        run_name = _run_name(epoch.weights.parent, arguments)
        name = "before fine-tuning" if epoch.number == BEFORE else f"epoch {epoch.number}"
        loss = "" if epoch.loss is None else f"  loss {epoch.loss:.4f}"
        print(run_name + name + loss)

    print(f"{arguments.dst_model}: mean of {len(epochs)}")


def _run_name(folder: str | Path, arguments: argparse.Namespace) -> str:
    """Return the folder of a run for the start of a line, if there are several runs."""
    return f"{folder}: " if len(arguments.src_path) > 1 else ""


def _choose_run_epochs(folder: str, arguments: argparse.Namespace) -> list[Epoch]:
    """Return the epochs of a run that count, and warn if they are fewer than --num."""
    num = arguments.num or EPOCHS
    epochs = choose_epochs(
        folder,
        num,
        val_best=arguments.val_best,
        min_epoch=arguments.min_epoch,
        max_epoch=arguments.max_epoch,
    )
    if len(epochs) < num:
        print(
            f"warning: {_run_name(folder, arguments)}--num {num}, but only {len(epochs)} of them found; "
            "averaging what is there",
            file=sys.stderr,
        )

    return epochs


def _lora_to_merge(arguments: argparse.Namespace) -> LoraConf | None:
    """Return the config of the low-rank weights to merge, if --merge_lora asks for it.

    Raises:
        ValueError: that of another run is another one.
    """
    if not arguments.merge_lora:
        return None

    confs: list[LoraConf | None] = []
    for folder in arguments.src_path:
        config = load_config(
            Path(folder, TRAIN_CONFIG), of_model=True, trust_code=arguments.trust_code
        )
        confs.append(config.lora_conf)

    for folder, conf in zip(arguments.src_path, confs, strict=True):
        if conf != confs[0]:
            raise ValueError(f"{folder}: lora_conf is not that of {arguments.src_path[0]}")

    return confs[0]


if __name__ == "__main__":
    run(main)
