"""Probability of a voice in audio, by the model of the package silero-vad.

The state of the model drifts during minutes without a voice, and then it misses short words. So audio is cut into
pieces, and the model begins each piece with a new state and a little of the audio before. Pieces run as a batch.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from wenet_uio.audio.read import INT16_SCALE
from wenet_uio.dataset.chain.waveform import resample

RATE = 16_000
"""Sample rate of the model in Hz."""
WINDOW = 512
"""Samples that a probability stands for: 0.032 s."""
PIECE = 125
"""Windows of a piece: 4 s. At 30 s the model misses words of 0.4 s in noise, at 8 s it does not."""
WARM_UP = 31
"""Windows before a piece that the model hears first: 1 s."""
PIECES = 32
"""Pieces of a batch: 128 s of audio, 10 MB."""
INSTALL = "pip install silero-vad"


def is_installed() -> bool:
    """Whether the package is installed. It is not imported, because that would set torch's number of threads."""
    return find_spec("silero_vad") is not None


@lru_cache(maxsize=1)
def load_model() -> torch.jit.ScriptModule:
    """Load the TorchScript model of the package.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    spec = find_spec("silero_vad")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"the package silero-vad is not installed: {INSTALL}")
    return torch.jit.load(Path(spec.submodule_search_locations[0], "data", "silero_vad.jit"), map_location="cpu").eval()


class VoiceDetector:
    """Probabilities of a voice in one recording that comes block by block; memory does not grow with its length."""

    def __init__(self, sample_rate: int) -> None:
        """Load the model.

        Raises:
            ModuleNotFoundError: the package silero-vad is not installed.
        """
        self._model = load_model()
        self._sample_rate = sample_rate
        self._waiting = torch.zeros(WARM_UP * WINDOW)
        """The warm-up of the next piece, and the audio after it."""
        self._found: list[np.ndarray] = []

    def accept(self, waveform: np.ndarray) -> None:
        """Take the next samples (samples,), float32 on the scale of int16."""
        samples = torch.from_numpy(waveform / np.float32(INT16_SCALE))
        if self._sample_rate != RATE:
            samples = resample(samples, self._sample_rate, RATE)
        self._waiting = torch.cat((self._waiting, samples))
        batch = PIECES * PIECE * WINDOW
        while len(self._waiting) >= WARM_UP * WINDOW + batch:
            self._run(self._waiting[: WARM_UP * WINDOW + batch])
            self._waiting = self._waiting[batch:]

    def finish(self) -> np.ndarray:
        """Probabilities (windows,) of the whole recording; the last window may be incomplete."""
        left = len(self._waiting) - WARM_UP * WINDOW
        if left:
            missing = -left % (PIECE * WINDOW)
            self._run(torch.nn.functional.pad(self._waiting, (0, missing)))
            self._found[-1] = self._found[-1][: -(-left // WINDOW)]
            self._waiting = self._waiting[:0]
        return np.concatenate(self._found) if self._found else np.zeros(0, np.float32)

    def _run(self, samples: torch.Tensor) -> None:
        """Find the probabilities of a warm-up and whole pieces (samples,)."""
        pieces = samples.unfold(0, (WARM_UP + PIECE) * WINDOW, PIECE * WINDOW)
        with torch.inference_mode():
            self._model.reset_states()
            found = self._model.audio_forward(pieces, RATE)
        self._found.append(found[:, WARM_UP:].reshape(-1).numpy())
