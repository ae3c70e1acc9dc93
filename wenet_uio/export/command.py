"""Common part of the commands export_jit.py and export_onnx.py: options, the trained model, the
check of an export.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from wenet_uio.addons.runtimes.onnx_graphs import Chunks
from wenet_uio.base.files import digest_of
from wenet_uio.config import Config
from wenet_uio.config.command_line import add_trust_code
from wenet_uio.export.check import INT8, Limits, Reference, recognise_all
from wenet_uio.export.check_data import CheckData, noise, validation_set_of
from wenet_uio.models import build_trained
from wenet_uio.models.asr_model import ASRModel, with_attention
from wenet_uio.models.chunks import fitting_chunk
from wenet_uio.models.speech_model import SpeechModel
from wenet_uio.search.recogniser import load_model_config, operators_of_decoding
from wenet_uio.search.types import DecodeOptions
from wenet_uio.text.labels import Tokenizer
from wenet_uio.text.tokenizer import build_tokenizer

DEFAULT_CHUNK = 16
"""Encoder frames."""
LEFT_CHUNKS = 4
"""Chunks of left context of a check in chunks."""


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


def streaming_chunks(
    model: ASRModel, size: int | None, left: int, check: Callable[[ASRModel, Chunks], None]
) -> tuple[Chunks | None, str]:
    """Return chunks of `size` encoder frames; without a size, chunks that fit the model, or None
    and why it cannot stream.

    Args:
        left: chunks seen before the current chunk; -1: all.
        check: raises a ValueError for chunks that the model or its runtimes do not support.

    Raises:
        ValueError: of `check`, for a given size.
    """
    chunks = Chunks(size or fitting_chunk(model.encoder.traits, DEFAULT_CHUNK), left)
    try:
        check(model, chunks)
    except ValueError as error:
        if size is None:
            return None, str(error)
        raise

    return chunks, ""


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

    def references(self, options: DecodeOptions) -> list[Reference]:
        """Return the output of the checkpoint for the utterances of the check."""
        return recognise_all(self.hybrid, self.examples(), self.arguments.num_check, options)

    def examples(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Return the key and features (1, T, F) of the utterances of the check."""
        if self.check_data is None:
            return noise(self.config, self.tokenizer)
        return self.check_data.examples(self.config, self.tokenizer)


def check_exportable(model: SpeechModel) -> None:
    """Raise a ValueError for a model that has no export for WeNet's runtime."""
    check_family(model)
    if model.encoder.traits.export_obstacle:
        raise ValueError(model.encoder.traits.export_obstacle)


def check_family(model: SpeechModel) -> None:
    """Raise a ValueError for a family that WeNet's runtime does not run."""
    if model.family.wenet_obstacle:
        message = model.family.wenet_obstacle
        if model.family.sherpa:
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
    if named := operators_of_decoding(config):
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
        check_data = validation_set_of(Path(arguments.config).parent, config, tokenizer)

    return Trained(config, model, tokenizer, arguments, check_data)
