"""Speech synthesis by eSpeak NG through ctypes. Library and voices come with the package espeakng-loader."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

import espeakng_loader
import numpy as np

# Constants of speak_lib.h.
AUDIO_OUTPUT_SYNCHRONOUS = 2
RATE, PITCH = 1, 3
CHARS_UTF8 = 1
POSITION_CHARACTER = 1

Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


@dataclass(frozen=True)
class Setting:
    """How a sentence is spoken."""

    voice: str
    """Language and variant, separated by a plus: en-us+f3."""
    words_per_minute: int
    pitch: int
    """0 to 99; 50 is the voice's own."""


@cache
def _library() -> tuple[ctypes.CDLL, int]:
    library = ctypes.CDLL(espeakng_loader.get_library_path())
    rate = library.espeak_Initialize(AUDIO_OUTPUT_SYNCHRONOUS, 0, espeakng_loader.get_data_path().encode(), 0)
    if rate <= 0:
        raise ValueError(f"eSpeak NG did not start with its data in {espeakng_loader.get_data_path()}")
    library.espeak_Synth.argtypes = [
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_uint,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.c_uint,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    return library, rate


def sample_rate() -> int:
    """Sample rate of `speak` in Hz; the first call starts the library."""
    return _library()[1]


def speak(text: str, setting: Setting) -> np.ndarray:
    """Synthesize `text` as samples (T,) int16.

    The library keeps a state between sentences: the same call gives the same samples only in processes that spoke the
    same sentences before.

    Raises:
        ValueError: eSpeak NG does not have the voice, or gives no audio for the text.
    """
    library, _ = _library()
    chunks: list[bytes] = []

    @Callback
    def collect(samples: ctypes._Pointer, count: int, _events: int) -> int:
        if samples and count > 0:
            chunks.append(ctypes.string_at(samples, count * ctypes.sizeof(ctypes.c_short)))
        return 0

    if library.espeak_SetVoiceByName(setting.voice.encode()) != 0:
        raise ValueError(f"eSpeak NG has no voice {setting.voice}")
    library.espeak_SetParameter(RATE, setting.words_per_minute, 0)
    library.espeak_SetParameter(PITCH, setting.pitch, 0)
    library.espeak_SetSynthCallback(collect)
    encoded = text.encode("utf-8")
    library.espeak_Synth(encoded, len(encoded) + 1, 0, POSITION_CHARACTER, 0, CHARS_UTF8, None, None)
    if not chunks:
        raise ValueError(f"eSpeak NG gave no audio for {text!r} with the voice {setting.voice}")
    return np.frombuffer(b"".join(chunks), dtype=np.int16)
