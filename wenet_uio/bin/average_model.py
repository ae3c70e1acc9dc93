"""Average the weights of the best or newest epochs of a run, or take its running average.

    %(prog)s --src_path exp/conformer \\
        --dst_model exp/conformer/avg.pt --num 5 --val_best

The folder has epoch_N.pt, and epoch_N.yaml with its validation loss. Epochs whose loss is far above
the lowest are left out. Several folders are runs that started from one trained model, such as
fine-tunings with other seeds.

Of such runs, --dev_data decodes some utterances with weights between the start and the average, and
takes those with the fewest errors that are no worse than the start:

    … --dev_data data/dev/data.list --language en
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from wenet_uio.base.cli import add_json, command_parser, print_json, run
from wenet_uio.base.options import positive_int
from wenet_uio.base.run_files import SHARES_SUFFIX, TRAIN_CONFIG
from wenet_uio.config import load_config
from wenet_uio.config.command_line import add_trust_code, change_nothing
from wenet_uio.config.train import LoraConf
from wenet_uio.train.averaging import (
    EPOCHS,
    Epoch,
    add_start,
    average_weights,
    check_common_start,
    choose_epochs,
    merge_if_lora,
    newest_running,
    running_weights,
    save_average,
    usual_range,
)
from wenet_uio.train.baseline import BEFORE, Baseline
from wenet_uio.train.dev_set import DevSet
from wenet_uio.train.interpolation import weigh_against_start


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
        "--dev_data",
        metavar="FILE",
        help="data list of a validation set: of a run that started from a trained model, take the "
        "weights between this model and the average that recognise the set best",
    )
    parser.add_argument(
        "--data_type", choices=("raw", "shard"), default="raw", help="type of --dev_data"
    )
    parser.add_argument(
        "--char",
        choices=("0", "1"),
        default="0",
        help="errors on --dev_data are those of 0: words; 1: ideographs and words",
    )
    parser.add_argument(
        "--language",
        metavar="CODE",
        help="ISO 639-1 code of the language of --dev_data, such as en: for models that are told one, "
        "and to compare texts apart from case, punctuation and, of English, numbers",
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

    if args.dev_data:
        Baseline.require(Path(args.src_path[0]), "--dev_data")
    average = _running_average(args) if args.running else _mean_of_epochs(args)
    if args.dev_data:
        average = _weigh_against_start(average, args)
    else:  # that of an earlier average is of other weights
        _shares_file(args).unlink(missing_ok=True)

    save_average(average.weights, args.dst_model, only_lora=args.only_lora)
    if args.json:
        print_json({"model": args.dst_model, **average.record})
    else:
        print(*average.lines, f"{args.dst_model}: {average.summary}", sep="\n")


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


class _Average(NamedTuple):
    """Weights that are written, and what is said of them."""

    weights: dict[str, torch.Tensor]
    summary: str
    """What they are, in a line."""
    lines: Sequence[str]
    """Lines before it."""
    record: Mapping[str, Any]
    """The same for --json."""


def _running_average(arguments: argparse.Namespace) -> _Average:
    """Take the running average of the newest epochs."""
    (folder,) = arguments.src_path
    last = newest_running(folder, arguments.min_epoch, arguments.max_epoch)
    num = arguments.num or usual_range(folder, last)
    weights = merge_if_lora(running_weights(folder, last, num), _lora_to_merge(arguments))
    last_epochs = "" if num is None else f", of the last {num} epochs"
    return _Average(
        weights,
        f"running average at the end of epoch {last}{last_epochs}",
        (),
        {"running_average_of": last, "last_epochs": num},
    )


def _mean_of_epochs(arguments: argparse.Namespace) -> _Average:
    """Take the mean of the weights of several epochs."""
    folders = arguments.src_path
    if len(folders) > 1:
        check_common_start(folders, merges_lora=arguments.merge_lora)

    epochs: list[Epoch] = []
    for folder in folders:
        epochs += _choose_run_epochs(folder, arguments)
    if arguments.with_start:
        epochs = add_start(epochs, folders[0])

    weights = average_weights([epoch.weights for epoch in epochs], _lora_to_merge(arguments))
    means = [
        {"epoch": epoch.number, "loss": epoch.loss, "weights": str(epoch.weights)}
        for epoch in epochs
    ]
    lines = _describe_mean(epochs, arguments)
    return _Average(weights, f"mean of {len(epochs)}", lines, {"mean_of": means})


def _weigh_against_start(average: _Average, arguments: argparse.Namespace) -> _Average:
    """Take the weights between the start of the run and its average that recognise --dev_data best."""
    dev = DevSet(
        arguments.dev_data,
        arguments.data_type,
        "auto" if arguments.char == "1" else "word",
        arguments.language,
    )
    weighing = weigh_against_start(
        average.weights,
        arguments.src_path[0],
        dev,
        _shares_file(arguments),
        lora=_lora_to_merge(arguments),
        trust_code=arguments.trust_code,
    )
    return _Average(
        weighing.weights,
        f"{average.summary}; {weighing.summary}",
        [*average.lines, *weighing.lines],
        {**average.record, "share": weighing.share},
    )


def _shares_file(arguments: argparse.Namespace) -> Path:
    """Return the file beside the weights that has the errors of each share of the fine-tuning."""
    return Path(arguments.dst_model).with_suffix(SHARES_SUFFIX)


def _describe_mean(epochs: list[Epoch], arguments: argparse.Namespace) -> list[str]:
    """Return a line for each epoch of a mean, with the folders of their runs if these are several."""
    lines: list[str] = []
    for epoch in epochs:
        run_name = _run_name(epoch.weights.parent, arguments)
        name = "before fine-tuning" if epoch.number == BEFORE else f"epoch {epoch.number}"
        loss = "" if epoch.loss is None else f"  loss {epoch.loss:.4f}"
        lines.append(run_name + name + loss)

    return lines


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
            f"warning: {_run_name(folder, arguments)}--num {num}, but only {len(epochs)} to average; "
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
