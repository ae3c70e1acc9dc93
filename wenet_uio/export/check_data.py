"""The utterances that an export is checked with: those of --check_data, of the validation set of the
run, or noise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, get_args

import numpy as np
import torch

from wenet_uio.audio.decoders import INT16_SCALE
from wenet_uio.audio.encoding import encode_audio
from wenet_uio.base.messages import note
from wenet_uio.base.run_files import read_starts
from wenet_uio.config import Config
from wenet_uio.config.mixture import DATA_OF_CONFIG, MixtureConf
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.formats.data_list import DataType
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.export.check import utterances
from wenet_uio.text.labels import Tokenizer

NOISES = 20
"""Utterances of noise."""
SECONDS = 2.0
"""Their length."""
LOUDNESS = 0.1
"""Their root mean square; 1 is full scale."""


class CheckData(NamedTuple):
    """A data list with audio to check an export with."""

    data_list: str | MixtureConf
    data_type: DataType

    def examples(self, config: Config, tokenizer: Tokenizer) -> Iterator[tuple[str, torch.Tensor]]:
        """Return the key and features (1, T, F) of each utterance.

        Raises:
            ValueError, OSError: the list cannot be read.
        """
        options = LoaderOptions(rank=0, world_size=1)
        return utterances(
            build_loader(
                self.data_list, self.data_type, config, tokenizer, training=False, options=options
            )
        )


def validation_set_of(folder: Path, config: Config, tokenizer: Tokenizer) -> CheckData | None:
    """Return the validation set that the newest start of a run recorded, and say that it is taken.

    None, and a note with the reason, if it has no utterance that can be read: the folder may have
    come from another machine.
    """
    starts = read_starts(folder)
    record = starts[-1].get("cv_data") if starts else None
    if record is None:
        return _no_data(f"{folder} does not name the validation set of a run")

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
        return _no_data(f"{name}: no utterance can be read")

    return _no_data("; ".join(reasons))


def _no_data(reason: str) -> None:
    """Say that noise is taken."""
    note(f"the export is checked with noise, not with speech: give --check_data LIST ({reason})")


def noise(config: Config, tokenizer: Tokenizer) -> Iterator[tuple[str, torch.Tensor]]:
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
