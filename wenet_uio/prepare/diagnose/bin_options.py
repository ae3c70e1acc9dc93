"""Options of estimate_duration_bins.py, and the data and config that they give.

NeMo's two scripts have options of the same meaning, which are accepted too.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any, Literal

import yaml

from wenet_uio.base.messages import warn_once
from wenet_uio.config import Config, load_config, parse_config
from wenet_uio.config.base import parse
from wenet_uio.config.mixture import MixtureConf
from wenet_uio.config.nemo import SENTENCEPIECE_MODEL
from wenet_uio.dataset.plan.duration_bins import OUTLIER

NOT_NEEDED = {
    "num_examples": "the index has the lengths of all utterances",
    "prompt_format": "the plan counts the tokens of texts alone, and a prompt adds as many tokens "
    "to each",
    "prompt": "the plan counts the tokens of texts alone, and a prompt adds as many tokens to each",
}
"""{option of NeMo that changes nothing here: because …}."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options; NeMo's spellings are the second ones."""
    parser.add_argument(
        "data_list",
        help="data list, yaml that mixes several, or manifests with weights: "
        "[[a.json,0.7],[b.json,0.3]]",
    )
    parser.add_argument(
        "--data_type",
        choices=("raw", "shard"),
        default="raw",
        help="type of the data list",
    )
    parser.add_argument("--config", help="train.yaml: its filter_conf and tokenizer are used")
    parser.add_argument(
        "--num_bins",
        "--buckets",
        "-b",
        type=int,
        default=30,
        help="bins of duration",
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
    parser.add_argument(
        "--min_duration",
        "-l",
        type=float,
        metavar="SECONDS",
        help="leave out shorter utterances (default: no limit)",
    )
    parser.add_argument(
        "--max_duration",
        "-u",
        type=float,
        metavar="SECONDS",
        help="leave out longer utterances (default: no limit)",
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


def data_of(text: str) -> str | MixtureConf:
    """Return the data that an argument names: a path, the cuts of Lhotse at a path, or the sources
    of a list of manifests.

    Raises:
        ValueError: a list of manifests has another form.
    """
    if kind := _lhotse(text):
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

    sources = [_source(manifest, text) for manifest in manifests]
    return parse(MixtureConf, {"sources": sources}, "manifests")


def _lhotse(path: str) -> Literal["cuts", "shar"] | None:
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


def _source(manifest: Any, text: str) -> dict[str, Any]:
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


def config_of(options: argparse.Namespace) -> Config:
    """Return the config: that of --config, with the tokenizers and bounds that options give.

    Raises:
        ValueError: options do not fit together.
    """
    for name, reason in NOT_NEEDED.items():
        if getattr(options, name) is not None:
            warn_once(f"--{name}: not needed here, because {reason}")

    if options.num_token_bins and not options.config and not options.tokenizer:
        raise ValueError("bins of tokens need --config with a tokenizer, or --tokenizer")

    overrides = [
        f"dataset_conf.filter_conf.{name}={getattr(options, name)}"
        for name in ("min_duration", "max_duration")
        if getattr(options, name) is not None
    ]
    config = load_config(options.config, overrides) if options.config else _defaults(options)
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


def _defaults(options: argparse.Namespace) -> Config:
    """Return a config without a file: only the bounds of the options filter, as in NeMo's scripts."""
    no_bounds = {
        "max_length": 10**9,
        "min_length": 1,
        "token_max_length": 10**9,
        "max_output_input_ratio": 10**9,
        "min_output_input_ratio": 0,
    }
    limits = {
        name: getattr(options, name)
        for name in ("min_duration", "max_duration")
        if getattr(options, name) is not None
    }
    return parse_config({"dataset_conf": {"filter_conf": {**no_bounds, **limits}}}, "defaults")


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
