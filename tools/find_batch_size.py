#!/usr/bin/env python3
"""Find, for each length bucket of a corpus, the largest batch that trains; prints yaml for batch_conf.

    find_batch_size.py data/train/data.list --data_type raw --config conf/train_conformer.yaml --memory 4GB

Every bucket is tried with batches of its longest audio and its longest text, after the filters and at the slowest
speed: whole optimizer steps of the config's model, without padding. The number of utterances doubles until memory does
not suffice, then is bisected to 5 %.

On a CPU each trial is a process of its own that cannot take more than --memory (Linux). On a GPU the allocator is
given that limit. --memory is of one rank, without the processes that read data.
"""

import argparse
import sys

import torch
import yaml
from tqdm import tqdm

from wenet_uio.bin.train import read_config
from wenet_uio.cli import run
from wenet_uio.dataset.corpus.passes import Passes
from wenet_uio.dataset.open import open_filtered
from wenet_uio.dataset.plan.policies import ANY_TOKENS
from wenet_uio.dataset.plan.worst_shapes import worst_shapes
from wenet_uio.prepare.sharding import parse_size
from wenet_uio.train.batch_size import Found, cpu_trial, cuda_trial, largest_batch


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_list", help="data list, or a yaml file that mixes several")
    parser.add_argument("--data_type", required=True, choices=("raw", "shard"))
    parser.add_argument(
        "--config", required=True, help="train.yaml; its bucket_duration_bins are taken where it has any"
    )
    parser.add_argument("--override_config", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--num_bins", type=int, default=10, help="buckets to make elsewhere (default: %(default)s)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--memory", type=parse_size, help="of a rank, such as 4GB; default on a GPU: all of it")
    parser.add_argument("--fraction", type=float, default=0.9, help="of it that trials may take (default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=1, help="with more than 1, DDP's buckets of gradients count too")
    parser.set_defaults(train_engine=None, dtype=None, use_amp=False, freeze_modules=None, feature_device=None)
    args = parser.parse_args()
    on_gpu = args.device == "cuda" or (args.device == "auto" and torch.cuda.is_available())
    if args.memory is None and not on_gpu:
        parser.error("--memory is needed on a CPU: what one rank may take of it, such as 4GB")
    config, tokenizer = read_config(args)
    conf = config.dataset_conf
    corpus, measure = open_filtered(conf, args.data_list, args.data_type, tokenizer)
    policy, shapes = worst_shapes(Passes(corpus).corpus_of(0), measure, conf.batch_conf, args.num_bins)
    memory = int(args.fraction * (args.memory or torch.cuda.mem_get_info()[1]))
    trial = (cuda_trial if on_gpu else cpu_trial)(config, memory, with_ddp=args.ranks > 1)
    found: list[Found | None] = [None] * len(shapes)
    start = 1
    ends = [f"up to {end / 1000:g} s" for end, _ in policy.ends] + ["longer"]
    for bucket in tqdm(reversed(range(len(shapes))), total=len(shapes), unit="bucket", disable=None):
        shape = shapes[bucket]
        if shape is None:
            continue
        found[bucket] = largest_batch(trial, shape, start)
        if found[bucket] is None:
            raise ValueError(
                f"{ends[bucket]}: not one utterance of {shape.frames} frames and {shape.tokens} tokens trains in "
                f"{memory / 1e9:.2f} GB; lower filter_conf.max_length, or the model"
            )
        start = found[bucket].utterances
        tqdm.write(
            f"{ends[bucket]}: {start} utterances of {shape.frames} frames and {shape.tokens} tokens, "
            f"{found[bucket].peak / 1e9:.2f} GB",
            file=sys.stderr,
        )
    print(as_yaml(policy, shapes, found), end="")
    return 0


def as_yaml(policy, shapes, found) -> str:
    """batch_conf with the batches that were found; a bucket without utterances has the batch of the next longer one."""
    sizes, size = [], min(each.utterances for each in found if each)
    for each in reversed(found):
        size = each.utterances if each else size
        sizes.insert(0, size)
    ends = [end / 1000 if tokens == ANY_TOKENS else [end / 1000, tokens] for end, tokens in policy.ends]
    batch_conf = {"batch_type": "bucket", "bucket_duration_bins": ends, "bucket_batch_size": sizes}
    if policy.lenient:
        batch_conf["bucket_choice"] = "lenient"
    if policy.max_tps:
        batch_conf["max_tps"] = list(policy.max_tps)
    frames = min(each.utterances * shape.frames for each, shape in zip(found, shapes, strict=True) if each)
    text = yaml.safe_dump({"batch_conf": batch_conf}, sort_keys=False, default_flow_style=None)
    return f"{text}# or, in whose batches any lengths meet: {{batch_type: dynamic, max_frames_in_batch: {frames}}}\n"


if __name__ == "__main__":
    run(main)
