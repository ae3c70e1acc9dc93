"""Join utterances to longer ones with pauses, for models that transcribe long recordings at once.

A model that was trained on single sentences has never seen the end of one and the start of the
next.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wenet_uio.audio.decoders import INT16_SCALE
from wenet_uio.audio.encoding import encode_audio
from wenet_uio.audio.read import read_audio
from wenet_uio.base.executor import Executor, chunks
from wenet_uio.base.files import written_aside
from wenet_uio.base.messages import listed
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.prepare.kaldi_tables import write_audio_tables, write_table
from wenet_uio.prepare.sharding import MeasuredLine, measure_lines

NAMED = 3
"""An error names this many utterances."""
MEASURED_TOGETHER = 100
"""Utterances of one job that reads headers."""


@dataclass(frozen=True)
class Joining:
    """How utterances are joined; times are seconds.

    Raises:
        ValueError: a time is negative, or the shortest pause is longer than the longest.
    """

    longest: float
    """Lengths are drawn from a quarter of this to this; an utterance that is longer than the draw
    stays alone."""
    pauses: tuple[float, float] = (0.05, 1.0)
    """Shortest and longest pause, before each of the utterances."""
    noise: float = -70.0
    """Level of the pauses, dB of full scale."""
    separator: str = " "
    """Between the texts."""
    seed: int = 0

    def __post_init__(self) -> None:
        shortest, longest = self.pauses
        if not self.longest > 0:
            raise ValueError(f"longest: expected above 0 seconds, found {self.longest:g}")

        if not 0 <= shortest <= longest:
            raise ValueError(
                f"pauses: expected 0 or more seconds, the shortest first; found {shortest:g} "
                f"{longest:g}"
            )


@dataclass(frozen=True)
class Joined:
    """Utterances that become one."""

    key: str
    parts: tuple[RawLine, ...]
    pauses: tuple[float, ...]
    """Seconds before each part."""
    folder: str
    joining: Joining

    @property
    def wav(self) -> str:
        """Path of the audio."""
        return str(Path(self.folder, f"{self.key}.wav"))


def join_utterances(
    lines: Sequence[RawLine], folder: Path, joining: Joining, executor: Executor
) -> list[Joined]:
    """Write joined utterances to `wav/`, `wav.scp` and `text`, and the keys of parts to `joined`.

    Each utterance is a part once.

    Raises:
        ValueError: audio cannot be read, or the utterances have different sample rates.
    """
    seconds = _measure_seconds(lines, executor)
    joined = list(plan_joined(lines, seconds, folder.resolve() / "wav", joining))
    for _ in executor.map(write_joined, joined, "join", len(joined)):
        pass

    texts, keys_of_parts = [], []
    for utterance in joined:
        text = joining.separator.join(part.text for part in utterance.parts)
        texts.append((utterance.key, text))
        keys_of_parts.append((utterance.key, " ".join(part.key for part in utterance.parts)))

    write_table(folder / "text", texts)
    write_table(folder / "joined", keys_of_parts)
    write_audio_tables(folder, joined, lambda utterance: utterance.wav)
    return joined


def plan_joined(
    lines: Sequence[RawLine], seconds: Sequence[float], folder: Path, joining: Joining
) -> Iterator[Joined]:
    """Divide the utterances, in random order, into joined ones of random length."""
    width = len(str(len(lines)))
    for number, group in enumerate(_draw_groups(seconds, joining)):
        key = f"joined_{joining.seed}_{number:0{width}}"  # one list may have several seeds
        parts = tuple(lines[row] for row, _ in group)
        pauses = tuple(pause for _, pause in group)
        yield Joined(key, parts, pauses, str(folder), joining)


def _draw_groups(seconds: Sequence[float], joining: Joining) -> Iterator[list[tuple[int, float]]]:
    """Yield the rows that are joined, each with the seconds of the pause before it.

    Args:
        seconds: length of the utterance in each row.
    """
    draw = random.Random(joining.seed)
    order = draw.sample(range(len(seconds)), len(seconds))
    target_length = draw.uniform(joining.longest / 4, joining.longest)
    group: list[tuple[int, float]] = []
    length = 0.0

    for row in order:
        pause = draw.uniform(*joining.pauses)
        if group and length + pause + seconds[row] > target_length:
            yield group
            group, length = [], 0.0
            target_length = draw.uniform(joining.longest / 4, joining.longest)

        group.append((row, pause))
        length += pause + seconds[row]

    if group:
        yield group


def write_joined(joined: Joined) -> None:
    """Write the audio of a joined utterance: noise for each pause, then the part behind it."""
    draw = np.random.default_rng([joined.joining.seed, *joined.key.encode()])
    noise_level = INT16_SCALE * 10 ** (joined.joining.noise / 20)
    pieces: list[np.ndarray] = []  # (samples,) each
    rate = 0
    for part, pause in zip(joined.parts, joined.pauses, strict=True):
        waveform, rate = read_audio(part.wav, part.start, part.end)
        noise = draw.normal(0, noise_level, round(pause * rate))
        pieces += [noise, waveform]

    one_channel = np.concatenate(pieces)[:, None]  # (samples, 1)
    with written_aside(joined.wav) as file:
        file.write(encode_audio(one_channel, rate, "wav"))


def _measure_seconds(lines: Sequence[RawLine], executor: Executor) -> list[float]:
    """Return seconds of each utterance by the header of its audio.

    Raises:
        ValueError: audio cannot be read, or the utterances have different sample rates.
    """
    measured: list[MeasuredLine] = []
    jobs = chunks(list(lines), MEASURED_TOGETHER)
    for measured_lines in executor.map(_measure_readable, jobs, "measure", len(lines), len):
        measured += measured_lines

    example_of_rate: dict[int, str] = {}
    for line, measurement in zip(lines, measured, strict=True):
        example_of_rate[measurement.sample_rate] = line.key

    if len(example_of_rate) > 1:
        shown = listed([f"{key} has {rate} Hz" for rate, key in example_of_rate.items()], NAMED)
        raise ValueError(
            f"utterances of several sample rates ({shown}); resample them, or join those of one "
            "rate"
        )

    return [measurement.seconds for measurement in measured]


def _measure_readable(lines: Sequence[RawLine]) -> list[MeasuredLine]:
    """Return `measure_lines` of utterances that can all be read."""
    measured = measure_lines(lines)
    bad = [
        f"{line.key}: {measurement}"
        for line, measurement in zip(lines, measured, strict=True)
        if isinstance(measurement, str)
    ]
    if bad:
        raise ValueError(f"{len(bad)} of {len(lines)} utterances cannot be read, such as: {bad[0]}")
    return [measurement for measurement in measured if not isinstance(measurement, str)]
