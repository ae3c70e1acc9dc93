"""A corpus of one's own: audio and files of transcripts, of whatever form, as parts to train, develop and test on."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from zlib import crc32

from wenet_uio.dataset.formats.data_list import ListError, RawLine
from wenet_uio.dataset.formats.sample_layout import AUDIO_SUFFIXES
from wenet_uio.prepare.corpus_parts import Recording, files_below, split_by
from wenet_uio.prepare.kaldi_tables import without_spaces
from wenet_uio.prepare.manifests import READERS
from wenet_uio.prepare.separated import COLUMNS, KNOWN_COLUMNS
from wenet_uio.text.normalize import english, mandarin

PARTS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("dev", "development", "valid", "validation", "val", "eval"), "dev"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""What a column or field `part` (or split, subset) may say."""
PART_COLUMNS = " or ".join(COLUMNS["part"])
SHARES = {"dev": 10.0, "test": 10.0}
"""In percent, of the speakers, or of the utterances where none are known."""
FEW_SPEAKERS = 10
"""With fewer than these, a part of speakers of its own would be too little of a corpus, or too much."""
TEXTS: dict[str, Callable[[str], str]] = {
    "keep": lambda text: " ".join(text.split()),
    "english": english,
    "mandarin": mandarin,
}
"""What is done with transcripts."""
LHOTSE_FIELDS = frozenset({"recording", "supervisions"})


def add_options(parser: ArgumentParser) -> None:
    """The options of `read_corpus` that its command lines share."""
    parser.add_argument("--dev", type=Path, help="transcripts of the development part, where it has its own")
    parser.add_argument("--test", type=Path, help="transcripts of the test part, where it has its own")
    parser.add_argument("--audio", type=Path, help="folder in which audio is looked for (default: as transcripts say)")
    parser.add_argument("--form", choices=READERS, help="of the transcripts (default: by their names)")
    parser.add_argument("--text", choices=TEXTS, default="keep", help="how texts are made one (default: %(default)s)")


def read_corpus(
    transcripts: Path,
    *,
    dev: Path | None = None,
    test: Path | None = None,
    form: str | None = None,
    audio: Path | None = None,
    relative_to: Path = Path(),
    text: str = "keep",
) -> dict[str, list[Recording]]:
    """Utterances by part: `transcripts` are what is trained on, or all, where there is no file for another part.

    Raises:
        ListError: what `read_transcripts` and `into_parts` find; a file that says its utterances are of another part.
    """
    lines = read_transcripts(transcripts, form, audio, relative_to)
    if (dev or test) and not any(_part(line) for line in lines):
        lines = _of_part("train", lines, transcripts)
    for part, path in (("dev", dev), ("test", test)):
        if path:
            lines += _of_part(part, read_transcripts(path, form, audio, relative_to), path)
    return into_parts(lines, text)


def form_of(path: Path) -> str:
    """The form of a file of transcripts, from its name and, for JSON lines, from its first line.

    Raises:
        ListError: the name says nothing.
    """
    if path.is_dir():
        return "kaldi"
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    if suffixes == [".jsonl", ".gz"]:
        return "lhotse"
    last = suffixes[-1] if suffixes else ""
    if last in (".tsv", ".csv"):
        return last[1:]
    if last in (".json", ".jsonl", ".list"):
        with open(path, encoding="utf-8", errors="replace") as file:
            first = file.readline()
        return "lhotse" if all(f'"{name}"' in first for name in LHOTSE_FIELDS) else "nemo"
    raise ListError(f"{path}: its name does not say what it is; say --form {', '.join(READERS)}")


def read_transcripts(
    path: Path, form: str | None = None, audio: Path | None = None, relative_to: Path = Path()
) -> list[RawLine]:
    """Utterances of a file of transcripts, with absolute paths of audio that is there.

    Args:
        form: one of READERS; None goes by the name of the file.
        audio: folder in which audio is looked for, by its relative path, with any suffix, or by its bare name.
        relative_to: folder of relative paths that lead nowhere from that of the transcripts.

    Raises:
        ListError: what the file holds that cannot be used; audio that is not there.
    """
    path = path.absolute()
    if not path.exists():
        raise ListError(f"{path}: not there; name a file of transcripts, or a Kaldi directory")
    form = form or form_of(path)
    lines = READERS[form](str(path))
    if not lines:
        raise ListError(f"{path}: no utterance in it")
    beside = path if path.is_dir() else path.parent
    folders = [folder for folder in dict.fromkeys((beside, audio, relative_to.absolute())) if folder]
    places = {line.wav: _place(line.wav, folders) for line in lines}
    by_path, by_name = _names_in(audio) if audio and None in places.values() else ({}, {})
    for wav, place in places.items():
        if place is None:
            same = by_path.get(wav) or by_path.get(str(Path(wav).with_suffix(""))) or by_name.get(Path(wav).stem) or []
            if len(same) != 1:
                lost = next(line for line in lines if line.wav == wav)
                found = f"may be {same[0]} or {same[1]}" if same else f"is not in {' or '.join(map(str, folders))}"
                is_header = lost is lines[0] and form in ("tsv", "csv") and not Path(wav).suffix
                hint = f"columns that the first row may name are {KNOWN_COLUMNS}" if is_header else "see --audio"
                raise ListError(f"{path}: {lost.key}: audio {wav} {found}; {hint}")
            places[wav] = str(same[0].absolute())
    return [replace(line, wav=str(places[line.wav])) for line in lines]


def into_parts(lines: Sequence[RawLine], text: str) -> dict[str, list[Recording]]:
    """Train, dev and test: as the utterances say themselves, or else a tenth each of the speakers or of the utterances.

    Raises:
        ListError: some say to which part they belong and others not, or an unknown one; a part that has none; a
            channel but the first; a key that comes twice.
    """
    lines = _with_keys(lines)
    for line in lines:
        if (channel := line.extra.get("channel")) not in (None, "", 0, "0"):
            raise ListError(f"{line.key}: channel {channel}; save the channel as a file of its own")
    told = {line.key: _field(line, "part") for line in lines}
    if any(_part(line) for line in lines):
        parts = _as_told(lines, told)
    else:
        if other := next(filter(None, told.values()), None):
            print(f"{PART_COLUMNS} says {other!r}, no name of a part: it is passed over", file=sys.stderr)
        parts = _split(lines, SHARES)
    normalize = TEXTS[text]
    return {
        part: [Recording(line.key, Path(line.wav), normalize(line.text), line.start, line.end) for line in of]
        for part, of in parts.items()
    }


def _place(wav: str, folders: Sequence[Path]) -> str | None:
    places = (os.path.abspath(Path(folder, wav)) for folder in folders)
    return next(filter(os.path.isfile, places), None)


def _names_in(folder: Path) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """Audio below a folder by its relative path without suffix, and by its bare name."""
    by_path: dict[str, list[Path]] = {}
    by_name: dict[str, list[Path]] = {}
    for wav in files_below(folder):
        if wav.suffix[1:].lower() in AUDIO_SUFFIXES:
            by_path.setdefault(str(wav.relative_to(folder).with_suffix("")), []).append(wav)
            by_name.setdefault(wav.stem, []).append(wav)
    return by_path, by_name


def _field(line: RawLine, name: str) -> str | None:
    """What a line says under any of the names in COLUMNS."""
    values = (str(line.extra[alias]).strip() for alias in COLUMNS[name] if line.extra.get(alias) is not None)
    return next(filter(None, values), None)


def _part(line: RawLine) -> str | None:
    """The part that a line says it is of, where that is one we know."""
    return PARTS.get((_field(line, "part") or "").lower())


def _of_part(part: str, lines: Sequence[RawLine], path: Path) -> list[RawLine]:
    for line in lines:
        if _part(line) not in (part, None):
            raise ListError(f"{path}: {line.key}: {PART_COLUMNS} says {_field(line, 'part')!r} in the file of {part}")
    return [replace(line, extra=line.extra | {"part": part}) for line in lines]


def _with_keys(lines: Sequence[RawLine]) -> list[RawLine]:
    """Lines with keys that have no spaces; where keys meet, those that are the name of the audio get its folders."""
    lines = [replace(line, key=without_spaces(line.key)) for line in lines]
    if len({line.key for line in lines}) < len(lines):
        top = os.path.commonpath([os.path.dirname(line.wav) for line in lines])
        lines = [replace(line, key=_key_from_path(line, top)) for line in lines]
    wav_of: dict[str, str] = {}
    for line in lines:
        if line.key in wav_of:
            raise ListError(f"{line.key}: two utterances have this key, of {wav_of[line.key]} and {line.wav}")
        wav_of[line.key] = line.wav
    return lines


def _key_from_path(line: RawLine, top: str) -> str:
    stem = without_spaces(Path(line.wav).stem)
    if line.key not in (stem, f"{stem}_{round(line.start * 1000):07d}", f"{stem}_{line.start:g}"):
        return line.key
    return without_spaces("-".join((*Path(line.wav).parent.relative_to(top).parts, line.key)))


def _as_told(lines: Sequence[RawLine], told: Mapping[str, str | None]) -> dict[str, list[RawLine]]:
    parts: dict[str, list[RawLine]] = {"train": [], "dev": [], "test": []}
    for line in lines:
        name = told[line.key]
        if name is None:
            other = next(key for key, part in told.items() if part)
            raise ListError(f"{line.key}: no part, but {other} has one; give all one, or none")
        if name.lower() not in PARTS:
            raise ListError(f"{line.key}: {PART_COLUMNS} says {name!r}; known: {', '.join(PARTS)}")
        parts[PARTS[name.lower()]].append(line)
    empty = [part for part, of in parts.items() if not of]
    if empty == ["dev"]:
        parts |= _split(parts["train"], {"dev": SHARES["dev"]})
        print(f"no utterance is for dev: {len(parts['dev'])} of train are taken for it", file=sys.stderr)
    elif empty:
        files = " and ".join("--from (--data)" if part == "train" else f"--{part}" for part in empty)
        raise ListError(f"no utterance is for {' and '.join(empty)}: say so in {PART_COLUMNS}, or give {files}")
    return parts


def _split(lines: Sequence[RawLine], shares: Mapping[str, float]) -> dict[str, list[RawLine]]:
    """Train and the parts of `shares`, of each a speaker at least; of each an utterance where speakers are few."""
    group_of = {line.key: _field(line, "speaker") or line.key for line in lines}
    if len(set(group_of.values())) < min(FEW_SPEAKERS, len(lines)):
        speakers = len(set(group_of.values()))
        print(f"{speakers} speakers are few: utterances are divided, so that dev and test know them", file=sys.stderr)
        group_of = {key: key for key in group_of}
    groups = sorted(set(group_of.values()), key=lambda group: (crc32(group.encode()), group))
    if len(groups) <= len(shares):
        parts = ", ".join(["train", *shares])
        raise ListError(f"{len(groups)} utterances cannot be divided into {parts}: add some, or say part of each")
    parts = split_by(lambda line: group_of[line.key], lines, shares)
    if all(parts.values()):
        return parts
    part_of: dict[str, str] = {}
    for part, share in shares.items():
        first = len(part_of)
        part_of |= dict.fromkeys(groups[first : first + max(1, round(len(groups) * share / 100))], part)
    return {part: [line for line in lines if part_of.get(group_of[line.key], "train") == part] for part in parts}
