"""Find speech in a recording: cut it at pauses, and longer segments into overlapping windows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from wenet_uio.addons.listen.voice_activity import RATE, WINDOW, VoiceDetector, is_installed
from wenet_uio.audio.decoders import INT16_SCALE, Channel
from wenet_uio.audio.read import AudioReader, Source, audio_info

FRAME = 0.01
"""Seconds of a level measurement."""
BLOCK = 30.0
"""Seconds that are read at once. They share one loudness of speech and one noise floor."""
STEP = 5.0
"""Seconds between the blocks in which the noise floor is found."""
QUIET = 10
"""Percentile of the levels of a block that is its noise floor."""
RISE = 6.0
"""dB; frames that are less above the noise floor are never speech."""
UNREST = (1.5, 10.0)
"""dB for each dB between the lowest levels of the noise and its floor, and the upper limit of this
sum. For the energy rule, speech is louder than the floor by RISE and these dB, because rumbling
noise varies more than hiss."""
LEAST_CONTRAST = 10.0
"""dB between the loud and the quiet level of a short recording; with less contrast the recording is
all speech."""
SHORT = 10.0
"""Seconds; a shorter recording may have no pause in which the noise floor could be found."""
SILENCE = -60.0
"""dB of full scale; quieter frames are never speech for the energy rule."""
THRESHOLD = 0.3
"""Position of the speech threshold between the noise floor (0) and the loudness of speech (1)."""
LOUD = 90
"""Percentile of the levels of the frames with speech that is their loudness."""
FADE = 0.04
"""Position of the threshold for soft beginnings and ends of speech, on the same scale."""
LONGEST_FADE = 0.15
"""Longest soft beginning or end, in seconds."""
CLICK = 0.05
"""Seconds; shorter loud sounds are not speech."""
LEAST_PAUSE = 0.1
"""Shortest pause, in seconds, that may cut a segment that is too long; shorter pauses are within
words."""
FIRST_FRAMES, STEADY = 3, 3.0
"""Frames at an end of a recording, and dB above their median: up to there the end is steady."""
MARGIN = 0.2
"""Seconds of quiet that are kept at both ends of the speech, at most half of the pause beside it,
where nobody says how much: right for models that were trained on usual recordings."""
LEAST_MARGIN = 0.02
"""Seconds that are always kept: an edge is known to a FRAME at each side."""
MOST_MARGIN = 1.0
"""Seconds; more is never kept, also for a model that has heard more."""
DEAD = -90.0
"""dB of full scale; a recording that is never louder has no sound: its samples are 0, or differ from
0 by one step of 16 bits."""
VOICE = 0.5
"""Probability of the voice detector from which a frame has a voice, whatever its level is."""
CONFIRMED = 0.2
"""Probability of the voice detector that confirms a frame that is louder than the noise. Noise
alone has up to 0.25."""
REACH = 0.1
"""Seconds; louder frames at most this far from a frame with a voice belong to the voice."""
FAR = 0.5
"""Seconds; frames farther from a voice never belong to it, even without a pause in between."""
LEAST_VOICE = 10
"""Frames that have a voice if there is a word: 0.1 s."""
NOBODY = 0.4
"""Estimate of the voice detector that nobody speaks in a recording, above which it has no speech.
Noise, music, typing, hum and beeps have 0.46 and more, at USUAL_LOUDNESS too; spoken digits in noise
have 0.24 and less."""
USUAL_LOUDNESS = -16.0
"""dB of full scale of the LEAST_VOICE loudest frames. Detectors miss quiet speech, so they hear a
recording in which they find none again at this loudness."""
STEADY = 6.0
"""dB; a short recording with less contrast is steady noise. Pink noise has 3.2 dB at 16 kHz and 4.6 at
8 kHz, spoken digits in noise that is 10 dB softer have 10.7."""
LEAST_STEADY = 1.5
"""Seconds; a sound may be steady for less although it is speech."""
DETECTORS = ("auto", "silero", "energy")
"""silero: the package silero-vad confirms what is louder than the noise. auto: silero if installed,
else energy."""


class Segment(NamedTuple):
    """A part of a recording, in seconds."""

    start: float
    end: float


class Margins(NamedTuple):
    """Seconds of quiet that are kept before and behind speech."""

    before: float
    behind: float

    @classmethod
    def of(cls, before: float, behind: float) -> Margins:
        """Return margins that are neither below LEAST_MARGIN nor above MOST_MARGIN."""
        return cls(*(min(max(seconds, LEAST_MARGIN), MOST_MARGIN) for seconds in (before, behind)))


USUAL_MARGINS = Margins(MARGIN, MARGIN)


class Speech(NamedTuple):
    """A segment in which somebody may speak."""

    segment: Segment
    no_speech_probability: float | None
    """Estimate that nobody speaks: of the voice detector, or from the contrast of the levels; None where
    speech was not looked for."""


def find_speech(
    source: Source,
    channel: Channel,
    shortest_pause: float,
    longest: float = np.inf,
    detector: str = "auto",
    uncut: float = 0.0,
    kept_quiet: float = 0.0,
    margins: Margins = USUAL_MARGINS,
) -> list[Speech]:
    """Find the speech of a file between pauses; see `speech_segments`.

    A file in which nobody speaks has no segment. Where somebody speaks and no frame passes for
    speech, all of the file is one segment.

    Memory grows by 4 bytes for each 10 ms.

    Args:
        uncut: seconds; a file that is no longer is one segment, from its first to its last speech or
            other loud sound.
        kept_quiet: seconds of quiet at an end that such a file keeps; more quiet is left out.
        margins: quiet that each segment keeps.

    Raises:
        AudioError: the file cannot be read.
        ModuleNotFoundError: `detector` is silero, and the package is not installed.
    """
    levels, probabilities, seconds = _measure_recording(source, channel, detector)
    has_sound = levels.max(initial=DEAD) > DEAD  # not of NaN
    if not has_sound:
        return []

    if probabilities is not None:
        probabilities = _find_voice(source, channel, levels, probabilities)
        if _lack_of_voice(probabilities) > NOBODY:
            return []

    segments = speech_segments(levels, shortest_pause, longest, probabilities, margins)
    if not segments and probabilities is None:
        louder_levels = levels + _missing_loudness(levels)
        segments = speech_segments(louder_levels, shortest_pause, longest, margins=margins)
        # A word without a pause has no frame above its own noise floor.
        if not segments and level_contrast(levels) < LEAST_CONTRAST:
            return []

    if not segments:
        segments = [Segment(0.0, seconds)]
    elif seconds <= uncut:
        if probabilities is not None and level_contrast(levels) >= LEAST_CONTRAST:
            # What is loud without a voice, for the detector, may still be a word; with less contrast
            # the levels do not tell.
            segments += speech_segments(levels, shortest_pause, longest, margins=margins)
        start = min(segment.start for segment in segments)
        end = max(segment.end for segment in segments)
        if start <= kept_quiet:
            start = 0.0
        if seconds - end <= kept_quiet:
            end = seconds
        segments = [Segment(start, end)]

    return [
        # The last frame may be shorter than FRAME.
        Speech(
            Segment(segment.start, min(segment.end, seconds)),
            _no_speech_probability(segment, levels, probabilities),
        )
        for segment in segments
    ]


def hears_voices(detector: str) -> bool:
    """Tell whether a detector of DETECTORS knows voices from other sound."""
    return detector == "silero" or (detector == "auto" and is_installed())


def is_spoken(source: Source, channel: Channel) -> bool:
    """Tell whether the detector of voices finds that somebody speaks in a file, as `find_speech` does.

    Raises:
        AudioError: the file cannot be read.
        ModuleNotFoundError: the package silero-vad is not installed.
    """
    levels, voice, _ = _measure_recording(source, channel, "silero")
    assert voice is not None, "silero hears voices"
    return _lack_of_voice(_find_voice(source, channel, levels, voice)) <= NOBODY


def _find_voice(
    source: Source, channel: Channel, levels: np.ndarray, voice: np.ndarray
) -> np.ndarray:
    """Return the probabilities (frames,) of a voice in a file; if there seems to be none, those of the
    file at USUAL_LOUDNESS, if one is found there.

    Args:
        levels: (frames,) in dB of full scale.
        voice: (frames,) of the file as it is.
    """
    # What is perhaps a voice counts, not a louder sound beside it.
    perhaps_voice = levels[voice >= CONFIRMED]
    gain = _missing_loudness(perhaps_voice if len(perhaps_voice) >= LEAST_VOICE else levels)
    if _lack_of_voice(voice) <= NOBODY or not gain:
        return voice

    _, louder_voice, _ = _measure_recording(source, channel, "silero", gain)
    assert louder_voice is not None, "silero hears voices"
    return min(voice, louder_voice, key=_lack_of_voice)


def _missing_loudness(levels: np.ndarray) -> float:
    """Return the gain in dB, at least 0, with which frames have USUAL_LOUDNESS.

    Args:
        levels: (frames,) in dB of full scale.
    """
    return max(0.0, USUAL_LOUDNESS - float(np.sort(levels)[-LEAST_VOICE:][0]))


def _measure_recording(
    source: Source, channel: Channel, detector: str, gain: float = 0.0
) -> tuple[np.ndarray, np.ndarray | None, float]:
    """Listen to a file once.

    Args:
        gain: dB by which the detector of voices hears the file louder.

    Returns:
        for each FRAME the level (frames,) in dB; for each FRAME the probability (frames,) of a
        voice, or None without a detector of voices; the length of the file in seconds.
    """
    factor = np.float32(10 ** (gain / 20))
    levels, voice, num_samples, rate = [], None, 0, 1
    for waveform, rate in read_blocks(source, channel):
        num_samples += len(waveform)
        if hears_voices(detector) and voice is None:
            voice = VoiceDetector(rate)  # only the blocks tell the rate
        levels.append(measure_levels(waveform, rate))
        if voice:
            voice.accept((waveform * factor).clip(-INT16_SCALE, INT16_SCALE))

    levels = np.concatenate(levels)
    if voice is None:
        return levels, None, num_samples / rate

    # A frame has the probability of the detector's window at its middle.
    probabilities = voice.finish()
    windows = ((np.arange(len(levels)) + 0.5) * (FRAME * RATE / WINDOW)).astype(np.int64)
    by_frame = probabilities[windows.clip(max=len(probabilities) - 1)]
    return levels, by_frame, num_samples / rate


def _no_speech_probability(segment: Segment, levels: np.ndarray, voice: np.ndarray | None) -> float:
    """Estimate the probability that a segment has no speech.

    It is that of `_lack_of_voice`; without a detector of voices, 1 for steady sound and 0 where
    levels differ by 2 * LEAST_CONTRAST or more.
    """
    frames = slice(int(segment.start / FRAME), max(int(segment.end / FRAME), 1))
    if voice is not None:
        return _lack_of_voice(voice[frames])

    return float(1.0 - min(1.0, level_contrast(levels[frames]) / (2 * LEAST_CONTRAST)))


def _lack_of_voice(voice: np.ndarray) -> float:
    """Return 1 minus the mean probability of a voice in the LEAST_VOICE likeliest of some frames."""
    return float(1.0 - np.sort(voice)[-LEAST_VOICE:].mean())


def level_contrast(levels: np.ndarray) -> float:
    """Return the difference in dB between the loud and the quiet level of some frames (frames,)."""
    quiet, loud = np.percentile(levels, (QUIET, 95))
    return loud - quiet


def channel_levels(source: Source) -> np.ndarray:
    """Measure how loud the channels of a file are: (channels, frames) in dB of full scale, by
    FRAME.

    Memory is one block of audio, and 4 bytes a frame and channel.

    Raises:
        AudioError: the file cannot be read.
    """
    parts: list[np.ndarray] = []
    for waveform, rate in read_blocks(source, channel=None):
        parts.append(np.stack([measure_levels(samples, rate) for samples in waveform.T]))
    return np.concatenate(parts, axis=1)


def read_blocks(source: Source, channel: Channel | None) -> Iterator[tuple[np.ndarray, int]]:
    """Read waveforms of BLOCK seconds, float32 on the scale of int16, and their sample rate.

    Args:
        channel: as in `read_audio`.

    Raises:
        AudioError: the file cannot be read.
    """
    info = audio_info(source)
    seconds = info.num_samples / info.sample_rate
    block_count = -(-info.num_samples // round(BLOCK * info.sample_rate))
    with closing(AudioReader(source)) as reader:
        for number in range(max(1, block_count)):
            yield reader.read(number * BLOCK, min(seconds, (number + 1) * BLOCK), channel)


def measure_levels(waveform: np.ndarray, sample_rate: int) -> np.ndarray:
    """Measure the level of each FRAME of a waveform, in dB of full scale."""
    # At 22050 Hz frames are 220 or 221 samples long; frames of equal length would drift from the
    # clock.
    frames = np.ceil(len(waveform) / (FRAME * sample_rate) - 1e-6)
    starts = (np.arange(frames) * FRAME * sample_rate).astype(np.int64)

    energy = np.add.reduceat(np.square(waveform / np.float32(INT16_SCALE)), starts)
    energy /= np.diff(starts, append=len(waveform))
    return 10.0 * np.log10(energy + 1e-10).astype(np.float32)


def speech_segments(
    levels: np.ndarray,
    shortest_pause: float,
    longest: float = np.inf,
    voice: np.ndarray | None = None,
    margins: Margins = USUAL_MARGINS,
) -> list[Segment]:
    """Find speech between pauses of at least `shortest_pause` seconds.

    Segments include soft beginnings and ends, and margins of quiet. A segment longer than `longest` seconds
    is cut at its longest pause, repeatedly, if that pause has LEAST_PAUSE.

    Args:
        levels: (frames,) dB of full scale.
        voice: (frames,) probability of a voice. None: what is louder than the noise is speech.
    """
    speech, fade = _speech_levels(levels, voice)
    loud = _long_runs(levels > speech)
    if voice is not None:
        loud = _confirm_runs(loud, voice)

    audible = _find_runs((levels > fade) | _mask_runs(loud, len(levels)))
    speech = _join_over_pauses(loud, round(shortest_pause / FRAME), longest / FRAME)
    starts, ends = _add_edges(speech, audible, margins)
    if len(starts):
        length = len(levels) * FRAME
        starts[0] -= _soft_edge(levels, starts[0] + margins.before, margins.before)
        ends[-1] += _soft_edge(levels[::-1], length - ends[-1] + margins.behind, margins.behind)

    starts, ends = starts.clip(min=0.0), ends.clip(max=len(levels) * FRAME)
    return list(map(Segment, starts.tolist(), ends.tolist()))


def noise_floor(levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Estimate the noise of each frame.

    Returns:
        The noise floor (frames,) in dB of full scale, and how far above it the noise may reach
        (frames,) in dB.

    The floor is the highest of the quiet levels of all blocks that contain a frame. So the floor
    follows noise that becomes louder or quieter at once, and speech does not lift the floor unless
    a block has almost no pause.
    """
    size, step = round(BLOCK / FRAME), round(STEP / FRAME)
    floor, rise = np.full_like(levels, -np.inf), np.full_like(levels, RISE)
    for start in [*range(0, len(levels) - size, step), max(0, len(levels) - size)]:
        block = slice(start, start + size)
        quiet, rise_of_block = block_noise(levels[block], RISE)
        rise[block] = np.where(quiet > floor[block], rise_of_block, rise[block])
        floor[block] = np.maximum(floor[block], quiet)

    return floor, rise


def block_noise(levels: np.ndarray, least_rise: float) -> tuple[float, float]:
    """Return the noise floor of a block (frames,), and how far above it the noise may reach; dB.

    Args:
        least_rise: dB; how far steady noise may reach.
    """
    lowest, quiet = np.percentile(levels, (1, QUIET))
    return quiet, least_rise + min(UNREST[0] * (quiet - lowest), UNREST[1])


def _speech_levels(levels: np.ndarray, voice: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Find two levels (frames,) in dB.

    Frames above the first one are speech. Frames above the second one belong to speech beside them.
    """
    is_short = len(levels) * FRAME < SHORT
    if voice is None and is_short and level_contrast(levels) < LEAST_CONTRAST:
        is_steady = level_contrast(levels) < STEADY and len(levels) * FRAME >= LEAST_STEADY
        all_levels = np.full_like(levels, np.inf if is_steady else SILENCE)
        return all_levels, all_levels

    floor, rise = noise_floor(levels)
    least = floor + RISE
    if voice is None:
        least = np.maximum(SILENCE, least)
        is_loud = levels > np.maximum(SILENCE, floor + rise)
    else:
        is_loud = (levels > least) & (voice >= CONFIRMED)

    is_loud = _mask_runs(_long_runs(is_loud), len(levels))

    # The levels of a block follow from how far its loud frames are above the noise.
    speech, fade = np.full_like(levels, np.inf), np.full_like(levels, np.inf)
    block_frames = round(BLOCK / FRAME)
    for start in range(0, len(levels), block_frames):
        block = slice(start, start + block_frames)
        if is_loud[block].any():
            above = max(0.0, np.percentile((levels - floor)[block][is_loud[block]], LOUD))
            speech[block] = np.maximum(least[block], floor[block] + THRESHOLD * above)
            fade[block] = floor[block] + FADE * above

    return speech, fade


def _confirm_runs(loud: np.ndarray, voice: np.ndarray) -> np.ndarray:
    """Keep the loud runs (N, 2) near a voice, and add runs of the voice that noise covers.

    The result is sorted.
    """
    confirmed = voice >= CONFIRMED

    # Parts far from a voice are left out: they are louder noise around it.
    loud = _find_runs(_mask_runs(loud, len(voice)) & _widen_runs(confirmed, FAR))
    loud = loud[_touches_mask(loud, _widen_runs(confirmed, REACH))]

    covered = _widen_runs(_mask_runs(loud, len(voice)), REACH)
    hidden = _long_runs(voice >= VOICE)
    return np.sort(np.concatenate((loud, hidden[~_touches_mask(hidden, covered)])), axis=0)


def _widen_runs(mask: np.ndarray, seconds: float) -> np.ndarray:
    """Widen each run of a mask by `seconds` at both ends."""
    reach = round(seconds / FRAME)
    return _mask_runs((_find_runs(mask) + np.array((-reach, reach))).clip(0, len(mask)), len(mask))


def _touches_mask(runs: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Tell whether each run (N, 2) has a frame of the mask; (N,)."""
    count = np.concatenate(([0], np.cumsum(mask)))
    return count[runs[:, 1]] > count[runs[:, 0]]


def _long_runs(mask: np.ndarray) -> np.ndarray:
    """Find the runs (N, 2) of True in frames that are longer than a click."""
    runs = _find_runs(mask)
    return runs[(runs[:, 1] - runs[:, 0]) * FRAME >= CLICK]


def _add_edges(
    speech: np.ndarray, audible: np.ndarray, margins: Margins
) -> tuple[np.ndarray, np.ndarray]:
    """Widen runs of speech by the audible frames around them and by the margins.

    Args:
        speech: (N, 2) in frames.
        audible: (M, 2) in frames; loud frames are audible as well.

    Returns:
        Starts and ends (N,) in seconds.
    """
    # The audible run around the first and around the last frame of each run of speech.
    run = np.searchsorted(audible[:, 0], speech - [0, 1], side="right") - 1
    fade_in = speech[:, 0] - audible[run[:, 0], 0]
    fade_out = audible[run[:, 1], 1] - speech[:, 1]
    fades = np.stack((fade_in, fade_out), axis=1)
    wider = np.minimum(fades * FRAME, LONGEST_FADE) + np.array(margins)

    # Half of each pause at most, so that segments do not overlap; no limit at the outer edges.
    room = np.full(len(speech) + 1, np.inf)
    room[1:-1] = (speech[1:, 0] - speech[:-1, 1]) * FRAME / 2
    starts = speech[:, 0] * FRAME - np.minimum(wider[:, 0], room[:-1])
    return starts, speech[:, 1] * FRAME + np.minimum(wider[:, 1], room[1:])


def _soft_edge(levels: np.ndarray, edge: float, margin: float) -> float:
    """Return how many seconds more than the margin are kept before the first speech of a recording.

    A recording that is cut close to the words has no quiet that tells the noise floor, and its soft
    beginning may be taken for quiet. So a short beginning is kept as far as it is louder than the
    very first frames: only steady sound is certainly quiet.

    Args:
        levels: (frames,) of the recording.
        edge: seconds before the speech, without the margin.
    """
    if edge > LONGEST_FADE + MARGIN:
        return 0.0

    loud = np.flatnonzero(levels > np.median(levels[:FIRST_FRAMES]) + STEADY)
    certain = float(loud[0]) * FRAME if len(loud) else edge
    first = max(edge - MARGIN, certain - margin)
    return max(0.0, edge - margin - first)


def _join_over_pauses(runs: np.ndarray, shortest_pause: int, longest: float) -> np.ndarray:
    """Join runs (N, 2) over the pauses at which the recording is not cut; all in frames."""
    if not len(runs):
        return runs

    pauses = runs[1:, 0] - runs[:-1, 1]
    cuts = np.flatnonzero(pauses >= shortest_pause) + 1
    edges = [0, *cuts.tolist(), len(runs)]

    # A stack of ranges of runs, the earliest on top. Ranges that are too long are cut again.
    ranges = list(pairwise(edges))[::-1]
    joined = []
    while ranges:
        first, last = ranges.pop()
        inner_pauses = pauses[first : last - 1]
        is_too_long = runs[last - 1, 1] - runs[first, 0] > longest
        if is_too_long and inner_pauses.max(initial=0) >= LEAST_PAUSE / FRAME:
            cut = first + int(inner_pauses.argmax()) + 1
            ranges += [(cut, last), (first, cut)]
        else:
            joined.append((runs[first, 0], runs[last - 1, 1]))

    return np.array(joined)


def cut_windows(segment: Segment, window: float, overlap: float) -> Iterator[Segment]:
    """Cut a segment into windows of equal length that overlap; all arguments in seconds.

    Args:
        window: longest window.
        overlap: time that neighbouring windows share.
    """
    new_seconds = segment.end - segment.start - overlap  # each window adds its length - overlap
    count = max(1, int(np.ceil(new_seconds / (window - overlap) - 1e-6)))
    step = new_seconds / count
    for number in range(count):
        start = segment.start + number * step
        is_last = number == count - 1
        end = segment.end if is_last else start + step + overlap
        yield Segment(start, end)


def _mask_runs(runs: np.ndarray, length: int) -> np.ndarray:
    """Make a mask (length,) from runs (N, 2), which may overlap."""
    change = np.zeros(length + 1, np.int64)
    np.add.at(change, runs[:, 0], 1)
    np.add.at(change, runs[:, 1], -1)
    return np.cumsum(change[:-1]) > 0


def _find_runs(mask: np.ndarray) -> np.ndarray:
    """Find starts and ends (N, 2) of the runs of True."""
    padded = np.concatenate(([False], mask, [False])).astype(np.int8)
    return np.flatnonzero(np.diff(padded)).reshape(-1, 2)
