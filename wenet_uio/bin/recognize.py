#!/usr/bin/env python3
"""Recognise a test set in one or several decode modes.

    python -m wenet_uio.bin.recognize --modes ctc_greedy_search attention_rescoring --config exp/conformer/train.yaml \\
      --checkpoint exp/conformer/avg.pt --test_data data/test/data.list --result_dir exp/conformer

writes RESULT_DIR/<mode>/text, and to RESULT_DIR/skipped what could not be read; with --nbest or --token_times also
RESULT_DIR/<mode>/nbest.jsonl.

Hot words (a phrase a line) and an n-gram language model take part in ctc_prefix_beam_search, and through its hypotheses
in attention_rescoring:

      --context_list_path names.txt --context_graph_score 3 --lm_path lm.arpa --lm_weight 0.5
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from wenet_uio.cli import run
from wenet_uio.config import Config, load_config
from wenet_uio.config.dataset import BatchConf
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.loader import Loader
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.types import SampleRef, Skipped
from wenet_uio.models import build_model
from wenet_uio.models.weights import load_weights
from wenet_uio.search import ALL_MODES, DecodeOptions, check_modes
from wenet_uio.search.options import add_decode_options, build_scorers, decode_options
from wenet_uio.search.recognition import Recognition, recognize, write_recognition
from wenet_uio.search.timing import FrameClock
from wenet_uio.text.tokenizer import Tokenizer, build_tokenizer
from wenet_uio.train.distributed import World, use_cpu_threads

SHOWN = 5
"""Skipped utterances that are named on the screen; the file names all."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", nargs="+", required=True, metavar="MODE", help=", ".join(ALL_MODES))
    parser.add_argument("--config", required=True, help="train.yaml of the run")
    parser.add_argument("--override_config", nargs="+", default=[], metavar="KEY=VALUE", help="keys of it to change")
    parser.add_argument("--checkpoint", required=True, help="weights")
    parser.add_argument("--data_type", choices=("raw", "shard"), default="raw", help="what the list names (raw)")
    parser.add_argument("--test_data", required=True, help="data list")
    parser.add_argument("--result_dir", required=True, help="folder to write to")
    parser.add_argument("--device", default="auto", help="auto (a GPU where there is one), cpu, cuda")
    parser.add_argument("--nproc", type=int, default=1, help="processes that share the list; a GPU each (1)")
    parser.add_argument("--batch_size", type=int, default=32, help="utterances (32)")
    parser.add_argument("--num_workers", type=int, default=0, help="processes that read data for each (0: none)")
    parser.add_argument("--nbest", type=int, metavar="N", help="write nbest.jsonl: the N best texts with their scores")
    parser.add_argument(
        "--token_times", action="store_true", help="write nbest.jsonl with times and confidences of the tokens"
    )
    add_decode_options(parser)
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    args.modes = list(dict.fromkeys(args.modes))
    check_modes(args.modes)
    if args.nproc < 1:
        raise ValueError(f"--nproc: expected 1 or more, found {args.nproc}")
    options = decode_options(args, token_times=args.token_times, nbest=args.nbest or 1)
    corpus = open_test_set(args)[2].corpus  # writes the index, where there is none, before processes need it

    start = time.perf_counter()
    recognition = recognize_in_processes(args, options)
    taken = time.perf_counter() - start
    recognition.skipped.extend(Skipped(key, "not indexed", reason) for key, reason in corpus.bad)
    write_recognition(recognition, keys_of(corpus), args.result_dir)

    decoded = corpus.num_samples + len(corpus.bad) - len(recognition.skipped)
    speed = recognition.seconds / taken
    print(f"{decoded} utterances, {recognition.seconds:.0f} s of audio in {taken:.1f} s ({speed:.0f} x real time)")
    if recognition.skipped:
        print(f"{len(recognition.skipped)} could not be read ({args.result_dir}/skipped):", file=sys.stderr)
        for sample in recognition.skipped[:SHOWN]:
            print(f"  {sample.key} {sample.reason}: {sample.detail}", file=sys.stderr)
    if not decoded:
        raise ValueError(f"{args.test_data}: not one utterance could be read")


def open_test_set(args: argparse.Namespace) -> tuple[Config, Tokenizer, Loader]:
    """Config, tokenizer, and the batches of the whole list."""
    config = with_batches_of(load_config(args.config, args.override_config), args.batch_size)
    tokenizer = build_tokenizer(config)
    loader = build_loader(
        args.test_data,
        args.data_type,
        config,
        tokenizer,
        training=False,
        options=LoaderOptions(num_workers=args.num_workers, pin_memory=args.device != "cpu"),
    )
    return config, tokenizer, loader


def recognize_in_processes(args: argparse.Namespace, options: DecodeOptions) -> Recognition:
    """Decode the list in `args.nproc` processes; the batches are those of a single process."""
    if args.nproc == 1:
        return recognize_share(args, options, 0)
    recognition = Recognition()
    with ProcessPoolExecutor(args.nproc, multiprocessing.get_context("spawn")) as pool:
        shares = [pool.submit(recognize_share, args, options, rank) for rank in range(args.nproc)]
        try:
            for share in shares:
                recognition.join(share.result())
        except BrokenProcessPool:
            raise ValueError(
                "a decoding process was ended from outside; if memory ran out, use a lower --nproc"
            ) from None
        finally:
            for share in shares:
                share.cancel()
    return recognition


def recognize_share(args: argparse.Namespace, options: DecodeOptions, rank: int) -> Recognition:
    """Decode every `nproc`-th batch of the list."""
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": args.nproc, "LOCAL_WORLD_SIZE": args.nproc}
    environment = os.environ | {name: str(value) for name, value in ranks.items()}
    world = World.from_environment(args.device, environment)
    use_cpu_threads(world, args.num_workers, environment)
    config, tokenizer, loader = open_test_set(args)
    scorers = build_scorers(args, tokenizer, world.device, warn=rank == 0)
    model = build_model(config)
    load_weights(model, args.checkpoint)
    return recognize(
        model,
        loader if args.nproc == 1 else loader.share(rank, args.nproc),
        tokenizer,
        args.modes,
        options,
        device=world.device,
        scorers=scorers,
        clock=FrameClock.of(model, config.dataset_conf) if args.nbest or args.token_times else None,
        utterances=loader.corpus.num_samples // args.nproc,
        progress=rank == 0,
    )


def with_batches_of(config: Config, batch_size: int) -> Config:
    """The config with static batches of `batch_size` utterances.

    Raises:
        ValueError: below 1.
    """
    if batch_size < 1:
        raise ValueError(f"--batch_size: expected 1 or more, found {batch_size}")
    batches = BatchConf(batch_type="static", batch_size=batch_size)
    return config.model_copy(update={"dataset_conf": config.dataset_conf.model_copy(update={"batch_conf": batches})})


def keys_of(corpus: Corpus) -> list[str]:
    """Keys of all utterances, in the order of the list."""
    return [
        corpus.key(SampleRef(shard, row)) for shard in range(corpus.num_shards) for row in range(corpus.samples[shard])
    ]


if __name__ == "__main__":
    run(main)
