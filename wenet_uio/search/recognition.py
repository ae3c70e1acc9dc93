"""Decoding of a test set: batches in, a text file for each mode out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from tqdm import tqdm

from wenet_uio.dataset.types import Batch, Skipped
from wenet_uio.files import written_aside
from wenet_uio.models import ASRModel
from wenet_uio.search.decode import decode
from wenet_uio.search.types import DecodeOptions
from wenet_uio.text.tokenizer import Tokenizer


@dataclass
class Recognition:
    """What was recognised of a test set."""

    texts: dict[str, dict[str, str]] = field(default_factory=dict)
    """{mode: {key: text}}."""
    skipped: list[Skipped] = field(default_factory=list)
    """Utterances that could not be read."""
    seconds: float = 0.0
    """Audio decoded."""


def recognize(
    model: ASRModel,
    batches: Iterable[Batch],
    tokenizer: Tokenizer,
    modes: Sequence[str],
    options: DecodeOptions,
    *,
    device: torch.device,
    utterances: int | None = None,
) -> Recognition:
    """Decode every batch in every mode; the encoder runs once for all modes.

    Args:
        utterances: how many there are in all, for the progress bar.
    """
    recognition = Recognition({mode: {} for mode in modes})
    model.to(device).eval()
    with tqdm(total=utterances, desc="decoding", unit="utt", disable=None) as bar:
        for batch in batches:
            if len(batch):
                moved = batch.to(device)
                for mode, nbests in decode(model, moved.feats, moved.feats_lengths, modes, options).items():
                    for key, nbest in zip(batch.keys, nbests, strict=True):
                        recognition.texts[mode][key] = tokenizer.detokenize(nbest[0].tokens)
            recognition.skipped.extend(batch.skipped)
            recognition.seconds += batch.seconds
            bar.update(len(batch) + len(batch.skipped))
    return recognition


def write_recognition(recognition: Recognition, keys: Iterable[str], result_dir: str | Path) -> None:
    """Write RESULT_DIR/<mode>/text (`key text` lines, in the order of `keys`) and RESULT_DIR/skipped.

    `skipped` has `key reason: detail` lines and is empty when every utterance was read.
    """
    result_dir, keys = Path(result_dir), list(keys)
    for mode, texts in recognition.texts.items():
        with written_aside(result_dir / mode / "text", "w") as file:
            file.writelines(f"{key} {texts[key]}".rstrip() + "\n" for key in keys if key in texts)
    with written_aside(result_dir / "skipped", "w") as file:
        file.writelines(f"{sample.key} {sample.reason}: {sample.detail}\n" for sample in recognition.skipped)
