"""The corpus of the benchmarks: files of noise, 1 to 16 s, 16-bit, 16 kHz; and a loader for lists
of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from wenet_uio.config import parse_config
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.formats.data_list import DataType, RawLine
from wenet_uio.dataset.loader import Loader
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

RATE = 16000
SHORTEST, LONGEST = 1, 16
"""Lengths in seconds, uniformly distributed."""
MEAN = (SHORTEST + LONGEST) / 2
TOKENIZER = Tokenizer(
    CharSplitter(), {"<blank>": 0, "<unk>": 1, "<sos/eos>": 2, "a": 3, "b": 4, "c": 5}
)
CONF = {
    "fbank_conf": {"num_mel_bins": 80},
    "batch_conf": {"batch_type": "dynamic", "max_frames_in_batch": 12000},
}


def write_audio(
    folder: Path, utterances: int, suffix: str = "wav", scale: float = 1.0
) -> list[RawLine]:
    """Write files of noise; `scale` multiplies their lengths. Equal arguments give equal audio in
    every format.
    """
    random = np.random.default_rng(0)
    noise = random.normal(0, 2000, (LONGEST + 1) * RATE)
    folder.mkdir(parents=True, exist_ok=True)
    lines = []

    for number in range(utterances):
        seconds = scale * random.uniform(SHORTEST, LONGEST)
        start = int(random.uniform(0, RATE))
        path = folder / f"{number:06d}.{suffix}"
        soundfile.write(
            path,
            noise[start : start + int(seconds * RATE)].astype(np.int16),
            RATE,
            subtype="PCM_16",
        )
        lines.append(RawLine(path.stem, str(path), "abc" * (1 + int(seconds))))

    return lines


def open_loader(
    data_list: Path, data_type: DataType, conf: dict[str, Any] | None = None, **options: Any
) -> Loader:
    """Open a training loader for a list of the corpus; `conf` overrides keys of CONF."""
    config = parse_config({"dataset_conf": {**CONF, **(conf or {})}}, "corpus.py")
    return build_loader(
        str(data_list),
        data_type,
        config,
        TOKENIZER,
        training=True,
        options=LoaderOptions(**options),
    )
