"""Decoding of a test set: batches in, files of each mode out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from wenet_uio.dataset.types import Batch, Skipped
from wenet_uio.files import written_aside
from wenet_uio.models import ASRModel
from wenet_uio.search.decode import check_parts, decode
from wenet_uio.search.prefix_scorer import PrefixScorer
from wenet_uio.search.timing import FrameClock
from wenet_uio.search.types import DecodeOptions, Hypothesis
from wenet_uio.text.tokenizer import Tokenizer


@dataclass
class Recognition:
    """What was recognised of a test set."""

    texts: dict[str, dict[str, str]] = field(default_factory=dict)
    """{mode: {key: text}}."""
    nbests: dict[str, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)
    """{mode: {key: hypotheses as JSON}}; empty unless asked for."""
    skipped: list[Skipped] = field(default_factory=list)
    """Utterances that could not be read."""
    seconds: float = 0.0
    """Audio decoded."""

    def join(self, other: Recognition) -> None:
        """Add what was recognised of other utterances."""
        for ours, theirs in ((self.texts, other.texts), (self.nbests, other.nbests)):
            for mode, found in theirs.items():
                ours.setdefault(mode, {}).update(found)
        self.skipped += other.skipped
        self.seconds += other.seconds


def recognize(
    model: ASRModel,
    batches: Iterable[Batch],
    tokenizer: Tokenizer,
    modes: Sequence[str],
    options: DecodeOptions,
    *,
    device: torch.device,
    scorers: Sequence[PrefixScorer] = (),
    clock: FrameClock | None = None,
    utterances: int | None = None,
    progress: bool = True,
) -> Recognition:
    """Decode every batch in every mode; the encoder runs once for all modes.

    Args:
        clock: asks for `nbests`, and puts tokens on the clock of the audio.
        utterances: how many there are in all, for the progress bar.

    Raises:
        ValueError: for a mode that the model was not trained for.
    """
    check_parts(model, modes, options.transducer_weight)
    recognition = Recognition({mode: {} for mode in modes}, {mode: {} for mode in modes} if clock else {})
    model.to(device).eval()
    with tqdm(total=utterances, desc="decoding", unit="utt", disable=None if progress else True) as bar:
        for batch in batches:
            if len(batch):
                moved = batch.to(device)
                decoded = decode(model, moved.feats, moved.feats_lengths, modes, options, scorers)
                for mode, nbests in decoded.items():
                    for key, nbest in zip(batch.keys, nbests, strict=True):
                        recognition.texts[mode][key] = tokenizer.detokenize(nbest[0].tokens)
                        if clock:
                            recognition.nbests[mode][key] = [as_json(each, tokenizer, clock) for each in nbest]
            recognition.skipped.extend(batch.skipped)
            recognition.seconds += batch.seconds
            bar.update(len(batch) + len(batch.skipped))
    return recognition


def as_json(hypothesis: Hypothesis, tokenizer: Tokenizer, clock: FrameClock) -> dict[str, Any]:
    """Text and score, and what else the hypothesis has: confidence, and of each token its time and confidence."""
    values: dict[str, Any] = {"text": tokenizer.detokenize(hypothesis.tokens), "score": round(hypothesis.score, 4)}
    if hypothesis.frames is not None:
        if hypothesis.confidence is not None:
            values["confidence"] = round(hypothesis.confidence, 4)
        values["tokens"] = [
            {"token": tokenizer.symbol(token), "time": round(clock.middle(frame), 3), "confidence": round(sure, 4)}
            for token, frame, sure in zip(hypothesis.tokens, hypothesis.frames, hypothesis.confidences, strict=True)
        ]
    return values


def write_recognition(recognition: Recognition, keys: Iterable[str], result_dir: str | Path) -> None:
    """Write RESULT_DIR/<mode>/text (`key text` lines, in the order of `keys`) and RESULT_DIR/skipped.

    `skipped` has `key reason: detail` lines and is empty when every utterance was read. Where n-best lists were asked
    for, RESULT_DIR/<mode>/nbest.jsonl has a JSON object a line: `key` and its `hypotheses`, best first.
    """
    result_dir, keys = Path(result_dir), list(keys)
    for mode, texts in recognition.texts.items():
        with written_aside(result_dir / mode / "text", "w") as file:
            file.writelines(f"{key} {texts[key]}".rstrip() + "\n" for key in keys if key in texts)
    for mode, nbests in recognition.nbests.items():
        with written_aside(result_dir / mode / "nbest.jsonl", "w") as file:
            for key in keys:
                if key in nbests:
                    file.write(json.dumps({"key": key, "hypotheses": nbests[key]}, ensure_ascii=False) + "\n")
    with written_aside(result_dir / "skipped", "w") as file:
        file.writelines(f"{sample.key} {sample.reason}: {sample.detail}\n" for sample in recognition.skipped)
