"""Estimate an n-gram language model from texts, for `recognize.py --lm_path`.

    %(prog)s --config train.yaml data/train/text lm.arpa
    %(prog)s --config a.yaml --lm_unit word --without_keys novel.txt lm.arpa

Its units are the tokens of the model, or words. All texts are in memory: for gigabytes of text take
lmplz of KenLM, with `text2token.py` before it.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from tqdm import tqdm

from wenet_uio.base.cli import command_parser, run
from wenet_uio.base.files import require_writable
from wenet_uio.base.messages import hides_bar, listed
from wenet_uio.config import load_config
from wenet_uio.config.command_line import add_trust_code
from wenet_uio.text.labels import Tokenizer
from wenet_uio.text.ngrams import (
    ARPA_HEAD,
    END,
    MOST_ORDER,
    UNKNOWN,
    LmUnit,
    NgramModel,
    estimate,
    write_arpa,
)
from wenet_uio.text.table import numbered_lines, read_table
from wenet_uio.text.tokenizer import build_tokenizer

log = logging.getLogger(__name__)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("--config", required=True, help="train.yaml of the model")
    parser.add_argument(
        "--order", type=int, default=6, help="most units of an n-gram (default: %(default)s)"
    )
    parser.add_argument(
        "--lm_unit",
        choices=get_args(LmUnit),
        default="token",
        help="as in recognize.py (default: %(default)s)",
    )
    parser.add_argument(
        "--without_keys", action="store_true", help="lines are `text`, not `key text`"
    )
    add_trust_code(parser)
    parser.add_argument("texts", nargs="+", metavar="text", help="file with lines `key text`")
    parser.add_argument("lm", help="ARPA file to write")

    return parser


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse and check the command line."""
    command_line = parser()
    options = command_line.parse_args(arguments)
    if not 2 <= options.order <= MOST_ORDER:
        command_line.error(
            f"--order {options.order}: expected 2 to {MOST_ORDER}; the package kenlm reads no other "
            "models"
        )

    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Estimate and write the model."""
    options = parse_arguments(arguments)
    require_target(Path(options.lm))
    config = load_config(options.config, of_model=True, trust_code=options.trust_code)
    tokenizer = build_tokenizer(config)
    cut = str.split if options.lm_unit == "word" else tokenizer.splitter
    texts: list[str] = []
    for path in options.texts:
        texts += read_texts(path, options.without_keys)

    sentences = map(cut, tqdm(texts, unit="text", disable=hides_bar()))
    model = estimate(sentences, options.order)
    check_units(model, tokenizer, options.lm_unit)
    write_arpa(model, options.lm)
    sizes = ", ".join(str(len(ngrams)) for ngrams in model.probabilities)
    print(f"{options.lm}: {len(texts)} texts; n-grams of each order: {sizes}")


def require_target(path: Path) -> None:
    """Check that a language model can be written to `path`, and that no other file is lost.

    Raises:
        ValueError: a file that is no ARPA file is there.
        OSError: nothing can be written there.
    """
    require_writable(path)
    if path.exists():
        with open(path, "rb") as file:
            head = file.read(len(ARPA_HEAD))

        if head not in (b"", ARPA_HEAD.encode()):
            raise ValueError(
                f"{path}: a file that is no ARPA file is there; name another one for the language "
                "model, after the texts"
            )


def check_units(model: NgramModel, tokenizer: Tokenizer, unit: LmUnit) -> None:
    """Warn of units of a language model that the recogniser never writes.

    Raises:
        ValueError: it writes none of them.
    """
    units = [name for (name,) in model.probabilities[0] if name not in (END, UNKNOWN)]

    def is_written(name: str) -> bool:
        tokens = tokenizer.splitter(name) if unit == "word" else [name]
        return all(token in tokenizer.symbols for token in tokens)

    never_written = sorted(name for name in units if not is_written(name))
    if units and len(never_written) == len(units):
        raise ValueError(
            f"the units file of the model can spell no {unit} of the texts: "
            f"{listed(never_written, 5)}; write the texts as those of the training"
        )

    if never_written:
        log.warning(
            "%d of %d different units of the texts are not in the units file of the model: %s",
            len(never_written),
            len(units),
            listed(never_written, 5),
        )


def read_texts(path: str, without_keys: bool) -> list[str]:
    """Return the texts of a file, in its order."""
    if without_keys:
        return [line for _, line in numbered_lines(path) if line.strip()]
    return [*read_table(path).values()]


if __name__ == "__main__":
    run(main)
