#!/usr/bin/env python3
"""Recognise a test set in one or several decode modes.

    python -m wenet_uio.bin.recognize --modes ctc_greedy_search attention_rescoring --config exp/conformer/train.yaml \\
      --checkpoint exp/conformer/avg.pt --test_data data/test/data.list --result_dir exp/conformer

writes RESULT_DIR/<mode>/text, and to RESULT_DIR/skipped what could not be read.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch

from wenet_uio.cli import run
from wenet_uio.config import Config, load_config
from wenet_uio.config.dataset import BatchConf
from wenet_uio.dataset.corpus import Corpus
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.types import SampleRef, Skipped
from wenet_uio.models import build_model
from wenet_uio.search import MODES, DecodeOptions, check_modes
from wenet_uio.search.recognition import recognize, write_recognition
from wenet_uio.text.tokenizer import build_tokenizer
from wenet_uio.train.checkpoint import load_weights
from wenet_uio.train.distributed import World, cpu_threads

SHOWN = 5
"""Skipped utterances that are named on the screen; the file names all."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", nargs="+", required=True, metavar="MODE", help=", ".join(MODES))
    parser.add_argument("--config", required=True, help="train.yaml of the run")
    parser.add_argument("--override_config", nargs="+", default=[], metavar="KEY=VALUE", help="keys of it to change")
    parser.add_argument("--checkpoint", required=True, help="weights")
    parser.add_argument("--data_type", choices=("raw", "shard"), default="raw", help="what the list names (raw)")
    parser.add_argument("--test_data", required=True, help="data list")
    parser.add_argument("--result_dir", required=True, help="folder to write to")
    parser.add_argument("--device", default="auto", help="auto (a GPU where there is one), cpu, cuda")
    parser.add_argument("--batch_size", type=int, default=32, help="utterances (32)")
    parser.add_argument("--num_workers", type=int, default=0, help="processes that read data (0: none)")
    add_decode_options(parser)
    return parser.parse_args()


def add_decode_options(parser: argparse.ArgumentParser) -> None:
    """The options that make DecodeOptions."""
    group = parser.add_argument_group("search")
    defaults = DecodeOptions()
    group.add_argument("--beam_size", type=int, default=defaults.beam_size, help="(%(default)s)")
    group.add_argument(
        "--ctc_weight", type=float, default=defaults.ctc_weight, help="rescoring: of the CTC score (%(default)s)"
    )
    group.add_argument(
        "--reverse_weight", type=float, help="rescoring: of the right-to-left decoder (default: the model's)"
    )
    group.add_argument(
        "--blank_penalty", type=float, default=defaults.blank_penalty, help="above 0: fewer blanks (%(default)s)"
    )
    group.add_argument(
        "--length_penalty", type=float, default=defaults.length_penalty, help="attention: above 0: longer (%(default)s)"
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


def main() -> None:
    args = parse_arguments()
    modes = list(dict.fromkeys(args.modes))
    check_modes(modes)
    options = DecodeOptions(
        beam_size=args.beam_size,
        ctc_weight=args.ctc_weight,
        reverse_weight=args.reverse_weight,
        blank_penalty=args.blank_penalty,
        length_penalty=args.length_penalty,
        decoding_chunk_size=args.decoding_chunk_size,
        num_decoding_left_chunks=args.num_decoding_left_chunks,
        simulate_streaming=args.simulate_streaming,
    )
    world = World.from_environment(args.device)
    device, threads = world.device, cpu_threads(world)
    if threads and device.type == "cpu":
        torch.set_num_threads(max(1, threads - args.num_workers))  # more would wait for the workers, spinning
    config = with_batches_of(load_config(args.config, args.override_config), args.batch_size)
    tokenizer = build_tokenizer(config)
    loader = build_loader(
        args.test_data,
        args.data_type,
        config,
        tokenizer,
        training=False,
        num_workers=args.num_workers,
        pin_memory=device.type == "cuda",
    )
    model = build_model(config)
    load_weights(model, args.checkpoint)

    corpus = loader.corpus
    start = time.perf_counter()
    recognition = recognize(model, loader, tokenizer, modes, options, device=device, utterances=corpus.num_samples)
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
