"""Options of decoding that several commands share."""

from __future__ import annotations

import argparse
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from wenet_uio.base.messages import listed
from wenet_uio.base.options import add_options, option, values_of
from wenet_uio.search.context_graph import ContextGraph, tokenize_phrases
from wenet_uio.search.language_model import LanguageModel
from wenet_uio.search.modes import scored_modes
from wenet_uio.search.prefix_scorer import PrefixScorer
from wenet_uio.search.types import DecodeOptions
from wenet_uio.text.labels import Tokenizer
from wenet_uio.text.ngrams import LmUnit
from wenet_uio.text.table import numbered_lines

log = logging.getLogger(__name__)

SEARCH = (
    *("beam_size", "ctc_weight", "reverse_weight", "transducer_weight", "blank_penalty"),
    *("length_penalty", "decoding_chunk_size", "num_decoding_left_chunks", "dtype"),
    "simulate_streaming",
)
PROMPT = ("language", "task", "timestamps", "itn")
SCORERS = ("hot_word_score", "language_model", "lm_weight", "length_bonus", "lm_unit")


@dataclass(frozen=True)
class ScorerOptions:
    """Hot words and language model.

    Raises:
        ValueError: a number is not finite, or an option of the language model comes without one.
    """

    hot_words: Sequence[str] = ()
    """Phrases; `phrase :2.0` has a score of its own."""
    hot_word_score: float = option(3.0, flag="--context_graph_score")
    """Bonus of each token of a hot phrase without a score of its own."""
    language_model: str | None = option(None, flag="--lm_path", metavar="FILE")
    """n-gram model: ARPA or KenLM binary."""
    lm_weight: float = 0.3
    """Weight of its natural log-probability."""
    length_bonus: float = 0.0
    """Bonus of each unit of the language model."""
    lm_unit: LmUnit = "token"
    """Units of the language model: tokens as in the units file, or words."""

    def __post_init__(self) -> None:
        for name in ("hot_word_score", "lm_weight", "length_bonus"):
            number = getattr(self, name)
            if not math.isfinite(number):
                raise ValueError(f"{name}: expected a finite number, found {number}")

        for name in ("lm_weight", "length_bonus", "lm_unit"):
            value = getattr(self, name)
            if not self.language_model and value != getattr(ScorerOptions, name):
                raise ValueError(
                    f"{name} {value} is of a language model, and none is given; add --lm_path or "
                    f"language_model, or remove {name}"
                )


def add_decode_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `decode_options` and `scorer_options` read."""
    search = parser.add_argument_group("search")
    add_options(search, DecodeOptions, *SEARCH)
    search.add_argument(
        "--search_ctc_weight",
        type=float,
        help="rnnt_beam_search: both weights as in WeNet; only their ratio counts",
    )
    search.add_argument("--search_transducer_weight", type=float, help="see --search_ctc_weight")

    prompt = parser.add_argument_group("models that are asked for a language")
    add_options(prompt, DecodeOptions, *PROMPT)

    scorers = parser.add_argument_group(
        "hot words and language model", f"used by {', '.join(scored_modes())}"
    )
    scorers.add_argument(
        "--context_list_path",
        metavar="FILE",
        help="hot words, one phrase per line; `phrase :2.0` has a score of its own",
    )
    add_options(scorers, ScorerOptions, *SCORERS)


def decode_options(args: argparse.Namespace, **others: Any) -> DecodeOptions:
    """Make DecodeOptions from parsed options; `others` are fields without an option."""
    values = values_of(DecodeOptions, args, *SEARCH, *PROMPT) | others
    weights = args.search_ctc_weight, args.search_transducer_weight
    if weights != (None, None):
        values["transducer_weight"] = _transducer_share(*weights)

    return DecodeOptions(**values)


def _transducer_share(ctc: float | None, transducer: float | None) -> float:
    """Return the transducer's share of both weights; the defaults are WeNet's."""
    ctc = 1.0 if ctc is None else ctc
    transducer = 0.0 if transducer is None else transducer
    if ctc < 0 or transducer <= 0:
        raise ValueError(
            f"--search_ctc_weight {ctc:g} --search_transducer_weight {transducer:g}: expected 0 or "
            "more, and above 0"
        )

    return transducer / (ctc + transducer)


def scorer_options(args: argparse.Namespace) -> ScorerOptions:
    """Make ScorerOptions from parsed options; reads the file of hot words.

    Raises:
        OSError: the file of hot words cannot be read.
        ValueError: the file of hot words has no phrase.
    """
    phrases: list[str] = []
    if args.context_list_path:
        phrases = [line for _, line in numbered_lines(args.context_list_path) if line.strip()]
        if not phrases:
            raise ValueError(
                f"{args.context_list_path}: no phrase in it; expected one phrase per line"
            )

    return ScorerOptions(phrases, **values_of(ScorerOptions, args, *SCORERS))


def build_scorers(
    options: ScorerOptions,
    modes: Sequence[str],
    tokenizer: Tokenizer,
    device: torch.device,
    *,
    warn: bool = True,
    names: tuple[str, str] = ("--context_list_path", "--lm_path"),
) -> list[PrefixScorer]:
    """Build the hot words and the language model, for decoding in `modes`.

    Args:
        warn: log the phrases that the units cannot spell.
        names: how messages call the hot words and the language model.

    Raises:
        ValueError: none of the modes uses them, the units can spell no phrase, phrases have too
            many different scores, or a file has the wrong format.
        OSError: a file cannot be read.
    """
    has_scorers = bool(options.hot_words or options.language_model)
    if has_scorers and not set(scored_modes()) & set(modes):
        unused = names[0] if options.hot_words else names[1]
        raise ValueError(
            f"{unused} is not used by {', '.join(modes)}; add one of these modes: "
            f"{', '.join(scored_modes())}"
        )

    scorers: list[PrefixScorer] = []
    if options.hot_words:
        scorers.append(_build_hot_words(options, tokenizer, device, warn, names[0]))

    if options.language_model:
        scorers.append(
            LanguageModel(
                options.language_model,
                tokenizer,
                options.lm_weight,
                options.length_bonus,
                options.lm_unit,
            )
        )

    return scorers


def _build_hot_words(
    options: ScorerOptions, tokenizer: Tokenizer, device: torch.device, warn: bool, name: str
) -> ContextGraph:
    """Build the hot words; see `build_scorers`."""
    phrases, unknown = tokenize_phrases(options.hot_words, tokenizer)
    if not phrases:
        raise ValueError(f"{name}: the units can spell no phrase: {listed(unknown, 5)}")

    if unknown and warn:
        log.warning(
            "%s: skipped %d phrases that the units cannot spell: %s",
            name,
            len(unknown),
            listed(unknown, 5),
        )

    usual = options.hot_word_score
    scores = [usual if phrase.score is None else phrase.score for phrase in phrases]
    return ContextGraph([phrase.tokens for phrase in phrases], scores, device)
