"""Make the data lists of pseudo labels; pseudo_label.sh calls it.

    %(prog)s teacher tiny.en.pt exp/pseudo/teacher
    %(prog)s unlabelled --data_type shard more.list exp/unlabelled.list
    %(prog)s labels --min_confidence 0.9 \\
        exp/pseudo/unlabelled.list exp/pseudo/ctc exp/pseudo/data.list
    %(prog)s mixture --share 0.5 \\
        data/train/data.list exp/pseudo/data.list exp/pseudo/mixture.yaml

teacher: three lines with the train.yaml of a trained model, its weights, and its decode mode; a
model of another package is converted to the folder, once. unlabelled: the list with empty texts,
for recognize.py. labels: the utterances whose recognised text is inside the limits; OUT.json has
the counts, OUT.left_out.jsonl the other utterances. mixture: a yaml file of both lists.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wenet_uio.addons.corpora.pseudo_labels import DIGITS, Limits, Spelling
from wenet_uio.addons.corpora.pseudo_lists import write_labelled, write_mixture, write_unlabelled
from wenet_uio.base.cli import add_loudness, command_parser
from wenet_uio.base.files import written_aside
from wenet_uio.base.run_files import TRAIN_CONFIG
from wenet_uio.config.command_line import add_trust_code
from wenet_uio.config.trust import Trust
from wenet_uio.prepare.texts import TEXTS
from wenet_uio.search.modes import usual_mode
from wenet_uio.search.recogniser import load_model_config
from wenet_uio.train.trained_model import open_trained_model

LIMITS = {
    "min_confidence": "least confidence of a text, 0 to 1: the geometric mean over its tokens",
    "min_seconds": "least length of an utterance",
    "max_seconds": "largest length of an utterance",
    "min_rate": "least number of characters per second",
    "max_rate": "largest number of characters per second",
    "max_repeats": "how often a part of a text may stand in a row",
    "max_cer": "largest CER in %% between the texts of both models; needs --second",
}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--data_type", choices=("raw", "shard"), default="raw", help="type of the lists"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    teacher = commands.add_parser("teacher", help="find a trained model, or convert it")
    teacher.add_argument("model", metavar="MODEL", help="as --from of train.py")
    unlabelled = commands.add_parser(
        "unlabelled", parents=[common], help="write a list with empty texts"
    )
    unlabelled.add_argument(
        "--part_lines",
        type=int,
        default=0,
        metavar="N",
        help="also write OUT.parts/, lists of at most N lines; 0: no parts",
    )
    unlabelled.add_argument("list", metavar="LIST", help="data list, with or without texts")
    labels = commands.add_parser(
        "labels", parents=[common], help="write a list with recognised texts"
    )
    for name, text in LIMITS.items():
        kind = int if name == "max_repeats" else float
        labels.add_argument(f"--{name}", type=kind, help=f"{text} (default: no limit)")

    labels.add_argument(
        "--text",
        choices=TEXTS,
        default="none",
        metavar="NAME",
        help="how the texts are normalised, as --text of the recipe custom (default: none)",
    )
    labels.add_argument(
        "--digits",
        choices=DIGITS,
        default="keep",
        help="texts with digits: keep; leave_out; words: English numbers with one reading become "
        "words, and other texts with digits are left out (default: keep)",
    )
    labels.add_argument(
        "--config",
        metavar="YAML",
        help="train.yaml of the model: utterances longer than its window are left out "
        "(default: none are)",
    )
    labels.add_argument(
        "--second", metavar="DIR", help="results of a second model in one decode mode"
    )
    labels.add_argument("list", metavar="LIST", help="the list that was recognised")
    labels.add_argument(
        "results", metavar="DIR", help="results of recognize.py in one decode mode: DIR/nbest.jsonl"
    )
    mixture = commands.add_parser(
        "mixture", parents=[common], help="write a yaml file of both lists"
    )
    mixture.add_argument(
        "--share",
        type=float,
        metavar="X",
        help="part of an epoch that is labelled (default: by size)",
    )
    mixture.add_argument(
        "labelled", metavar="LABELLED", help="data list with transcripts, or a yaml file of sources"
    )
    mixture.add_argument("list", metavar="LIST", help="data list of pseudo labels")
    for command in (teacher, labels):
        add_trust_code(command)
    for command in (teacher, unlabelled, labels, mixture):
        add_loudness(command)
        command.add_argument("out", metavar="OUT", help="file or folder to write")

    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the list, and print what is left out."""
    args = parser().parse_args(arguments)
    if args.command == "teacher":
        print_teacher(args.model, Path(args.out), trust_code=args.trust_code)
    elif args.command == "unlabelled":
        write_unlabelled(args.list, args.data_type, args.out, args.part_lines)
    elif args.command == "mixture":
        write_mixture(args.labelled, args.list, args.data_type, args.out, args.share)
    else:
        counts = write_labelled(
            args.list,
            args.data_type,
            args.results,
            model_limits(args),
            args.out,
            second=args.second,
            spelling=Spelling(args.text, args.digits),
        )
        print_counts(counts, args.out)


def print_teacher(model: str, folder: Path, *, trust_code: Trust) -> None:
    """Print train.yaml, weights and decode mode of a model.

    A model of another package is converted first, unless the folder has its conversion.
    """
    source, note = Path(model), folder / "source"
    is_made = note.exists() and note.read_text() == _file_states(source)
    if not is_made:
        note.unlink(missing_ok=True)

    start = open_trained_model(model, folder, make=not is_made, trust_code=trust_code)
    if folder in start.weights.parents and not is_made:
        with written_aside(note, "w") as file:
            file.write(_file_states(source))

    config = start.config
    mode = usual_mode(config.family, config.family.decoding.modes_of_recipes(config.model_conf))
    print(start.weights.parent / TRAIN_CONFIG, start.weights, mode, sep="\n")


def _file_states(source: Path) -> str:
    """Return what changes with the files of a model: their paths, sizes and times."""
    files = [source, *sorted(source.iterdir())] if source.is_dir() else [source]
    states = [(file.resolve(), file.stat()) for file in files]
    return "".join(f"{path} {stat.st_size} {stat.st_mtime_ns}\n" for path, stat in states)


def model_limits(args: argparse.Namespace) -> Limits:
    """Return the limits, with the window of the model as the largest length."""
    limits = Limits(**{name: getattr(args, name) for name in LIMITS})
    if args.config is None:
        return limits

    window = load_model_config(
        args.config, trust_code=args.trust_code
    ).family.decoding.longest_window
    lengths = [seconds for seconds in (limits.max_seconds, window) if seconds is not None]
    return replace(limits, max_seconds=min(lengths, default=None))


def print_counts(counts: dict[str, Any], out: str) -> None:
    """Print how many utterances and hours get a label, and what is left out by reason."""
    kept, hours = counts["kept"], counts["seconds"] / 3600
    print(
        f"{kept['utterances']} of {counts['utterances']} utterances get a label "
        f"({kept['seconds'] / 3600:.2f} of {hours:.2f} hours): {out}"
    )
    for reason, count in counts["left_out"].items():
        print(f"  left out, {reason}: {count['utterances']} ({count['seconds'] / 3600:.2f} hours)")
    if kept["changed_texts"]:
        print(f"  {kept['changed_texts']} texts are written in another way than recognised")
