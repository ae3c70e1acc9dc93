"""A small model that streams, trained in seconds on digits of one speaker, and a recording that it
recognises.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import soundfile
import torch
import yaml
from torch.nn.utils.rnn import pad_sequence

from tests.addons.listen.conftest import CONFIG
from wenet_uio.config import load_config
from wenet_uio.config.dataset import FbankConf
from wenet_uio.dataset.chain.fbank import fbank
from wenet_uio.dataset.chain.waveform import resample
from wenet_uio.models import build_model

RATE = 16000
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SENTENCE = (3, 1, 4, 2)
"""Digits of the recording."""
SIZES = {
    "output_size": 64,
    "linear_units": 128,
    "num_blocks": 2,
    "cnn_module_kernel": 7,
    "dropout_rate": 0.0,
}
UTTERANCES = 6
MARGIN = 0.5
"""Seconds of noise at the start and at the end."""
STEPS = 120
LEARNING_RATE = 2e-3


def train_model(recordings: Path, folder: Path) -> Path:
    """Write train.yaml, units.txt, global_cmvn, final.pt, and digits.wav, which was part of the
    training.

    Args:
        recordings: folder `recordings` of the corpus fsdd.
        folder: made here.
    """
    model = write_untrained(folder)
    random = np.random.default_rng(2)
    texts = [SENTENCE, *(tuple(random.permutation(10)[:4]) for _ in range(UTTERANCES - 1))]
    spoken = [speech(recordings, digits, random) for digits in texts]
    soundfile.write(folder / "digits.wav", spoken[0] / 32768, RATE)
    fit(model, spoken, texts, STEPS)
    torch.save(model.state_dict(), folder / "final.pt")
    return folder


def write_untrained(folder: Path) -> torch.nn.Module:
    """Write train.yaml, units.txt and global_cmvn of a model that hears digits; return the model
    with random weights.
    """
    folder.mkdir(parents=True)
    units = ("<blank>", "<unk>", *WORDS, "<sos/eos>")
    (folder / "units.txt").write_text(
        "".join(f"{unit} {place}\n" for place, unit in enumerate(units))
    )
    stats = {"mean_stat": [120.0] * 23, "var_stat": [1600.0] * 23, "frame_num": 10}
    (folder / "global_cmvn").write_text(json.dumps(stats))
    config = CONFIG | {
        "encoder_conf": CONFIG["encoder_conf"] | SIZES | {"positional_dropout_rate": 0.0},
        "model_conf": {"ctc_weight": 0.9},
        "decoder": "transformer",
        "decoder_conf": {"attention_heads": 2, "linear_units": 64, "num_blocks": 1},
        "tokenizer_conf": {"symbol_table_path": "units.txt", "split_with_space": True},
    }
    (folder / "train.yaml").write_text(yaml.safe_dump(config))
    torch.manual_seed(1)
    return build_model(load_config(folder / "train.yaml"))


def speech(recordings: Path, digits: tuple[int, ...], random: np.random.Generator) -> torch.Tensor:
    """Digits with faint noise before, between and after them, on the scale of int16."""
    parts = [_noise(MARGIN, random)]
    for digit in digits:
        digit_samples = torch.from_numpy(voice(recordings, digit, random) * 32768)
        parts += [digit_samples, _noise(random.uniform(0.05, 0.2), random)]
    return torch.cat([*parts, _noise(MARGIN, random)])


def voice(recordings: Path, digit: int, random: np.random.Generator) -> np.ndarray:
    """A digit, from -1 to 1."""
    path = recordings / f"{digit}_theo_{random.integers(3)}.wav"
    samples, rate = soundfile.read(path, dtype="float32")
    return resample(torch.from_numpy(samples), rate, RATE).numpy()


def _noise(seconds: float, random: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(random.normal(0, 30, int(seconds * RATE)).astype(np.float32))


def fit(
    model: torch.nn.Module,
    spoken: list[torch.Tensor],
    texts: list[tuple[int, ...]],
    steps: int,
    margin: float = MARGIN,
) -> None:
    """Train a model on waveforms, on the scale of int16, and their digits; up to `margin` seconds are
    cut from each end.
    """
    feats = [fbank(waveform, RATE, FbankConf(num_mel_bins=23)) for waveform in spoken]
    target = torch.tensor(texts) + 2  # blank and unk come first
    target_lengths = torch.full((len(texts),), target.size(1))
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, total_iters=30)
    most = max(1, int(margin * 100))  # frames of the margins
    for _ in range(steps):
        optimizer.zero_grad()
        # Other margins at each step: the model learns the digits, not their places.
        cut = [
            utterance[int(torch.randint(most, ())) : len(utterance) - int(torch.randint(most, ()))]
            for utterance in feats
        ]
        lengths = torch.tensor([len(utterance) for utterance in cut])
        model(pad_sequence(cut, batch_first=True), lengths, target, target_lengths)[
            "loss"
        ].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        warmup.step()
