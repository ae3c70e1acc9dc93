"""The command-line options of decoding, which several tools share."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch

from wenet_uio.search.context_graph import ContextGraph, read_phrases
from wenet_uio.search.language_model import LanguageModel
from wenet_uio.search.prefix_scorer import PrefixScorer
from wenet_uio.search.types import DecodeOptions
from wenet_uio.text.tokenizer import Tokenizer

SCORED = ("ctc_prefix_beam_search", "attention_rescoring")
"""Modes in which hot words and language models take part."""


def add_decode_options(parser: argparse.ArgumentParser) -> None:
    """The options that make DecodeOptions and the scorers beside it."""
    group = parser.add_argument_group("search")
    defaults = DecodeOptions()
    group.add_argument("--beam_size", type=int, default=defaults.beam_size, help="(%(default)s)")
    group.add_argument(
        "--ctc_weight", type=float, default=defaults.ctc_weight, help="rescoring, joint: of the CTC score (%(default)s)"
    )
    group.add_argument(
        "--reverse_weight", type=float, help="rescoring: of the right-to-left decoder (default: the model's)"
    )
    group.add_argument(
        "--transducer_weight",
        type=float,
        default=defaults.transducer_weight,
        help="rnnt_beam_search: of the transducer beside CTC (%(default)s)",
    )
    group.add_argument(
        "--blank_penalty", type=float, default=defaults.blank_penalty, help="above 0: fewer blanks (%(default)s)"
    )
    group.add_argument(
        "--length_penalty",
        type=float,
        default=defaults.length_penalty,
        help="attention, joint: above 0: longer (%(default)s)",
    )
    group.add_argument(
        "--decoding_chunk_size", type=int, default=defaults.decoding_chunk_size, help="encoder frames (-1: all context)"
    )
    group.add_argument(
        "--num_decoding_left_chunks",
        type=int,
        default=defaults.num_decoding_left_chunks,
        help="chunks seen to the left (-1: all)",
    )
    group.add_argument("--simulate_streaming", action="store_true", help="encode chunk by chunk")

    beside = parser.add_argument_group("hot words and language model", f"take part in {' and '.join(SCORED)}")
    beside.add_argument("--context_list_path", metavar="FILE", help="hot words: a phrase a line")
    beside.add_argument(
        "--context_graph_score", type=float, default=3.0, help="bonus of each token of a hot phrase (%(default)s)"
    )
    beside.add_argument("--lm_path", metavar="FILE", help="n-gram model: ARPA or KenLM binary")
    beside.add_argument("--lm_weight", type=float, default=0.3, help="of its natural log-probability (%(default)s)")
    beside.add_argument("--length_bonus", type=float, default=0.0, help="for each of its units (%(default)s)")
    beside.add_argument(
        "--lm_unit",
        choices=("token", "word"),
        default="token",
        help="what its units are: tokens as the units file spells them, or words (%(default)s)",
    )


def decode_options(args: argparse.Namespace, **others: Any) -> DecodeOptions:
    """DecodeOptions of parsed options; `others` are those that the tool has no option for."""
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
    args: argparse.Namespace, tokenizer: Tokenizer, device: torch.device, *, warn: bool
) -> list[PrefixScorer]:
    """Hot words and language model as the options ask; `warn` of phrases that cannot be spelt.

    Raises:
        ValueError: no mode would use them, or a file is not what it should be.
    """
    scorers: list[PrefixScorer] = []
    if (args.context_list_path or args.lm_path) and not set(SCORED) & set(args.modes):
        given = "--context_list_path" if args.context_list_path else "--lm_path"
        raise ValueError(f"{given} has no part in {', '.join(args.modes)}; it has in {', '.join(SCORED)}")
    if args.context_list_path:
        phrases, unknown = read_phrases(args.context_list_path, tokenizer)
        if unknown and warn:
            some = ", ".join(unknown[:5]) + ("…" if len(unknown) > 5 else "")
            print(f"{args.context_list_path}: left out {len(unknown)} the units cannot spell: {some}", file=sys.stderr)
        scorers.append(ContextGraph(phrases, args.context_graph_score, device))
    if args.lm_path:
        scorers.append(LanguageModel(args.lm_path, tokenizer, args.lm_weight, args.length_bonus, args.lm_unit))
    return scorers
