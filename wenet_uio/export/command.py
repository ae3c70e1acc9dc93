"""Common part of the commands export_jit.py and export_onnx.py: options, the trained model, and the
utterances that an export is checked with.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, get_args

import numpy as np
import torch

from wenet_uio.audio.decoders import INT16_SCALE
from wenet_uio.audio.encoding import encode_audio
from wenet_uio.base.files import digest_of
from wenet_uio.base.messages import note
from wenet_uio.base.run_files import read_starts
from wenet_uio.config import Config
from wenet_uio.config.command_line import add_trust_code
from wenet_uio.config.mixture import DATA_OF_CONFIG, MixtureConf
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.formats.data_list import DataType
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.export.check import INT8, Agreement, Limits, Reference, judge, recognise_all
from wenet_uio.models import build_trained
from wenet_uio.models.asr_model import ASRModel, with_attention
from wenet_uio.models.speech_model import SpeechModel
from wenet_uio.search.recogniser import decoding_operators, load_model_config
from wenet_uio.search.types import DecodeOptions
from wenet_uio.text.labels import Tokenizer
from wenet_uio.text.tokenizer import build_tokenizer

NOISES = 20
"""Utterances of noise."""
SECONDS = 2.0
"""Their length."""
LOUDNESS = 0.1
"""Their root mean square; 1 is full scale."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add --config, --checkpoint, --trust_code and the options of the check."""
    parser.add_argument("--config", required=True, help="train.yaml of the run")
    parser.add_argument("--checkpoint", required=True, help="weights, such as final.pt or avg.pt")
    add_trust_code(parser)
    group = parser.add_argument_group(
        "check", "an export is written only if it recognises real audio as the checkpoint does"
    )
    group.add_argument(
        "--check_data",
        metavar="LIST",
        help="data list of the audio, such as data/test/data.list (default: the validation set of "
        "the run, or noise if that cannot be read)",
    )
    group.add_argument(
        "--data_type",
        choices=("raw", "shard"),
        default="raw",
        help="type of --check_data",
    )
    group.add_argument("--num_check", type=int, default=20, help="number of utterances")
    group.add_argument(
        "--tolerance",
        type=float,
        default=Limits.log_prob,
        help="float models: largest accepted difference of a log-probability; no token may differ",
    )
    group.add_argument(
        "--int8_tolerance",
        type=float,
        default=INT8.token_errors,
        help="int8 models: largest accepted share of tokens that differ, in %%; any "
        f"share is accepted if no log-probability differs by more than {INT8.tie:g}",
    )


class CheckData(NamedTuple):
    """A data list with audio to check an export with."""

    data_list: str | MixtureConf
    data_type: DataType

    def examples(self, config: Config, tokenizer: Tokenizer) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the key and features (1, T, F), without padding, of each utterance.

        Raises:
            ValueError, OSError: the list cannot be read.
        """
        options = LoaderOptions(rank=0, world_size=1)
        for batch in build_loader(
            self.data_list, self.data_type, config, tokenizer, training=False, options=options
        ):
            lengths = batch.feats_lengths.tolist()
            for key, feats, length in zip(batch.keys, batch.feats, lengths, strict=True):
                yield key, feats[:length].unsqueeze(0)


@dataclass(frozen=True)
class Trained:
    """The model to export, and the options of the check."""

    config: Config
    model: SpeechModel
    tokenizer: Tokenizer
    arguments: argparse.Namespace
    check_data: CheckData | None
    """None: noise."""

    @property
    def hybrid(self) -> ASRModel:
        """The model with its attention decoder, which WeNet's runtime needs.

        Raises:
            ValueError: it has none.
        """
        return with_attention(self.model)

    @cached_property
    def weights_id(self) -> str:
        """Identifies the weights: a digest of the checkpoint."""
        return digest_of(self.arguments.checkpoint)[:16]

    def limits(self, int8: bool) -> Limits:
        """Return accepted differences between an export and the checkpoint."""
        if int8:
            # A trained model finds few tokens in noise, and one of them is a large share.
            errors = self.arguments.int8_tolerance if self.check_data else math.inf
            return replace(INT8, token_errors=errors)
        return Limits(self.arguments.tolerance)

    def accept(self, file: str, agreement: Agreement, *, int8: bool) -> None:
        """Print how far an exported file agrees with the checkpoint.

        Raises:
            ValueError: the differences exceed the limits.
        """
        print(judge(file, agreement, self.limits(int8), self.tokenizer.detokenize))

    def references(self, options: DecodeOptions) -> list[Reference]:
        """Return the output of the checkpoint for the utterances of the check."""
        return recognise_all(self.hybrid, self.examples(), self.arguments.num_check, options)

    def examples(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Return the key and features (1, T, F) of the utterances of the check."""
        if self.check_data is None:
            return noise_examples(self.config, self.tokenizer)
        return self.check_data.examples(self.config, self.tokenizer)


def check_exportable(model: SpeechModel) -> None:
    """Raise a ValueError for a model that has no export for WeNet's runtime."""
    check_family(model)
    if model.encoder.traits.export_obstacle:
        raise ValueError(model.encoder.traits.export_obstacle)


def check_family(model: SpeechModel) -> None:
    """Raise a ValueError for a family that WeNet's runtime does not run."""
    if model.family.exchange.wenet_obstacle:
        message = model.family.exchange.wenet_obstacle
        if model.family.exchange.sherpa:
            message += "; export it by export_onnx.py (in a recipe --onnx true) for sherpa-onnx"
        raise ValueError(message)


def load_trained(arguments: argparse.Namespace) -> Trained:
    """Load config, weights and tokenizer that the arguments name; warn about operators that no
    export contains.

    Raises:
        ValueError: an argument or the config is invalid, or the weights are those of another model.
        OSError: a file cannot be read.
    """
    if arguments.num_check < 1:
        raise ValueError(f"--num_check: expected 1 or more, found {arguments.num_check}")

    config = load_model_config(arguments.config, trust_code=arguments.trust_code)
    if named := decoding_operators(config):
        print(
            f"warning: exported models have no operators; the runtime must do the same: {named}",
            file=sys.stderr,
        )

    model = build_trained(config, arguments.checkpoint).eval()
    if model.skips_blanks:
        print(
            "warning: the decoder of a runtime sees frames of blanks too: rescoring gives other "
            "scores",
            file=sys.stderr,
        )
        model.skips_blanks = False

    tokenizer = build_tokenizer(config)
    if arguments.check_data is not None:
        check_data = CheckData(arguments.check_data, arguments.data_type)
    else:
        check_data = recorded_validation_set(Path(arguments.config).parent, config, tokenizer)

    return Trained(config, model, tokenizer, arguments, check_data)


def recorded_validation_set(folder: Path, config: Config, tokenizer: Tokenizer) -> CheckData | None:
    """Return the validation set that the newest start of a run recorded, and say that it is taken.

    None, and a note with the reason, if it has no utterance that can be read: the folder may have
    come from another machine.
    """
    starts = read_starts(folder)
    record = starts[-1].get("cv_data") if starts else None
    if record is None:
        return _note_noise(f"{folder} does not name the validation set of a run")

    name = record["list"]
    in_config = config.cv_data if name == DATA_OF_CONFIG else None
    reasons = []
    for data_type in get_args(DataType):
        data = CheckData(in_config or name, data_type)
        try:
            is_readable = next(data.examples(config, tokenizer), None) is not None
        except (ValueError, OSError) as error:
            reasons.append(f"as {data_type}: {error}")
            continue

        if is_readable:
            note(f"the export is checked with {name}, the validation set of the run")
            return data
        return _note_noise(f"{name}: no utterance can be read")

    return _note_noise("; ".join(reasons))


def _note_noise(reason: str) -> None:
    """Say that noise is taken."""
    note(f"the export is checked with noise, not with speech: give --check_data LIST ({reason})")


def noise_examples(config: Config, tokenizer: Tokenizer) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield key and features (1, T, F) of noises, made as those of recordings."""
    rate = config.dataset_conf.resample_conf.resample_rate
    random = np.random.default_rng(0)
    with TemporaryDirectory() as folder:
        lines = []
        for number in range(NOISES):
            samples = LOUDNESS * INT16_SCALE * random.standard_normal((int(SECONDS * rate), 1))
            path = Path(folder, f"{number}.wav")
            path.write_bytes(encode_audio(samples, rate, "wav"))
            lines.append(json.dumps({"key": f"noise_{number}", "wav": str(path), "txt": ""}))

        data_list = Path(folder, "data.list")
        data_list.write_text("\n".join(lines) + "\n", encoding="utf-8")
        yield from CheckData(str(data_list), "raw").examples(config, tokenizer)
