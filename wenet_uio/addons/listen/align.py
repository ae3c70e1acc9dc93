"""Align a data list with its audio: find the times of each token and word, and transcripts that do
not fit.

    %(prog)s --config exp/conformer/train.yaml \\
        --checkpoint exp/conformer/avg.pt --data_list data/train/data.list \\
        --result_dir exp/conformer/align --min_score -2

writes to RESULT_DIR:

    words.ctm, tokens.ctm  `key 1 start duration text confidence`, seconds
    scores                 `key score`
    poor                   `key reason`: below --min_score, audio too short for
                           the text, or unreadable
    clean.list             the list without the poor utterances (raw lists only)
    textgrid/KEY.TextGrid  with --textgrid

A score is per token. It is 0 if the recogniser hears the transcript. The more certain the
recogniser is of another text, the lower is the score. CTC emits a token in few frames, so intervals
are shorter than the tokens in the audio.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch

from wenet_uio.addons.listen.alignment import (
    align_batches,
    write_alignments,
    write_clean_list,
    write_textgrids,
)
from wenet_uio.base.cli import command_parser
from wenet_uio.config.command_line import (
    add_config_options,
    add_gpu_option,
    add_trust_code,
    change_nothing,
    choose_result_dir,
    config_overrides,
    device_of,
)
from wenet_uio.dataset.corpus.unread_audio import looking_again
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.types import Skipped
from wenet_uio.models import build_trained
from wenet_uio.search.recogniser import FrameClock, load_model_config, use_static_batches
from wenet_uio.search.recognition import corpus_keys
from wenet_uio.text.tokenizer import build_tokenizer
from wenet_uio.train.distributed import World, use_cpu_threads


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("--config", required=True, help="train.yaml of the run")
    parser.add_argument("--checkpoint", required=True, help="weights of the model")
    parser.add_argument(
        "--data_type", choices=("raw", "shard"), default="raw", help="type of --data_list"
    )
    parser.add_argument(
        "--data_list", "--input_file", required=True, help="data list with transcripts"
    )
    parser.add_argument("--result_dir", help="output folder")
    parser.add_argument("--result_file", help="WeNet's option: a file in the output folder")
    parser.add_argument(
        "--min_score",
        type=float,
        default=-torch.inf,
        help="utterances with a lower score are poor (default: no limit; -2 suits many corpora)",
    )
    parser.add_argument(
        "--textgrid",
        "--gen_praat",
        action="store_true",
        help="write a TextGrid of Praat for every utterance",
    )
    parser.add_argument("--device", default="auto", help="auto (a GPU if there is one), cpu, cuda")
    parser.add_argument("--batch_size", type=int, default=32, help="utterances of a batch")
    parser.add_argument("--num_workers", type=int, default=0, help="data workers")
    add_gpu_option(parser)
    add_trust_code(parser)
    add_config_options(parser)
    change_nothing(
        parser,
        dict.fromkeys(("--blank_thres", "--thres"), "a token has the frames of CTC's best path"),
    )

    return parser


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse and check the command line."""
    command_line = parser()
    args = command_line.parse_args(arguments)
    args.device = device_of(args, has_gpu=torch.cuda.is_available())

    choose_result_dir(command_line, args)
    return args


def main(arguments: Sequence[str] | None = None) -> None:
    """Align the data list and write the results."""
    args = parse_arguments(arguments)
    world = World.from_environment(args.device)
    use_cpu_threads(world, args.num_workers)
    config = load_model_config(args.config, config_overrides(args), trust_code=args.trust_code)
    config = use_static_batches(config, args.batch_size)
    tokenizer = build_tokenizer(config)
    # Empty batches name what could not be read.
    options = LoaderOptions(rank=0, world_size=1, num_workers=args.num_workers, empty_batches=True)
    with looking_again():
        loader = build_loader(
            args.data_list, args.data_type, config, tokenizer, training=False, options=options
        )

    model = build_trained(config, args.checkpoint)
    corpus = loader.corpus
    clock = FrameClock.of(model, config.dataset_conf)
    alignments = align_batches(
        model, loader, tokenizer, clock, device=world.device, utterances=corpus.num_samples
    )
    alignments.skipped.extend(Skipped(key, "not indexed", reason) for key, reason in corpus.bad)
    alignments.by_key = {
        key: alignments.by_key[key] for key in corpus_keys(corpus) if key in alignments.by_key
    }

    poor = alignments.poor(args.min_score)
    write_alignments(alignments.by_key, poor, args.result_dir)
    if args.textgrid:
        write_textgrids(alignments.by_key, f"{args.result_dir}/textgrid")

    print(
        f"{len(alignments.by_key)} utterances aligned, {len(poor)} poor or unreadable "
        f"({args.result_dir}/poor)"
    )
    if args.data_type == "raw" and not args.data_list.endswith((".yaml", ".yml")):
        kept = write_clean_list(args.data_list, f"{args.result_dir}/clean.list", poor)
        print(f"{args.result_dir}/clean.list: {kept} utterances")
    if not alignments.by_key:
        raise ValueError(f"{args.data_list}: not one utterance could be aligned")
