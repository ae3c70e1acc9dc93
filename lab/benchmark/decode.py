#!/usr/bin/env python3
"""CTC prefix beam search compared with a plain one: a dictionary of prefixes, frame by frame, in
Python.

Both searches decode the same posteriors in turn, in one run, and should find the same texts. Times
are CPU seconds. By default the posteriors are synthetic, with peaks like those of a trained model.
--data_list takes the lengths of a real test set; --model also takes the posteriors of a trained
model.

The plain search is part of the tests: run this file in the repository, with its root on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from provenance import benchmark_parser

from tests.support.search.plain_search import (
    plain_hot_words,
    plain_language_model,
    plain_search,
    write_arpa,
)
from wenet_uio.base.cli import run
from wenet_uio.config.command_line import add_trust_code
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.search import ctc_prefix_beam_search
from wenet_uio.search.context_graph import ContextGraph
from wenet_uio.search.language_model import LanguageModel
from wenet_uio.search.prefix_scorer import PrefixScorer
from wenet_uio.search.recogniser import load_recogniser, use_static_batches
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

FRAMES_PER_SECOND = 25
TOKENS_PER_SECOND = 5
PHRASES = 10

Batch = tuple[torch.Tensor, torch.Tensor]
"""Log-probabilities (B, T, V) and lengths (B,)."""


def made_up(seconds: np.ndarray, vocabulary: int, batch_size: int) -> list[Batch]:
    """Make posteriors like those of a trained model: mostly blank, with peaks of a token and two
    close rivals.
    """
    generator = torch.Generator().manual_seed(0)
    batches = []
    lengths = torch.tensor(
        np.maximum(1, np.round(np.sort(seconds)[::-1] * FRAMES_PER_SECOND)).astype(np.int64)
    )
    for part in lengths.split(batch_size):
        logits = torch.randn(len(part), int(part[0]), vocabulary, generator=generator)
        peak = (
            torch.rand(logits.shape[:2], generator=generator)
            < TOKENS_PER_SECOND / FRAMES_PER_SECOND
        )
        logits[..., 0] += torch.where(peak, 2.0, 9.0)

        for height in (10.0, 7.0, 6.0):
            token = torch.randint(1, vocabulary, (*logits.shape[:2], 1), generator=generator)
            logits.scatter_add_(
                2,
                token,
                peak.unsqueeze(2) * (height + torch.randn(token.shape, generator=generator)),
            )

        batches.append((logits.log_softmax(2), part))

    return batches


@torch.inference_mode()
def of_model(args: argparse.Namespace) -> list[Batch]:
    """Compute the posteriors of a trained model on a test set."""
    recogniser = load_recogniser(args.model, trust_code=args.trust_code)
    config = use_static_batches(recogniser.config, args.batch_size)
    loader = build_loader(
        args.data_list, args.data_type, config, recogniser.tokenizer, training=False
    )
    model = recogniser.model.eval()
    batches = []
    for batch in loader:
        encoder_out, lengths = model.encode(batch.feats, batch.feats_lengths)
        batches.append((model.ctc_log_probs(encoder_out), lengths))

    return batches


def variants(vocabulary: int, folder: str) -> dict[str, tuple[list[PrefixScorer], Callable | None]]:
    """Return {name: (our scorers, bonus of the plain search)}; the language model only if kenlm is
    installed.
    """
    draw = np.random.default_rng(0)
    phrases = [
        tuple(draw.integers(1, vocabulary, draw.integers(2, 6)).tolist()) for _ in range(PHRASES)
    ]
    chosen: dict[str, tuple[list[PrefixScorer], Callable | None]] = {
        "search": ([], None),
        "hot words": ([ContextGraph(phrases, 2.0)], plain_hot_words(phrases, 2.0)),
    }

    try:
        import kenlm
    except ModuleNotFoundError:
        return chosen

    symbols = {f"t{unit}": unit for unit in range(vocabulary)}
    arpa = str(write_arpa(Path(folder) / "lm.arpa", list(symbols)[1:200]))
    tokenizer = Tokenizer(CharSplitter(split_with_space=True), symbols)
    plain = plain_language_model(
        kenlm.Model(arpa), lambda prefix, ended: [f"t{unit}" for unit in prefix], 0.5, 0.5
    )
    chosen["language model"] = ([LanguageModel(arpa, tokenizer, 0.5, 0.5, "token")], plain)

    return chosen


def measure(
    batches: list[Batch], beam_size: int, scorers: list[PrefixScorer], bonus: Callable | None
) -> tuple[float, float, int]:
    """Return CPU seconds of our search and of the plain one, and the number of utterances with
    different texts.
    """
    ctc_prefix_beam_search(*batches[-1], beam_size, scorers=scorers)  # warms up torch
    ours = plain = 0.0
    differ = 0

    for log_probs, lengths in batches:
        start = time.process_time()
        nbests = ctc_prefix_beam_search(log_probs, lengths, beam_size, scorers=scorers)
        ours += time.process_time() - start

        for row, nbest in enumerate(nbests):
            start = time.process_time()
            expected = plain_search(log_probs[row, : lengths[row]], beam_size, bonus)
            plain += time.process_time() - start
            differ += nbest[0].tokens != expected[0][0]

    return ours, plain, differ


def lengths(args: argparse.Namespace) -> np.ndarray:
    """Return the seconds of the utterances of --data_list, or random ones."""
    if not args.data_list:
        return np.random.default_rng(0).lognormal(np.log(4), 0.5, args.utterances)
    corpus = open_list(args.data_list, args.data_type)
    rows = [corpus.rows(shard) for shard in range(corpus.num_shards)]
    return np.concatenate([of_shard.num_samples / of_shard.sample_rate for of_shard in rows])


def parse_arguments() -> argparse.Namespace:
    """Parse the command line.

    Raises:
        ValueError: --model without --data_list.
    """
    parser = benchmark_parser(__doc__)
    parser.add_argument(
        "--utterances",
        type=int,
        default=100,
        help="number of synthetic utterances (default: %(default)s)",
    )
    parser.add_argument(
        "--vocabulary",
        type=int,
        default=500,
        help="tokens of synthetic posteriors (default: %(default)s)",
    )
    parser.add_argument(
        "--data_list",
        help="take the lengths of its utterances (default: random lengths, median 4 s)",
    )
    parser.add_argument(
        "--data_type",
        choices=("raw", "shard"),
        default="raw",
        help="type of --data_list (default: raw)",
    )
    parser.add_argument(
        "--model", metavar="DIR", help="experiment folder: take its posteriors of --data_list"
    )
    parser.add_argument("--beam_size", type=int, default=10, help="default: %(default)s")
    parser.add_argument(
        "--batch_size", type=int, default=32, help="utterances of a batch (default: %(default)s)"
    )
    add_trust_code(parser)
    args = parser.parse_args()
    if args.model and not args.data_list:
        raise ValueError("--model needs --data_list, the utterances to decode")

    return args


def main() -> None:
    """Compare both searches without scorers, with hot words and with a language model."""
    args = parse_arguments()
    torch.set_num_threads(1)
    batches = (
        of_model(args) if args.model else made_up(lengths(args), args.vocabulary, args.batch_size)
    )
    frames = sum(int(lengths.sum()) for _, lengths in batches)
    report = {
        "utterances": sum(len(lengths) for _, lengths in batches),
        "frames": frames,
        "beam_size": args.beam_size,
    }
    report |= {"vocabulary": batches[0][0].size(2), "batch_size": args.batch_size, "threads": 1}
    print(" ".join(f"{name}={value}" for name, value in report.items()))
    print(f"{'':16} {'ours, s':>9} {'plain, s':>9} {'ratio':>7} {'differ':>7}")

    with tempfile.TemporaryDirectory() as folder:
        for name, (scorers, bonus) in variants(batches[0][0].size(2), folder).items():
            remembered = lru_cache(None)(bonus) if bonus else None
            ours, plain, differ = measure(batches, args.beam_size, scorers, remembered)
            print(f"{name:16} {ours:9.3f} {plain:9.3f} {plain / ours:7.1f} {differ:7}")
            report[name] = {
                "ours_s": ours,
                "plain_s": plain,
                "ratio": plain / ours,
                "differ": differ,
            }

    if args.json:
        print(json.dumps(report))


if __name__ == "__main__":
    run(main)
