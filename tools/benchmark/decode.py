#!/usr/bin/env python3
"""CTC prefix beam search beside the same search written plainly (a dictionary of prefixes, frame by frame, in Python).

Both decode the same posteriors in one run, in turn, and must find the same texts; seconds are of CPU time. By default
the posteriors are made up, as peaked as a trained model's. --data_list takes the lengths of a real test set, --model
its posteriors too.

The plain search is that of the tests: run it where they are, with the root of the repository on PYTHONPATH.
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

from tests.search.support.plain_search import plain_hot_words, plain_language_model, plain_search, write_arpa
from wenet_uio.cli import run
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.search import ctc_prefix_beam_search
from wenet_uio.search.context_graph import ContextGraph
from wenet_uio.search.language_model import LanguageModel
from wenet_uio.search.prefix_scorer import PrefixScorer
from wenet_uio.search.recogniser import load_recogniser, with_static_batches
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.tokenizer import Tokenizer

FRAMES_PER_SECOND = 25
TOKENS_PER_SECOND = 5
PHRASES = 10

Batch = tuple[torch.Tensor, torch.Tensor]
"""Log-probabilities (B, T, V) and lengths (B,)."""


def made_up(seconds: np.ndarray, vocabulary: int, batch_size: int) -> list[Batch]:
    """Posteriors of a model that is mostly sure: blanks, and peaks of a token with a rival or two close behind."""
    generator = torch.Generator().manual_seed(0)
    batches = []
    lengths = torch.tensor(np.maximum(1, np.round(np.sort(seconds)[::-1] * FRAMES_PER_SECOND)).astype(np.int64))
    for part in lengths.split(batch_size):
        logits = torch.randn(len(part), int(part[0]), vocabulary, generator=generator)
        peak = torch.rand(logits.shape[:2], generator=generator) < TOKENS_PER_SECOND / FRAMES_PER_SECOND
        logits[..., 0] += torch.where(peak, 2.0, 9.0)
        for height in (10.0, 7.0, 6.0):
            token = torch.randint(1, vocabulary, (*logits.shape[:2], 1), generator=generator)
            logits.scatter_add_(2, token, peak.unsqueeze(2) * (height + torch.randn(token.shape, generator=generator)))
        batches.append((logits.log_softmax(2), part))
    return batches


@torch.inference_mode()
def of_model(folder: str, data_list: str, data_type: str, batch_size: int) -> list[Batch]:
    """Posteriors of a trained model on a test set."""
    recogniser = load_recogniser(folder)
    config = with_static_batches(recogniser.config, batch_size)
    loader = build_loader(data_list, data_type, config, recogniser.tokenizer, training=False)
    model = recogniser.model.eval()
    found = []
    for batch in loader:
        encoder_out, lengths = model.encode(batch.feats, batch.feats_lengths)
        found.append((model.ctc_log_probs(encoder_out), lengths))
    return found


def variants(vocabulary: int, folder: str) -> dict[str, tuple[list[PrefixScorer], Callable | None]]:
    """{name: (scorers, the same plainly)}: nothing, hot words, and a language model where kenlm is installed."""
    draw = np.random.default_rng(0)
    phrases = [tuple(draw.integers(1, vocabulary, draw.integers(2, 6)).tolist()) for _ in range(PHRASES)]
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
    plain = plain_language_model(kenlm.Model(arpa), lambda prefix, ended: [f"t{unit}" for unit in prefix], 0.5, 0.5)
    chosen["language model"] = ([LanguageModel(arpa, tokenizer, 0.5, 0.5, "token")], plain)
    return chosen


def measure(
    batches: list[Batch], beam_size: int, scorers: list[PrefixScorer], bonus: Callable | None
) -> tuple[float, float, int]:
    """CPU seconds of ours, of the plain search, and utterances whose best texts differ."""
    ctc_prefix_beam_search(*batches[-1], beam_size, scorers=scorers)  # what torch sets up at its first call
    ours = plain = 0.0
    differ = 0
    for log_probs, lengths in batches:
        start = time.process_time()
        found = ctc_prefix_beam_search(log_probs, lengths, beam_size, scorers=scorers)
        ours += time.process_time() - start
        for row, nbest in enumerate(found):
            start = time.process_time()
            expected = plain_search(log_probs[row, : lengths[row]], beam_size, bonus)
            plain += time.process_time() - start
            differ += nbest[0].tokens != expected[0][0]
    return ours, plain, differ


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--utterances", type=int, default=100, help="made up: how many (%(default)s)")
    parser.add_argument("--vocabulary", type=int, default=500, help="made up: tokens (%(default)s)")
    parser.add_argument("--data_list", help="lengths of its utterances instead of made-up ones (median 4 s)")
    parser.add_argument("--data_type", choices=("raw", "shard"), default="raw")
    parser.add_argument("--model", metavar="DIR", help="experiment: its posteriors of --data_list")
    parser.add_argument("--beam_size", type=int, default=10, help="(%(default)s)")
    parser.add_argument("--batch_size", type=int, default=32, help="(%(default)s)")
    parser.add_argument("--json", action="store_true", help="all figures on the last line")
    args = parser.parse_args()
    if args.model and not args.data_list:
        raise ValueError("--model: --data_list names what it is to hear")

    torch.set_num_threads(1)
    if args.model:
        batches = of_model(args.model, args.data_list, args.data_type, args.batch_size)
    else:
        seconds = np.random.default_rng(0).lognormal(np.log(4), 0.5, args.utterances)
        if args.data_list:
            corpus = open_list(args.data_list, args.data_type)
            rows = [corpus.rows(shard) for shard in range(corpus.num_shards)]
            seconds = np.concatenate([each.num_samples / each.sample_rate for each in rows])
        batches = made_up(seconds, args.vocabulary, args.batch_size)
    frames = sum(int(lengths.sum()) for _, lengths in batches)
    report = {"utterances": sum(len(lengths) for _, lengths in batches), "frames": frames, "beam_size": args.beam_size}
    report |= {"vocabulary": batches[0][0].size(2), "batch_size": args.batch_size, "threads": 1}
    print(" ".join(f"{name}={value}" for name, value in report.items()))
    print(f"{'':16} {'ours, s':>9} {'plain, s':>9} {'ratio':>7} {'differ':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for name, (scorers, bonus) in variants(batches[0][0].size(2), folder).items():
            remembered = lru_cache(None)(bonus) if bonus else None
            ours, plain, differ = measure(batches, args.beam_size, scorers, remembered)
            print(f"{name:16} {ours:9.3f} {plain:9.3f} {plain / ours:7.1f} {differ:7}")
            report[name] = {"ours_s": ours, "plain_s": plain, "ratio": plain / ours, "differ": differ}
    if args.json:
        print(json.dumps(report))


if __name__ == "__main__":
    run(main)
