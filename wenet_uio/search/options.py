"""Command-line options of decoding that several commands share."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from wenet_uio.cli import listed
from wenet_uio.config.family import TASKS
from wenet_uio.search.context_graph import ContextGraph, tokenize_phrases
from wenet_uio.search.language_model import LanguageModel
from wenet_uio.search.prefix_scorer import PrefixScorer
from wenet_uio.search.types import DTYPES, DecodeOptions
from wenet_uio.text.table import numbered_lines
from wenet_uio.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

SCORED = ("ctc_prefix_beam_search", "attention_rescoring")
"""Modes that use hot words and language models."""


def add_decode_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `decode_options` and `scorer_options` read."""
    group = parser.add_argument_group("search")
    defaults = DecodeOptions()
    group.add_argument(
        "--beam_size",
        type=int,
        default=defaults.beam_size,
        help="hypotheses that a search keeps (%(default)s)",
    )
    group.add_argument(
        "--ctc_weight",
        type=float,
        default=defaults.ctc_weight,
        help="rescoring, joint: weight of the CTC score (%(default)s)",
    )
    group.add_argument(
        "--reverse_weight",
        type=float,
        help="rescoring: weight of the right-to-left decoder (default: as trained)",
    )
    group.add_argument(
        "--transducer_weight",
        type=float,
        default=defaults.transducer_weight,
        help="rnnt_beam_search: weight of the transducer; CTC has the rest (%(default)s)",
    )
    group.add_argument(
        "--search_ctc_weight",
        type=float,
        help="rnnt_beam_search: both weights as in WeNet; only their ratio counts",
    )
    group.add_argument("--search_transducer_weight", type=float, help="see --search_ctc_weight")
    group.add_argument(
        "--blank_penalty",
        type=float,
        default=defaults.blank_penalty,
        help="above 0: fewer blanks, so fewer deletions (%(default)s)",
    )
    group.add_argument(
        "--length_penalty",
        "--penalty",
        type=float,
        default=defaults.length_penalty,
        help="attention, joint: above 0: longer hypotheses (%(default)s)",
    )
    _add_model_options(group)
    _add_prompt_options(parser.add_argument_group("models that are asked for a language"))
    _add_scorer_options(
        parser.add_argument_group("hot words and language model", f"used by {' and '.join(SCORED)}")
    )


def _add_model_options(group: argparse._ArgumentGroup) -> None:
    defaults = DecodeOptions()
    group.add_argument(
        "--decoding_chunk_size",
        type=int,
        default=defaults.decoding_chunk_size,
        help="encoder frames of a chunk (-1: full context)",
    )
    group.add_argument(
        "--num_decoding_left_chunks",
        type=int,
        default=defaults.num_decoding_left_chunks,
        help="chunks seen to the left (-1: all)",
    )
    group.add_argument(
        "--dtype",
        choices=DTYPES,
        help="arithmetic of the model; auto: bf16 if the device is faster with it (default: auto "
        "for a model that was "
        "trained in 16 bits or with auto, else fp32)",
    )
    group.add_argument("--simulate_streaming", action="store_true", help="encode chunk by chunk")


def _add_prompt_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--language",
        metavar="CODE",
        help="such as en; default: the field `lang` of the data, else it is detected",
    )
    group.add_argument(
        "--task",
        choices=TASKS,
        default=DecodeOptions.task,
        help="translate: to English (default: %(default)s)",
    )
    group.add_argument(
        "--timestamps",
        action="store_true",
        help="attention: the decoder says where its text starts and ends",
    )
    group.add_argument(
        "--itn", action="store_true", help="text with digits and punctuation, of models that can"
    )


def _add_scorer_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--context_list_path", metavar="FILE", help="hot words, one phrase per line")
    group.add_argument(
        "--context_graph_score",
        type=float,
        default=3.0,
        help="bonus of each token of a hot phrase (%(default)s)",
    )
    group.add_argument("--lm_path", metavar="FILE", help="n-gram model: ARPA or KenLM binary")
    group.add_argument(
        "--lm_weight",
        type=float,
        default=0.3,
        help="weight of its natural log-probability (%(default)s)",
    )
    group.add_argument(
        "--length_bonus",
        type=float,
        default=0.0,
        help="bonus of each unit of the language model (%(default)s)",
    )
    group.add_argument(
        "--lm_unit",
        choices=("token", "word"),
        default="token",
        help="units of the language model: tokens as in the units file, or words (%(default)s)",
    )


def decode_options(args: argparse.Namespace, **others: Any) -> DecodeOptions:
    """DecodeOptions from parsed options; `others` are fields that have no option in
    `add_decode_options`.
    """
    names = (
        "beam_size",
        "ctc_weight",
        "reverse_weight",
        "transducer_weight",
        "blank_penalty",
        "length_penalty",
        "decoding_chunk_size",
        "num_decoding_left_chunks",
        "simulate_streaming",
        "language",
        "task",
        "timestamps",
        "itn",
        "dtype",
    )
    values = {name: getattr(args, name) for name in names} | others
    if args.search_ctc_weight is not None or args.search_transducer_weight is not None:
        values["transducer_weight"] = _share_of_transducer(
            args.search_ctc_weight, args.search_transducer_weight
        )
    return DecodeOptions(**values)


def _share_of_transducer(ctc: float | None, transducer: float | None) -> float:
    """The transducer's share of both weights; the defaults are WeNet's."""
    ctc, transducer = 1.0 if ctc is None else ctc, 0.0 if transducer is None else transducer
    if ctc < 0 or transducer <= 0:
        raise ValueError(
            f"--search_ctc_weight {ctc:g} --search_transducer_weight {transducer:g}: expected 0 or "
            "more, and above 0"
        )
    return transducer / (ctc + transducer)


@dataclass(frozen=True)
class ScorerOptions:
    """Hot words and language model."""

    hot_words: Sequence[str] = ()
    """Phrases."""
    hot_word_score: float = 3.0
    """Bonus of each token of a hot phrase."""
    language_model: str | None = None
    """n-gram model: ARPA or KenLM binary."""
    lm_weight: float = 0.3
    """Weight of its natural log-probability."""
    length_bonus: float = 0.0
    """Bonus of each unit of the language model."""
    lm_unit: Literal["token", "word"] = "token"
    """Units of the language model: tokens as in the units file, or words."""


def scorer_options(args: argparse.Namespace) -> ScorerOptions:
    """ScorerOptions from parsed options.

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
    return ScorerOptions(
        phrases,
        args.context_graph_score,
        args.lm_path,
        args.lm_weight,
        args.length_bonus,
        args.lm_unit,
    )


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
        ValueError: none of the modes uses them, the units can spell no phrase, or a file has the
            wrong format.
        OSError: a file cannot be read.
    """
    scorers: list[PrefixScorer] = []
    if (options.hot_words or options.language_model) and not set(SCORED) & set(modes):
        given = names[0] if options.hot_words else names[1]
        raise ValueError(
            f"{given} is not used by {', '.join(modes)}; add one of these modes: "
            f"{', '.join(SCORED)}"
        )
    if options.hot_words:
        phrases, unknown = tokenize_phrases(options.hot_words, tokenizer)
        if not phrases:
            raise ValueError(f"{names[0]}: the units can spell no phrase: {listed(unknown, 5)}")
        if unknown and warn:
            log.warning(
                "%s: skipped %d phrases that the units cannot spell: %s",
                names[0],
                len(unknown),
                listed(unknown, 5),
            )
        scorers.append(ContextGraph(phrases, options.hot_word_score, device))
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
