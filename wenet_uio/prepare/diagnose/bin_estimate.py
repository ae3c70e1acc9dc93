"""Estimate bins of duration, and of tokens within them, for `batch_type: bucket`.

Everything comes from the index of a corpus.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from wenet_uio.base.messages import warn_once
from wenet_uio.config import Config, load_config, parse_config
from wenet_uio.config.base import parse
from wenet_uio.config.mixture import MixtureConf
from wenet_uio.config.nemo import SENTENCEPIECE_MODEL
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.index import TEXT_ONLY
from wenet_uio.dataset.corpus.mixture import Passes
from wenet_uio.dataset.formats.data_list import DataType
from wenet_uio.dataset.open import open_filtered, read_source
from wenet_uio.dataset.plan.duration_bins import OUTLIER, duration_bins, token_bins
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.text.tokenizer import build_tokenizer

NOT_NEEDED = {
    "num_examples": "the index has the lengths of all utterances",
    "prompt_format": "the plan counts the tokens of texts alone, and a prompt adds as many tokens "
    "to each",
    "prompt": "the plan counts the tokens of texts alone, and a prompt adds as many tokens to each",
}
"""{option of NeMo that changes nothing here: because …}."""
NO_LIMITS = {
    "max_length": 10**9,
    "min_length": 1,
    "token_max_length": 10**9,
    "max_output_input_ratio": 10**9,
    "min_output_input_ratio": 0,
}
"""filter_conf that leaves nothing out; its defaults have limits."""


@dataclass(frozen=True)
class BinEstimate:
    """Bins for `batch_conf`, and the utterances they were estimated from."""

    ends: list[float] | list[list[float]]
    """Upper ends of the bins, inclusive: seconds, or [seconds, tokens]; seconds are rounded up to
    ms."""
    max_tps: list[float]
    """Largest tokens per second of each bin of duration, rounded up; empty without bins of
    tokens."""
    utterances: int
    outliers: int
    """Utterances left out because of their tokens per second."""
    filtered: Counter[str] = field(default_factory=Counter)
    """Utterances that the filters leave out, by reason."""

    def batch_conf(self) -> dict[str, Any]:
        """Return the bins as keys of `batch_conf`, for a yaml file."""
        conf: dict[str, Any] = {"batch_type": "bucket", "bucket_duration_bins": self.ends}
        if self.max_tps:
            conf["max_tps"] = self.max_tps
        return conf


def estimate_bins(
    data_list: str | MixtureConf,
    data_type: DataType,
    config: Config,
    num_bins: int,
    num_token_bins: int | None = None,
    outlier: float = OUTLIER,
) -> BinEstimate:
    """Estimate bins of equal amounts of audio over the utterances that the filters keep.

    Args:
        num_bins: bins of duration.
        num_token_bins: bins of tokens within each bin of duration; None: no bins of tokens.
        outlier: see `token_bins`.

    Raises:
        ListError: the list cannot be used.
        ValueError: there is no utterance with audio.
    """
    tokenizer = build_tokenizer(config) if num_token_bins else None
    source = read_source(data_list, data_type)
    opened, measure = open_filtered(config.dataset_conf, source, tokenizer)
    seconds, tokens, filtered = _kept_lengths(Passes(opened).corpus_of(0), measure)
    if not len(seconds):
        reasons = ", ".join(f"{count} by {reason}" for reason, count in filtered.items())
        raise ValueError(
            f"no utterance with audio is left; the filters leave out: {reasons or 'none'}"
        )

    # Rounded up to the milliseconds that the plan counts. So the longest utterance fits into its
    # bin, and no two bins have one end.
    seconds = np.ceil(np.round(1000 * seconds, 6)) / 1000
    if not num_token_bins:
        ends = [round(end, 3) for end in duration_bins(seconds, num_bins)]
        return BinEstimate(ends, [], len(seconds), outliers=0, filtered=filtered)

    bins = token_bins(seconds, tokens, num_bins, num_token_bins, outlier)
    ends = [[round(end, 3), most] for end, most in bins.ends]
    max_tps = [math.ceil(100 * limit) / 100 for limit in bins.max_tps]
    return BinEstimate(ends, max_tps, len(seconds), bins.outliers, filtered)


def _kept_lengths(corpus: Corpus, measure: Measure) -> tuple[np.ndarray, np.ndarray, Counter[str]]:
    """Return seconds and tokens of the utterances with audio that are kept, and why others are not.

    Both are (utterances,). Without a tokenizer, tokens are characters.
    """
    seconds, tokens = [], []
    filtered: Counter[str] = Counter()
    for shard in range(corpus.num_shards):
        rows = corpus.rows(shard)
        kept, reasons = measure.keep(rows)
        filtered += reasons
        kept = kept & (rows.sample_rate != TEXT_ONLY)
        seconds.append(rows.seconds[kept])
        tokens.append(rows.text_length[kept])

    return np.concatenate(seconds), np.concatenate(tokens), filtered


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options; NeMo's spellings are the second ones."""
    parser.add_argument(
        "data_list",
        help="data list, yaml that mixes several, or manifests with weights: "
        "[[a.json,0.7],[b.json,0.3]]",
    )
    parser.add_argument(
        "--data_type", choices=("raw", "shard"), default="raw", help="type of the data list"
    )
    parser.add_argument("--config", help="train.yaml: its filter_conf and tokenizer are used")
    parser.add_argument(
        "--num_bins", "--buckets", "-b", type=int, default=30, help="bins of duration"
    )
    parser.add_argument(
        "--num_token_bins",
        "--sub-buckets",
        "-s",
        type=int,
        help="bins of tokens within each bin of duration",
    )
    parser.add_argument(
        "--tokenizer",
        "-t",
        nargs="+",
        metavar="MODEL",
        help="sentencepiece models, instead of the config's tokenizer",
    )
    parser.add_argument(
        "--langs", "-a", nargs="+", metavar="LANG", help="language of each of several models"
    )
    parser.add_argument(
        "--lang_field", "--lang-field", help="field with the language of a text (default: lang)"
    )
    for name, short, left_out in (("min", "-l", "shorter"), ("max", "-u", "longer")):
        parser.add_argument(
            f"--{name}_duration",
            short,
            type=float,
            metavar="SECONDS",
            help=f"leave out {left_out} utterances (default: no limit)",
        )

    parser.add_argument(
        "--token_outlier_threshold",
        "--token-outlier-threshold",
        type=float,
        default=OUTLIER,
        help="with bins of tokens, leave out utterances whose tokens per second differ from the mean "
        "of their bin by more standard deviations",
    )
    for name, short in (("num_examples", "-n"), ("prompt_format", "-f"), ("prompt", "-p")):
        parser.add_argument(
            f"--{name}", f"--{name.replace('_', '-')}", short, help="of NeMo; changes nothing here"
        )


def parse_data(text: str) -> str | MixtureConf:
    """Return the data that an argument names: a path, the cuts of Lhotse at a path, or the sources
    of a list of manifests.

    Raises:
        ValueError: a list of manifests has another form.
    """
    kind = _lhotse_kind(text)
    if kind is not None:
        source = {"type": f"lhotse_{kind}", f"{kind}_path": text}
        return parse(MixtureConf, {"sources": [source]}, text)
    if not text.startswith("[") or Path(text).exists():
        return text

    try:
        manifests = yaml.safe_load(text)
    except yaml.YAMLError:
        manifests = None

    if not isinstance(manifests, list) or not manifests:
        raise ValueError(
            f"{text}: expected manifests with weights, such as [[a.json,0.7],[b.json,0.3]]"
        )

    sources = [_nemo_source(manifest, text) for manifest in manifests]
    return parse(MixtureConf, {"sources": sources}, "manifests")


def _lhotse_kind(path: str) -> Literal["cuts", "shar"] | None:
    """Return what Lhotse has at a path: a file of cuts, a folder of Shar, or nothing."""
    if Path(path).is_dir():
        return "shar" if any(Path(path).glob("cuts.*.jsonl*")) else None
    if not path.endswith((".jsonl", ".jsonl.gz")) or not Path(path).is_file():
        return None

    opened = gzip.open if path.endswith(".gz") else open
    with opened(path, "rb") as file:
        line = file.readline()
    try:
        first = json.loads(line)
    except ValueError:
        return None
    return "cuts" if isinstance(first, dict) and str(first.get("type")).endswith("Cut") else None


def _nemo_source(manifest: Any, text: str) -> dict[str, Any]:
    """Return a manifest, or a list of a manifest and its weight, as a source of a mixture."""
    match manifest:
        case str(path) | [str(path)]:
            return {"type": "nemo", "manifest_filepath": path}
        case [str(path), int(weight) | float(weight)]:
            return {"type": "nemo", "manifest_filepath": path, "weight": weight}
        case _:
            raise ValueError(
                f"{text}: expected a manifest, or a manifest and its weight, found {manifest!r}"
            )


def read_config(options: argparse.Namespace) -> Config:
    """Return the config: that of --config, with the tokenizers and bounds that options give.

    Raises:
        ValueError: options do not fit together.
    """
    for name, reason in NOT_NEEDED.items():
        if getattr(options, name) is not None:
            warn_once(f"--{name}: not needed here, because {reason}")

    if options.num_token_bins and not options.config and not options.tokenizer:
        raise ValueError("bins of tokens need --config with a tokenizer, or --tokenizer")

    limits = {"min_duration": options.min_duration, "max_duration": options.max_duration}
    limits = {name: seconds for name, seconds in limits.items() if seconds is not None}
    if options.config:
        overrides = [f"dataset_conf.filter_conf.{name}={limits[name]}" for name in limits]
        config = load_config(options.config, overrides, trust_code=True)
    else:
        # As in NeMo's scripts, only the limits of the options filter.
        filter_conf = NO_LIMITS | limits
        config = parse_config({"dataset_conf": {"filter_conf": filter_conf}}, "defaults")

    if options.tokenizer:
        tokenizer_config = parse_config(_tokenizer_keys(options), "--tokenizer")
        update = {
            "tokenizer": tokenizer_config.tokenizer,
            "tokenizer_conf": tokenizer_config.tokenizer_conf,
            "output_dim": None,
            "vocab_size": None,
        }
        return config.model_copy(update=update)

    if options.lang_field:
        conf = config.tokenizer_conf.model_copy(update={"lang_field": options.lang_field})
        return config.model_copy(update={"tokenizer_conf": conf})

    return config


def _tokenizer_keys(options: argparse.Namespace) -> dict[str, Any]:
    """Return `tokenizer` and `tokenizer_conf` of --tokenizer and --langs."""
    models = [
        str(Path(path, SENTENCEPIECE_MODEL)) if Path(path).is_dir() else path
        for path in options.tokenizer
    ]
    if options.langs is None:
        if len(models) > 1:
            raise ValueError(f"--tokenizer names {len(models)} models: give as many --langs")
        return {"tokenizer": "sentencepiece", "tokenizer_conf": {"model_path": models[0]}}

    if len(options.langs) != len(models):
        raise ValueError(
            f"--tokenizer names {len(models)} models, --langs {len(options.langs)} languages"
        )

    languages = {
        language: {"tokenizer": "sentencepiece", "model_path": model}
        for language, model in zip(options.langs, models, strict=True)
    }
    return {
        "tokenizer": "aggregate",
        "tokenizer_conf": {"languages": languages, "lang_field": options.lang_field or "lang"},
    }
