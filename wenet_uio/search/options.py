"""Command-line options of decoding that several commands share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import torch

from wenet_uio.search.context_graph import ContextGraph, read_phrases
from wenet_uio.search.language_model import LanguageModel
from wenet_uio.search.prefix_scorer import PrefixScorer
from wenet_uio.search.types import DecodeOptions
from wenet_uio.text.tokenizer import Tokenizer

SCORED = ("ctc_prefix_beam_search", "attention_rescoring")
"""Modes that use hot words and language models."""


def add_decode_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `decode_options` and `build_scorers` read."""
    group = parser.add_argument_group("search")
    defaults = DecodeOptions()
    group.add_argument(
        "--beam_size", type=int, default=defaults.beam_size, help="hypotheses that a search keeps (%(default)s)"
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
        "--blank_penalty",
        type=float,
        default=defaults.blank_penalty,
        help="above 0: fewer blanks, so fewer deletions (%(default)s)",
    )
    group.add_argument(
        "--length_penalty",
        type=float,
        default=defaults.length_penalty,
        help="attention, joint: above 0: longer hypotheses (%(default)s)",
    )
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
    group.add_argument("--simulate_streaming", action="store_true", help="encode chunk by chunk")

    _add_scorer_options(parser.add_argument_group("hot words and language model", f"used by {' and '.join(SCORED)}"))


def _add_scorer_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--context_list_path", metavar="FILE", help="hot words, one phrase per line")
    group.add_argument(
        "--context_graph_score", type=float, default=3.0, help="bonus of each token of a hot phrase (%(default)s)"
    )
    group.add_argument("--lm_path", metavar="FILE", help="n-gram model: ARPA or KenLM binary")
    group.add_argument(
        "--lm_weight", type=float, default=0.3, help="weight of its natural log-probability (%(default)s)"
    )
    group.add_argument(
        "--length_bonus", type=float, default=0.0, help="bonus of each unit of the language model (%(default)s)"
    )
    group.add_argument(
        "--lm_unit",
        choices=("token", "word"),
        default="token",
        help="units of the language model: tokens as in the units file, or words (%(default)s)",
    )


def decode_options(args: argparse.Namespace, **others: Any) -> DecodeOptions:
    """DecodeOptions from parsed options; `others` are fields that have no option in `add_decode_options`."""
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
    )
    return DecodeOptions(**{name: getattr(args, name) for name in names}, **others)


def build_scorers(
    args: argparse.Namespace, modes: Sequence[str], tokenizer: Tokenizer, device: torch.device, *, warn: bool
) -> list[PrefixScorer]:
    """Build the hot words and the language model that the options name, for decoding in `modes`.

    Args:
        warn: print the phrases that the units cannot spell.

    Raises:
        ValueError: none of the modes uses them, or a file has the wrong format.
        OSError: a file cannot be read.
    """
    scorers: list[PrefixScorer] = []
    if (args.context_list_path or args.lm_path) and not set(SCORED) & set(modes):
        given = "--context_list_path" if args.context_list_path else "--lm_path"
        raise ValueError(f"{given} is not used by {', '.join(modes)}; add one of these modes: {', '.join(SCORED)}")
    if args.context_list_path:
        phrases, unknown = read_phrases(args.context_list_path, tokenizer)
        if unknown and warn:
            some = ", ".join(unknown[:5]) + ("…" if len(unknown) > 5 else "")
            print(
                f"{args.context_list_path}: skipped {len(unknown)} phrases that the units cannot spell: {some}",
                file=sys.stderr,
            )
        scorers.append(ContextGraph(phrases, args.context_graph_score, device))
    if args.lm_path:
        scorers.append(LanguageModel(args.lm_path, tokenizer, args.lm_weight, args.length_bonus, args.lm_unit))
    return scorers
