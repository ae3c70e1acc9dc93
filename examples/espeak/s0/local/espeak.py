"""Speech synthesis by eSpeak NG through ctypes.

Library and voices come with the package espeakng-loader.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import espeakng_loader
import numpy as np

if TYPE_CHECKING:
    from voices import Setting

# Constants of speak_lib.h.
AUDIO_OUTPUT_SYNCHRONOUS = 2
RATE, PITCH = 1, 3
CHARS_UTF8 = 1
POSITION_CHARACTER = 1
IPA = 2

SAMPLE_RATE = 22050
"""Hz, of all voices."""
SHORTEST = SAMPLE_RATE // 50
"""Samples. A text without a sound, such as "...", gives 176 samples of silence."""

Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
)


class NoSpeechError(ValueError):
    """A text gives no speech."""


def speak(text: str, setting: Setting) -> np.ndarray:
    """Synthesise `text` as samples (T,) int16 at SAMPLE_RATE.

    The same call always gives the same samples.

    Raises:
        NoSpeechError: the text cannot be spoken.
        ValueError: eSpeak NG does not have the voice.
    """
    if "\0" in text:
        raise NoSpeechError(f"eSpeak NG would stop at the NUL character in {text!r}")

    chunks: list[bytes] = []

    @Callback
    def collect(samples: ctypes._Pointer, count: int, _events: int) -> int:
        if samples and count > 0:
            chunks.append(ctypes.string_at(samples, count * ctypes.sizeof(ctypes.c_short)))
        return 0

    with _fresh_library() as library:
        is_known = library.espeak_SetVoiceByName(setting.voice.encode()) == 0
        if not (is_known and _has_variant(setting.voice)):
            raise ValueError(f"eSpeak NG has no voice {setting.voice}")

        library.espeak_SetParameter(RATE, setting.words_per_minute, 0)
        library.espeak_SetParameter(PITCH, setting.pitch, 0)
        library.espeak_SetSynthCallback(collect)
        encoded = text.encode("utf-8")
        # The size counts the NUL at the end.
        library.espeak_Synth(
            encoded, len(encoded) + 1, 0, POSITION_CHARACTER, 0, CHARS_UTF8, None, None
        )

    samples = np.frombuffer(b"".join(chunks), dtype=np.int16)
    if len(samples) < SHORTEST:
        raise NoSpeechError(f"eSpeak NG gave no speech for {text!r} with the voice {setting.voice}")

    return samples


def phonemes(text: str, language: str) -> str:
    """Return the pronunciation of `text` in IPA, clauses separated by blanks.

    Raises:
        ValueError: eSpeak NG does not have the language.
    """
    with _fresh_library() as library:
        if library.espeak_SetVoiceByName(language.encode()) != 0:
            raise ValueError(f"eSpeak NG has no voice {language}")

        library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        # The library moves the pointer to the next clause, and to NULL after the last one.
        rest = ctypes.c_char_p(text.encode("utf-8"))
        clauses: list[str] = []
        while rest.value is not None:
            clause = library.espeak_TextToPhonemes(ctypes.byref(rest), CHARS_UTF8, IPA)
            clauses.append(clause.decode("utf-8"))

    return " ".join(clauses)


def _has_variant(voice: str) -> bool:
    """Tell whether the variant of a voice exists; eSpeak NG ignores an unknown variant."""
    _, _, variant = voice.partition("+")
    return Path(espeakng_loader.get_data_path(), "voices/!v", variant).exists()


@contextmanager
def _fresh_library() -> Iterator[ctypes.CDLL]:
    """Load the library while the block runs.

    It keeps a state between sentences, and espeak_Initialize does not reset all of it. So it is
    loaded again for every sentence, which takes about 4 ms.
    """
    path, data_path = espeakng_loader.get_library_path(), espeakng_loader.get_data_path()
    program = ctypes.CDLL(None)
    program.srand(1)  # eSpeak NG draws from rand(); 1 is the seed of a new process
    library = ctypes.CDLL(path)

    try:
        rate = library.espeak_Initialize(AUDIO_OUTPUT_SYNCHRONOUS, 0, data_path.encode(), 0)
        if rate != SAMPLE_RATE:
            raise OSError(f"eSpeak NG did not start with its data in {data_path} (rate {rate})")

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
        yield library
        library.espeak_Terminate()
    finally:
        program.dlclose(ctypes.c_void_p(library._handle))

    if _is_loaded(path):
        raise OSError(
            f"{path} cannot be unloaded, so that speech would depend on earlier sentences"
        )


def _is_loaded(path: str) -> bool:
    """Tell whether a library is in memory, without loading it."""
    try:
        ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    return True
