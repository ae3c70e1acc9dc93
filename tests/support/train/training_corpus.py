"""A corpus of tones and a config, small enough to train on in seconds."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import yaml

RATE = 16000
CONFIG = {
    "encoder": "conformer",
    "encoder_conf": {
        "output_size": 16,
        "attention_heads": 2,
        "linear_units": 32,
        "num_blocks": 1,
        "cnn_module_kernel": 7,
        "cnn_module_norm": "layer_norm",
    },
    "decoder": "transformer",
    "decoder_conf": {"attention_heads": 2, "linear_units": 32, "num_blocks": 1},
    "tokenizer": "char",
    "tokenizer_conf": {"symbol_table_path": "units.txt"},
    "dataset_conf": {
        "fbank_conf": {"num_mel_bins": 23},
        "batch_conf": {"batch_type": "static", "batch_size": 4},
    },
    "scheduler_conf": {"warmup_steps": 20},
    "max_epoch": 2,
    "save_interval": 2,
    "observe_interval": 0,  # pictures and report take longer than the training
    "report": False,
}


def write_corpus(folder: Path, **keys: Any) -> Path:
    """Write train.list (22 utterances), cv.list (5), units.txt and train.yaml; `keys` change the
    yaml.
    """
    _write_list(folder, "train", 22)
    _write_list(folder, "cv", 5)
    units = ["<blank>", "<unk>", "a", "b", "c", "<sos/eos>"]
    (folder / "units.txt").write_text(
        "".join(f"{unit} {number}\n" for number, unit in enumerate(units))
    )
    (folder / "train.yaml").write_text(yaml.safe_dump({**CONFIG, **keys}))
    return folder


def _write_list(folder: Path, part: str, utterances: int) -> None:
    """Write sine waves of 0.5 to 0.8 s; the text is the pitch."""
    lines = []
    for number in range(utterances):
        pitch = number % 3
        path = folder / f"{part}{number}.wav"
        write_tone(path, pitch, 0.5 + 0.05 * (number % 7))
        lines.append(json.dumps({"key": path.stem, "wav": str(path), "txt": "abc"[pitch] * 2}))
    (folder / f"{part}.list").write_text("\n".join(lines) + "\n")


def write_tone(path: Path, pitch: int, seconds: float) -> None:
    """Write a sine wave; a pitch is 400 Hz above the one before, and 0 is 300 Hz."""
    times = np.arange(int(seconds * RATE)) / RATE
    samples = 8000 * np.sin(2 * np.pi * (300 + 400 * pitch) * times)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.astype("<i2").tobytes())
