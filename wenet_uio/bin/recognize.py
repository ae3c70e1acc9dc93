#!/usr/bin/env python3
"""Recognise a test set in one or several decode modes.

    %(prog)s --modes ctc_greedy_search attention_rescoring \\
        --config exp/conformer/train.yaml --checkpoint exp/conformer/avg.pt \\
        --test_data data/test/data.list --result_dir exp/conformer

writes RESULT_DIR/<mode>/text and RESULT_DIR/skipped (utterances that could not be read). With
--nbest or --token_times it also writes RESULT_DIR/<mode>/nbest.jsonl.

Hot words (one phrase per line) and an n-gram language model are used by ctc_prefix_beam_search, and
by attention_rescoring, which rescores the hypotheses of ctc_prefix_beam_search:

    … --context_list_path names.txt --context_graph_score 3 \\
        --lm_path lm.arpa --lm_weight 0.5
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

import torch

from wenet_uio.base.cli import command_parser, run
from wenet_uio.base.executor import start_worker
from wenet_uio.base.files import written_aside
from wenet_uio.base.messages import note
from wenet_uio.base.options import positive_int
from wenet_uio.config import Config
from wenet_uio.config.command_line import (
    add_config_options,
    add_gpu_option,
    add_lora_options,
    add_trust_code,
    change_nothing,
    choose_result_dir,
    config_overrides,
    device_of,
)
from wenet_uio.config.without_effect import RECOGNIZE_OPTIONS
from wenet_uio.dataset.corpus.unread_audio import looking_again
from wenet_uio.dataset.dataset import build_loader, note_of_trimmed
from wenet_uio.dataset.loader import Loader
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.types import Skipped
from wenet_uio.models import build_trained
from wenet_uio.search import DecodeOptions, check_modes, known_modes
from wenet_uio.search.decode import Search
from wenet_uio.search.options import (
    add_decode_options,
    build_scorers,
    decode_options,
    scorer_options,
)
from wenet_uio.search.recogniser import (
    Recogniser,
    load_model_config,
    resolve_dtype,
    use_static_batches,
)
from wenet_uio.search.recognition import Recognition, corpus_keys, recognize, write_recognition
from wenet_uio.text.labels import Tokenizer
from wenet_uio.text.tokenizer import build_tokenizer
from wenet_uio.train.distributed import World, use_cpu_threads

SHOWN = 5
"""Skipped utterances that are printed; the file `skipped` has all of them."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument(
        "--modes", "--mode", nargs="+", required=True, metavar="MODE", help=", ".join(known_modes())
    )
    parser.add_argument("--config", required=True, help="train.yaml of the run")
    parser.add_argument("--checkpoint", required=True, help="weights of the model")
    parser.add_argument(
        "--data_type", choices=("raw", "shard"), default="raw", help="type of --test_data"
    )
    parser.add_argument("--test_data", required=True, help="data list of the test set")
    parser.add_argument("--result_dir", help="output folder (default: the folder of --result_file)")
    parser.add_argument("--result_file", help="also write the text of the only mode to this file")
    parser.add_argument("--device", default="auto", help="auto (a GPU if there is one), cpu, cuda")
    parser.add_argument(
        "--nproc",
        type=positive_int,
        default=1,
        help="processes that share the test set, each on its own GPU",
    )
    parser.add_argument("--batch_size", type=int, default=32, help="utterances of a batch")
    parser.add_argument("--num_workers", type=int, default=0, help="data workers of each process")
    parser.add_argument(
        "--nbest",
        type=int,
        metavar="N",
        help="write nbest.jsonl: the N best texts with their scores",
    )
    parser.add_argument(
        "--token_times",
        action="store_true",
        help="write nbest.jsonl with times and confidences of the tokens",
    )
    add_trust_code(parser)
    add_gpu_option(parser)
    add_config_options(parser)
    add_lora_options(parser, training=False)
    add_decode_options(parser)
    change_nothing(parser, RECOGNIZE_OPTIONS)

    return parser


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse and check the command line."""
    command_line = parser()
    args = command_line.parse_args(arguments)
    args.modes = list(dict.fromkeys(args.modes))
    args.device = device_of(args, has_gpu=torch.cuda.is_available())

    if args.result_file and len(args.modes) > 1:
        command_line.error(
            f"--result_file holds the text of one mode, found {len(args.modes)} modes; use "
            "--result_dir"
        )

    choose_result_dir(command_line, args)
    return args


def main(arguments: Sequence[str] | None = None) -> None:
    """Recognise the test set and write the results."""
    args = parse_arguments(arguments)
    check_modes(args.modes)

    options = decode_options(args, token_times=args.token_times, nbest=args.nbest or 1)
    # A missing index is written here, before several processes need it.
    with looking_again():
        test_set = open_test_set(args)

    corpus = test_set.loader.corpus
    trimmed = note_of_trimmed(corpus, test_set.config.dataset_conf, training=False)
    if trimmed:
        print(f"warning: {trimmed}", file=sys.stderr)

    start = time.perf_counter()
    recognition = recognize_in_processes(args, options, test_set)
    seconds = time.perf_counter() - start
    recognition.skipped.extend(Skipped(key, "not indexed", reason) for key, reason in corpus.bad)
    write_recognition(recognition, corpus_keys(corpus), args.result_dir)

    if args.result_file:
        text = Path(args.result_dir, args.modes[0], "text").read_text(encoding="utf-8")
        with written_aside(args.result_file, "w") as file:
            file.write(text)

    decoded = corpus.num_samples + len(corpus.bad) - len(recognition.skipped)
    speed = recognition.seconds / seconds
    print(
        f"{decoded} utterances, {recognition.seconds:.0f} s of audio in {seconds:.1f} s ({speed:.0f} "
        "x real time)"
    )

    if recognition.skipped:
        print(
            f"{len(recognition.skipped)} could not be read ({args.result_dir}/skipped):",
            file=sys.stderr,
        )
        for sample in recognition.skipped[:SHOWN]:
            print(f"  {sample.key} {sample.reason}: {sample.detail}", file=sys.stderr)

    if not decoded:
        raise ValueError(f"{args.test_data}: not one utterance could be read")


class TestSet(NamedTuple):
    """A test set that is ready to be decoded."""

    config: Config
    tokenizer: Tokenizer
    loader: Loader
    """Over the whole test set."""


def open_test_set(args: argparse.Namespace) -> TestSet:
    """Read the config, build the tokenizer, and open the test set."""
    config = load_model_config(args.config, config_overrides(args), trust_code=args.trust_code)
    config = use_static_batches(config, args.batch_size)
    tokenizer = build_tokenizer(config)
    loader = build_loader(
        args.test_data,
        args.data_type,
        config,
        # search needs no labels, so the texts of a test set may have unknown tokens and no language
        None,
        training=False,
        # processes of --nproc share the test set, whatever a launcher says
        options=LoaderOptions(
            rank=0,
            world_size=1,
            num_workers=args.num_workers,
            pin_memory=args.device != "cpu",
            empty_batches=True,  # they name what could not be read
        ),
    )

    return TestSet(config, tokenizer, loader)


def recognize_in_processes(
    args: argparse.Namespace, options: DecodeOptions, test_set: TestSet
) -> Recognition:
    """Decode the test set in `args.nproc` processes; the number of processes does not change the
    batches.

    Other processes open the test set themselves.
    """
    if args.nproc == 1:
        return recognize_share(args, options, 0, test_set)

    recognition = Recognition()
    with ProcessPoolExecutor(
        args.nproc, multiprocessing.get_context("spawn"), start_worker
    ) as pool:
        shares = [pool.submit(recognize_share, args, options, rank) for rank in range(args.nproc)]
        try:
            for share in shares:
                recognition.join(share.result())
        except BrokenProcessPool:
            raise ValueError(
                "a decoding process was killed; if memory ran out, use a lower --nproc"
            ) from None
        finally:
            for share in shares:
                share.cancel()

    return recognition


def recognize_share(
    args: argparse.Namespace, options: DecodeOptions, rank: int, test_set: TestSet | None = None
) -> Recognition:
    """Decode every `nproc`-th batch of the test set, starting with batch `rank`.

    Args:
        test_set: None opens it.
    """
    ranks = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": args.nproc,
        "LOCAL_WORLD_SIZE": args.nproc,
    }
    environment = os.environ | {name: str(value) for name, value in ranks.items()}
    world = World.from_environment(args.device, environment)
    use_cpu_threads(world, args.num_workers, environment)
    config, tokenizer, loader = test_set or open_test_set(args)
    scorers = build_scorers(
        scorer_options(args), args.modes, tokenizer, world.device, warn=rank == 0
    )
    model = build_trained(config, args.checkpoint, args.lora_ckpt_path)
    options = resolve_dtype(options, config, world.device)
    if rank == 0 and options.dtype != "fp32":
        note(f"dtype {options.dtype} on this {world.device.type}")

    shown_total = loader.corpus.num_samples // args.nproc if rank == 0 else None
    if args.nproc > 1:
        loader = loader.share(rank, args.nproc)

    return recognize(
        Recogniser(config, tokenizer, model),
        loader,
        Search(args.modes, options, scorers),
        device=world.device,
        nbests=bool(args.nbest or args.token_times),
        utterances=shown_total,
    )


if __name__ == "__main__":
    run(main)
