"""A model and speech for serve.py: random weights, recordings joined, and what a stream alone
finds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from serve_clients import PACKET, RATE, Talk, Told

from wenet_uio.addons.listen.live import Failed, Final, advance
from wenet_uio.addons.listen.load import load_model
from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.read import read_audio
from wenet_uio.config import load_config
from wenet_uio.config.dataset import FbankConf
from wenet_uio.dataset.chain.fbank import fbank
from wenet_uio.dataset.chain.waveform import resample
from wenet_uio.models import build_model

BINS = 80
UNITS = 500
SPOKEN = 0.15
"""Share of the encoder frames whose best unit is not blank, as in a trained model of characters."""
PAUSES = 0.1, 1.8
"""Shortest and longest pause between two recordings, in seconds; more than 1 s ends an
utterance."""
SUFFIXES = (".wav", ".flac", ".mp3", ".ogg")
MODE = "attention_rescoring"


def join_recordings(folder: Path, seconds: float) -> np.ndarray:
    """Join the recordings of a folder in random order, with pauses of faint noise, to int16 samples
    at 16 kHz.

    Raises:
        ValueError: the folder has no recording that can be read.
    """
    draw = np.random.default_rng(0)
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    parts: list[np.ndarray] = []
    length = 0
    while length < seconds * RATE:
        before = length
        for place in draw.permutation(len(files))[:1000]:
            try:
                waveform, rate = read_audio(str(files[place]))
            except AudioError:
                continue

            if rate != RATE:
                waveform = resample(torch.from_numpy(waveform), rate, RATE).numpy()

            parts += [_noise(draw, draw.uniform(*PAUSES)), waveform]
            length += len(parts[-1]) + len(parts[-2])
            if length >= seconds * RATE:
                break

        if length == before:
            raise ValueError(f"{folder}: no recording ({', '.join(SUFFIXES)}) can be read")

    return np.concatenate(parts)[: int(seconds * RATE)].round().clip(-32768, 32767).astype(np.int16)


def _noise(draw: np.random.Generator, seconds: float) -> np.ndarray:
    return draw.normal(0, 10, int(seconds * RATE)).astype(np.float32)


def write_model(folder: Path, speech: np.ndarray, blocks: int, width: int) -> Path:
    """Write a conformer with a transformer decoder and random weights, in the layout of a run.

    Its CMVN is that of the speech, and the bias of its blank is set so that a share SPOKEN of the
    frames has a unit.
    """
    folder.mkdir(parents=True)
    units = ["<blank>", "<unk>", *(chr(0x4E00 + place) for place in range(UNITS - 3)), "<sos/eos>"]
    (folder / "units.txt").write_text(
        "".join(f"{unit} {place}\n" for place, unit in enumerate(units))
    )
    feats = fbank(torch.from_numpy(speech[: 20 * RATE]).float(), RATE, FbankConf(num_mel_bins=BINS))
    stats = {
        "mean_stat": feats.sum(0).tolist(),
        "var_stat": feats.square().sum(0).tolist(),
        "frame_num": len(feats),
    }
    (folder / "global_cmvn").write_text(json.dumps(stats))
    (folder / "train.yaml").write_text(yaml.safe_dump(_config(blocks, width)))
    torch.manual_seed(0)
    model = build_model(load_config(folder / "train.yaml")).eval()

    with torch.inference_mode():
        encoded, _ = model.encoder(feats.unsqueeze(0), torch.tensor([len(feats)]), 16, -1)
        log_probs = model.ctc_log_probs(encoded)[0]
        lead = log_probs[:, 1:].amax(1) - log_probs[:, 0]
        model.ctc.ctc_lo.bias[0] += lead.quantile(1 - SPOKEN)

    torch.save(model.state_dict(), folder / "final.pt")
    return folder


def _config(blocks: int, width: int) -> dict[str, Any]:
    size = {"attention_heads": 4, "linear_units": 4 * width}
    encoder = {
        "output_size": width,
        "num_blocks": blocks,
        "cnn_module_kernel": 15,
        "cnn_module_norm": "layer_norm",
        "causal": True,
        "use_dynamic_chunk": True,
    }
    return {
        "encoder": "conformer",
        "encoder_conf": {**size, **encoder},
        "decoder": "transformer",
        "decoder_conf": {**size, "num_blocks": min(blocks, 6)},
        "cmvn": "global_cmvn",
        "cmvn_conf": {"cmvn_file": "global_cmvn"},
        "model_conf": {"ctc_weight": 0.3},
        "tokenizer_conf": {"symbol_table_path": "units.txt"},
        "dataset_conf": {"fbank_conf": {"num_mel_bins": BINS}},
    }


def talks_of(model: str, speech: np.ndarray, seconds: float, count: int) -> list[Talk]:
    """Cut `count` parts of the speech, and find what a stream alone tells after each packet."""
    recogniser = load_model(model, device="cpu")
    samples = int(seconds * RATE)
    starts = np.linspace(0, len(speech) - samples, count).astype(int)
    talks = []

    for start in starts:
        part = speech[start : start + samples]
        stream, told = recogniser.live(sample_rate=RATE, mode=MODE), []
        packets = -(-len(part) // PACKET)
        for packet in range(packets):
            stream.push(part[packet * PACKET : (packet + 1) * PACKET])
            if packet == packets - 1:
                stream.end()
            while stream.ready:
                advance([stream])
                told += [_told(packet, event) for event in stream.take()]

        talks.append(Talk(part, [told_text for told_text in told if told_text.text]))

    return talks


def _told(packet: int, event: Any) -> Told:
    if isinstance(event, Failed):
        raise event.error
    return Told(packet, isinstance(event, Final), event.texts[0])
