"""Kaldi's data directories: the `wav.scp`, `text` and `segments` that a corpus preparation writes for each part."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar
from zlib import crc32

from wenet_uio.files import written_aside

Value = TypeVar("Value")

NAMED = 3
"""Keys that a message names before it only counts."""


class Recording(NamedTuple):
    """One utterance of a corpus that is to be prepared."""

    key: str
    wav: Path
    text: str
    start: float = 0.0
    """Seconds."""
    end: float | None = None
    """Seconds; None is the end of the audio."""


def preparation_parser(description: str | None, corpus: str) -> ArgumentParser:
    """The command line that every preparation of a corpus has: the folder `corpus` (what it holds), and `out`."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help=corpus)
    parser.add_argument("out", type=Path, help="folder of the parts: OUT/train/wav.scp and so on")
    return parser


def require_in(corpus: Path, *names: str) -> None:
    """Stop where a corpus lacks what its layout has.

    Raises:
        ValueError: naming what is missing, and what to do.
    """
    for name in names:
        if not (corpus / name).exists():
            raise ValueError(f"{corpus} has no {name}: name the corpus with --data, or run stage -1 where there is one")


def audio_files(folder: Path, *suffixes: str, key: Callable[[Path], str] = lambda path: path.stem) -> dict[str, Path]:
    """Audio below a folder by key, ordered by path; `suffixes` (such as ".wav") are found in any case.

    Raises:
        ValueError: two files have one key, or there is none.
    """
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in suffixes:
            name = key(path)
            if name in found:
                raise ValueError(f"{name}: two recordings, {found[name]} and {path}")
            found[name] = path
    if not found:
        raise ValueError(f"no {' or '.join(suffixes)} in {folder}: is it the corpus, and whole?")
    return found


def with_texts(wavs: Mapping[str, Path], texts: Mapping[str, str], where: str) -> list[Recording]:
    """Recordings of the keys that have audio and text; the others are counted on stderr, under the name `where`.

    For corpora whose layout is known to have such gaps; elsewhere `write_data_dir` stops at the first one.
    """
    tell_left_out(f"{where}: audio without text", [key for key in wavs if key not in texts])
    tell_left_out(f"{where}: text without audio", [key for key in texts if key not in wavs])
    return [Recording(key, wav, texts[key]) for key, wav in wavs.items() if key in texts]


def tell_left_out(what: str, keys: Sequence[str]) -> None:
    """Say on stderr how many utterances a preparation leaves out and name some; nothing where there are none."""
    if keys:
        named = ", ".join(keys[:NAMED]) + (", …" if len(keys) > NAMED else "")
        print(f"{what}: {len(keys)} left out ({named})", file=sys.stderr)


def split_by(
    group_of: Callable[[Value], str], items: Iterable[Value], shares: Mapping[str, float]
) -> dict[str, list[Value]]:
    """Items by part; all of a group (a speaker, a call) are in one part, the same one in every run.

    Args:
        shares: part -> its share of the groups, in percent; "train" gets the rest.
    """
    parts: dict[str, list[Value]] = {"train": [], **{part: [] for part in shares}}
    for item in items:
        draw = crc32(group_of(item).encode()) % 10_000 / 100
        for part, share in shares.items():
            if draw < share:
                parts[part].append(item)
                break
            draw -= share
        else:
            parts["train"].append(item)
    return parts


def write_parts(out: Path, parts: Mapping[str, Collection[Recording]]) -> None:
    """Write the data directory of each part, once all of them have utterances."""
    for part, recordings in parts.items():
        _require_some(out / part, recordings)
    for part, recordings in parts.items():
        write_data_dir(out / part, recordings)


def write_data_dir(folder: str | Path, recordings: Iterable[Recording]) -> int:
    """Write `wav.scp` (absolute paths), `text`, and `segments` where an utterance is a part of its recording.

    Lines are ordered by key; gives the number of utterances.

    Raises:
        ValueError: naming the utterance that comes twice, has no text, no audio, no length; a part without any.
    """
    ordered = sorted(recordings, key=lambda recording: recording.key.encode())
    _require_some(folder, ordered)
    there: set[Path] = set()
    for recording, following in zip(ordered, [*ordered[1:], None], strict=True):
        if following and recording.key == following.key:
            raise ValueError(f"{recording.key}: two recordings, {recording.wav} and {following.wav}")
        if not recording.text.strip():
            raise ValueError(f"{recording.key}: {recording.wav} has no text")
        if recording.end is not None and not 0 <= recording.start < recording.end:
            raise ValueError(f"{recording.key}: {recording.start} s to {recording.end} s of {recording.wav}")
        if recording.wav not in there and not recording.wav.is_file():
            raise ValueError(f"{recording.key}: has text, but its audio {recording.wav} is missing")
        there.add(recording.wav)
    folder = Path(folder)
    if any(recording.end is not None for recording in ordered):
        _write_segments(folder, ordered)
    else:
        (folder / "segments").unlink(missing_ok=True)
        with written_aside(folder / "wav.scp", "w") as scp:
            scp.writelines(f"{recording.key} {recording.wav.absolute()}\n" for recording in ordered)
    with written_aside(folder / "text", "w") as text:
        text.writelines(f"{recording.key} {recording.text}\n" for recording in ordered)
    print(f"{folder}: {len(ordered)} utterances")
    return len(ordered)


def _write_segments(folder: Path, ordered: Sequence[Recording]) -> None:
    wav_of: dict[str, Path] = {}
    for recording in ordered:
        if recording.end is None:
            raise ValueError(f"{recording.key}: {recording.wav} has no end, but other utterances are cut by time")
        other = wav_of.setdefault(recording.wav.stem, recording.wav)
        if other != recording.wav:
            raise ValueError(f"two recordings are called {recording.wav.stem}: {other} and {recording.wav}")
    with written_aside(folder / "wav.scp", "w") as scp, written_aside(folder / "segments", "w") as segments:
        for name in sorted(wav_of, key=str.encode):
            print(name, wav_of[name].absolute(), file=scp)
        for recording in ordered:
            print(recording.key, recording.wav.stem, f"{recording.start:.3f} {recording.end:.3f}", file=segments)


def _require_some(folder: str | Path, recordings: Collection[Recording]) -> None:
    if not recordings:
        raise ValueError(f"{folder}: no utterance was found for it; is the corpus complete?")
