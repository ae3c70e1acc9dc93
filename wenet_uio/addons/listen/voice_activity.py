"""Probability of a voice in audio, by the model of the package silero-vad.

The state of the model drifts during minutes without a voice, and then it misses short words. So
audio is cut into pieces, and the model begins each piece with a new state and a little of the audio
before. Pieces run as a batch.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from wenet_uio.audio.decoders import INT16_SCALE
from wenet_uio.dataset.chain.waveform import resample

RATE = 16_000
"""Sample rate of the model in Hz."""
WINDOW = 512
"""Samples of one probability: 0.032 s."""
PIECE = 125
"""Windows of a piece: 4 s. At 30 s the model misses words of 0.4 s in noise, at 8 s it does not."""
WARM_UP = 31
"""Windows before a piece that bring a new state into swing: 1 s."""
PIECES = 32
"""Pieces of a batch: 128 s of audio, 10 MB."""
INSTALL = "pip install silero-vad"
_ONE_AT_A_TIME = threading.Lock()
"""The shared model holds the state of the batch that it computes."""


def is_installed() -> bool:
    """Tell whether silero-vad is installed.

    The package is not imported: its import sets torch's number of threads to 1.
    """
    return find_spec("silero_vad") is not None


def _read_model() -> torch.jit.ScriptModule:
    """Load the TorchScript model of the package.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    spec = find_spec("silero_vad")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"the package silero-vad is not installed: {INSTALL}")
    path = Path(spec.submodule_search_locations[0], "data", "silero_vad.jit")
    return torch.jit.load(str(path), map_location="cpu").eval()


_shared_model = lru_cache(maxsize=1)(_read_model)
"""Loads the model that all recordings share."""


class VoiceDetector:
    """Find the probabilities of a voice in one recording, which comes block by block.

    The audio in memory does not grow with the length of the recording.
    """

    def __init__(self, sample_rate: int) -> None:
        """Load the model.

        Raises:
            ModuleNotFoundError: the package silero-vad is not installed.
        """
        self._model = _shared_model()
        self._sample_rate = sample_rate
        self._waiting = torch.zeros(WARM_UP * WINDOW)
        """The warm-up of the next piece, and the audio after it."""
        self._probabilities: list[np.ndarray] = []

    def accept(self, waveform: np.ndarray) -> None:
        """Take the next samples (samples,), float32 on the scale of int16."""
        samples = torch.from_numpy(waveform / np.float32(INT16_SCALE))
        if self._sample_rate != RATE:
            samples = resample(samples, self._sample_rate, RATE)

        self._waiting = torch.cat((self._waiting, samples))
        batch = PIECES * PIECE * WINDOW
        while len(self._waiting) >= WARM_UP * WINDOW + batch:
            self._run_model(self._waiting[: WARM_UP * WINDOW + batch])
            self._waiting = self._waiting[batch:]

    def finish(self) -> np.ndarray:
        """Return the probabilities (windows,) of the whole recording.

        The last window may be incomplete.
        """
        whole = (len(self._waiting) - WARM_UP * WINDOW) // (PIECE * WINDOW) * PIECE * WINDOW
        if whole:
            self._run_model(self._waiting[: WARM_UP * WINDOW + whole])
        last_piece = self._waiting[whole:]
        self._waiting = self._waiting[:0]

        remaining = len(last_piece) - WARM_UP * WINDOW
        if remaining:
            missing = -remaining % WINDOW
            self._run_model(torch.nn.functional.pad(last_piece, (0, missing)))

        return (
            np.concatenate(self._probabilities) if self._probabilities else np.zeros(0, np.float32)
        )

    def _run_model(self, samples: torch.Tensor) -> None:
        """Run the model on a warm-up and the pieces after it (samples,): whole ones, or one that is
        shorter.
        """
        length = min((WARM_UP + PIECE) * WINDOW, len(samples))
        pieces = samples.unfold(0, length, PIECE * WINDOW)
        with _ONE_AT_A_TIME, torch.inference_mode():
            self._model.reset_states()
            probabilities = self._model.audio_forward(pieces, RATE)
        self._probabilities.append(probabilities[:, WARM_UP:].reshape(-1).numpy())


class VoiceStream:
    """Find the probabilities of a voice in a stream, window by window.

    Pieces and warm-ups are those of `VoiceDetector`. It takes about 2 % of a core in real time. For
    many streams of a CTC model, the blank costs nothing (`endpoint.silent_by_blank`).
    """

    def __init__(self) -> None:
        """Load a model of its own for this stream, because a model holds the state.

        Raises:
            ModuleNotFoundError: the package silero-vad is not installed.
        """
        self._model = _read_model()
        self._model.reset_states()
        self._waiting = np.zeros(0, np.float32)
        """Samples of an incomplete window."""
        self._recent = np.zeros(WARM_UP * WINDOW, np.float32)
        """The last whole windows, which are the warm-up of the next piece."""
        self._windows = 0

    def accept(self, samples: np.ndarray) -> np.ndarray:
        """Take the next samples, and compute the windows that are complete.

        Args:
            samples: (samples,) at RATE, on the scale of int16.

        Returns:
            The probabilities (windows,) of the new windows.
        """
        scaled = samples.astype(np.float32) / np.float32(INT16_SCALE)
        self._waiting = np.concatenate((self._waiting, scaled))
        probabilities = []

        while len(self._waiting) >= WINDOW:
            window, self._waiting = self._waiting[:WINDOW], self._waiting[WINDOW:]

            if self._windows % PIECE == 0:
                self._model.reset_states()
                for start in range(0, len(self._recent), WINDOW):
                    self._voice_probability(self._recent[start : start + WINDOW])

            probabilities.append(self._voice_probability(window))
            self._recent = np.concatenate((self._recent[WINDOW:], window))
            self._windows += 1

        return np.array(probabilities, np.float32)

    def _voice_probability(self, window: np.ndarray) -> float:
        with torch.inference_mode():
            return float(self._model(torch.from_numpy(window)[None], RATE))
