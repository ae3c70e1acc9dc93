#!/usr/bin/env python3
"""Align a data list with its audio: when each token and word is said, and which transcripts fit poorly.

    python -m wenet_uio.bin.align --config exp/conformer/train.yaml --checkpoint exp/conformer/avg.pt \\
      --data_list data/train/data.list --result_dir exp/conformer/align --min_score -2

writes RESULT_DIR/words.ctm and tokens.ctm (`key 1 start duration text confidence`, seconds), scores (`key score`), poor
(`key reason`: below --min_score, too short for its text, or unreadable), with --textgrid textgrid/<key>.TextGrid, and
of a raw list clean.list, which lacks the poor utterances.

A score is per token: 0 where the recogniser hears the transcript, and the more below, the surer it hears another text.
CTC emits a token in few frames, so intervals are shorter than what is said.
"""

from __future__ import annotations

import argparse

import torch

from wenet_uio.bin.recognize import keys_of, with_batches_of
from wenet_uio.cli import run
from wenet_uio.config import load_config
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.types import Skipped
from wenet_uio.files import written_aside
from wenet_uio.models import build_model
from wenet_uio.models.weights import load_weights
from wenet_uio.search.alignment import align_batches, write_clean_list, write_ctm, write_textgrid
from wenet_uio.search.timing import FrameClock
from wenet_uio.text.tokenizer import build_tokenizer
from wenet_uio.train.distributed import World, use_cpu_threads


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="train.yaml of the run")
    parser.add_argument("--checkpoint", required=True, help="weights")
    parser.add_argument("--data_type", choices=("raw", "shard"), default="raw", help="what the list names (raw)")
    parser.add_argument("--data_list", required=True, help="audio with transcripts")
    parser.add_argument("--result_dir", required=True, help="folder to write to")
    parser.add_argument(
        "--min_score", type=float, default=-torch.inf, help="a lower score is poor (default: none is; -2 suits many)"
    )
    parser.add_argument("--textgrid", action="store_true", help="write Praat's TextGrid of every utterance")
    parser.add_argument("--device", default="auto", help="auto (a GPU where there is one), cpu, cuda")
    parser.add_argument("--batch_size", type=int, default=32, help="utterances (32)")
    parser.add_argument("--num_workers", type=int, default=0, help="processes that read data (0: none)")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    world = World.from_environment(args.device)
    use_cpu_threads(world, args.num_workers)
    config = with_batches_of(load_config(args.config), args.batch_size)
    tokenizer = build_tokenizer(config)
    options = LoaderOptions(num_workers=args.num_workers)
    loader = build_loader(args.data_list, args.data_type, config, tokenizer, training=False, options=options)
    model = build_model(config)
    load_weights(model, args.checkpoint)
    corpus = loader.corpus
    clock = FrameClock.of(model, config.dataset_conf)
    found = align_batches(model, loader, tokenizer, clock, device=world.device, utterances=corpus.num_samples)
    found.skipped.extend(Skipped(key, "not indexed", reason) for key, reason in corpus.bad)
    found.by_key = {key: found.by_key[key] for key in keys_of(corpus) if key in found.by_key}

    for tier in ("words", "tokens"):
        write_ctm(found.by_key, f"{args.result_dir}/{tier}.ctm", tier)
    with written_aside(f"{args.result_dir}/scores", "w") as file:
        file.writelines(f"{key} {each.score:.4f}\n" for key, each in found.by_key.items())
    poor = found.poor(args.min_score)
    with written_aside(f"{args.result_dir}/poor", "w") as file:
        file.writelines(f"{key} {reason}\n" for key, reason in poor.items())
    if args.textgrid:
        for key, each in found.by_key.items():
            with written_aside(f"{args.result_dir}/textgrid/{key.replace('/', '_')}.TextGrid", "w") as file:
                write_textgrid(each, file)
    print(f"{len(found.by_key)} utterances aligned, {len(poor)} poor or unreadable ({args.result_dir}/poor)")
    if args.data_type == "raw" and not args.data_list.endswith((".yaml", ".yml")):
        kept = write_clean_list(args.data_list, f"{args.result_dir}/clean.list", poor)
        print(f"{args.result_dir}/clean.list: {kept} utterances")
    if not found.by_key:
        raise ValueError(f"{args.data_list}: not one utterance could be aligned")


if __name__ == "__main__":
    run(main)
