"""Corpora as they lie on people's disks, made of recordings of FSDD."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import copyfile
from typing import NamedTuple

import numpy as np
import soundfile

from tests.support.data.parquet import write_table

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RATE = 8000
PAUSE = 0.75
"""Seconds between the digits of a long recording."""


class Said(NamedTuple):
    """A recording of FSDD with its text."""

    wav: Path
    text: str

    @property
    def samples(self) -> np.ndarray:
        return soundfile.read(self.wav, dtype="int16")[0]


def recordings(
    corpora: Path, speakers: Sequence[str] = ("theo", "jackson"), takes: int = 2
) -> list[Said]:
    """Takes of each digit by each speaker; base names are equal to those of other speakers."""
    folder = corpora / "fsdd" / "recordings"
    return [
        Said(folder / f"{digit}_{speaker}_{take}.wav", f"{text} digit")
        for speaker in speakers
        for digit, text in enumerate(DIGITS)
        for take in range(takes)
    ]


def _place(said: Said) -> str:
    """Path in a corpus: the speaker is a folder, so that base names are equal in several
    folders.
    """
    digit, speaker, take = said.wav.stem.split("_")
    return f"{speaker}/{digit}_{take}.wav"


def _copied(folder: Path, said: Sequence[Said]) -> list[tuple[Path, str]]:
    found = []
    for each in said:
        path = folder / _place(each)
        path.parent.mkdir(parents=True, exist_ok=True)
        copyfile(each.wav, path)
        found.append((path, each.text))
    return found


def pairs(folder: Path, said: Sequence[Said]) -> Path:
    for path, text in _copied(folder, said):
        path.with_suffix(".txt").write_text(f"{text}\n")
    return folder


def transcripts(folder: Path, said: Sequence[Said]) -> Path:
    rows = [
        f"{path.relative_to(folder).with_suffix('')} {text}\n"
        for path, text in _copied(folder, said)
    ]
    (folder / "transcripts.txt").write_text("".join(rows))
    return folder


def ljspeech(folder: Path, said: Sequence[Said]) -> Path:
    rows = []
    for path, text in _copied(folder / "wavs", said):
        rows.append(
            f"{path.relative_to(folder / 'wavs').with_suffix('')}|{text.title()}, 1|{text}\n"
        )
    (folder / "metadata.csv").write_text("".join(rows))
    return folder


class Spoken(NamedTuple):
    """A text in a long recording."""

    start: float
    end: float
    text: str


def _long(folder: Path, said: Sequence[Said]) -> dict[str, list[Spoken]]:
    """Write a long recording of each speaker; gives what is said in it, by its name."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[Spoken]] = {}
    for speaker in dict.fromkeys(each.wav.stem.split("_")[1] for each in said):
        pieces, place = [], 0
        for each in (one for one in said if one.wav.stem.split("_")[1] == speaker):
            samples = each.samples[: len(each.samples) // 8 * 8]  # whole milliseconds
            pause = np.zeros(round(PAUSE * RATE), np.int16)
            pieces += [pause, samples]
            start = place + len(pause)
            place = start + len(samples)
            found.setdefault(speaker, []).append(Spoken(start / RATE, place / RATE, each.text))
        soundfile.write(folder / f"{speaker}.wav", np.concatenate(pieces), RATE)
    return found


def _clock(seconds: float, mark: str) -> str:
    whole = round(seconds * 1000)
    return f"{whole // 3600000:02d}:{whole // 60000 % 60:02d}:{whole // 1000 % 60:02d}{mark}{whole % 1000:03d}"


def srt(folder: Path, said: Sequence[Said]) -> Path:
    for name, spoken in _long(folder, said).items():
        cues = [
            f"{number}\r\n{_clock(start, ',')} --> "
            f"{_clock(end, ',')}\r\n<i>{text.replace(' ', chr(10))}</i>\r\n\r\n"
            for number, (start, end, text) in enumerate(spoken, 1)
        ]
        (folder / f"{name}.en.srt").write_text("\ufeff" + "".join(cues), newline="")
    return folder


def vtt(folder: Path, said: Sequence[Said]) -> Path:
    for name, spoken in _long(folder, said).items():
        cues = [
            f"{_clock(start, '.')} --> {_clock(end, '.')} align:start\n<v {name}>{text}</v>\n\n"
            for start, end, text in spoken
        ]
        (folder / f"{name}.vtt").write_text("WEBVTT\n\nNOTE made by a test\n\n" + "".join(cues))
    return folder


def textgrid(folder: Path, said: Sequence[Said]) -> Path:
    for name, spoken in _long(folder, said).items():
        end = spoken[-1].end
        lines = [
            'File type = "ooTextFile"',
            'Object class = "TextGrid"',
            "",
            "xmin = 0",
            f"xmax = {end}",
        ]
        lines += [
            "tiers? <exists>",
            "size = 2",
            "item []:",
            "    item [1]:",
            '        class = "IntervalTier"',
        ]
        lines += ['        name = "said"', "        xmin = 0", f"        xmax = {end}"]
        intervals, place = [], 0.0
        for each in spoken:
            intervals += [(place, each.start, ""), each]
            place = each.end
        lines.append(f"        intervals: size = {len(intervals)}")
        for number, (first, last, text) in enumerate(intervals, 1):
            lines += [
                f"        intervals [{number}]:",
                f"            xmin = {first}",
                f"            xmax = {last}",
            ]
            lines.append(f'            text = "{text}"')
        lines += [
            "    item [2]:",
            '        class = "TextTier"',
            '        name = "bell [2]"',
            "        xmin = 0",
        ]
        lines += [f"        xmax = {end}", "        points: size = 1", "        points [1]:"]
        lines += ["            number = 0.5", '            mark = "a ""bell"" 3"']
        (folder / f"{name}.TextGrid").write_text("\n".join(lines) + "\n", encoding="utf-16")
    return folder


def ctm(folder: Path, said: Sequence[Said]) -> Path:
    rows = [";; recording channel start duration word"]
    for name, spoken in _long(folder, said).items():
        for start, end, text in spoken:
            words = text.split()
            length = (end - start) / len(words)
            rows += [
                f"{name} 1 {start + n * length:.4f} {length:.4f} {word} 0.9"
                for n, word in enumerate(words)
            ]
    (folder / "words.ctm").write_text("\n".join(rows) + "\n")
    return folder


def stm(folder: Path, said: Sequence[Said]) -> Path:
    for name, spoken in _long(folder, said).items():
        rows = [f"{name} 1 {name} {start} {end} <o,f0,male> {text}" for start, end, text in spoken]
        (folder / f"{name}.stm").write_text("\n".join([";; a comment", *rows]) + "\n")
    return folder


def parquet(folder: Path, said: Sequence[Said]) -> Path:
    (folder / "data").mkdir(parents=True)
    rows = [
        {
            "audio": {"bytes": each.wav.read_bytes(), "path": _place(each)},
            "sentence": each.text,
            "file": _place(each),
        }
        for each in said
    ]
    for number, part in enumerate((rows[::2], rows[1::2])):
        write_table(folder / "data" / f"all-{number:05d}-of-00002.parquet", part, 3)
    return folder


def audacity(folder: Path, said: Sequence[Said]) -> Path:
    for name, spoken in _long(folder, said).items():
        rows = [f"{start:.6f}\t{end:.6f}\t{text}\n" for start, end, text in spoken]
        rows.insert(1, "\\\t100.000000\t4000.000000\n")  # frequencies of the first label
        rows.append("0.100000\t0.100000\ta point\n")
        (folder / f"{name}.txt").write_text("".join(rows))
    return folder


def elan(folder: Path, said: Sequence[Said]) -> Path:
    for name, spoken in _long(folder, said).items():
        slots, texts, notes = "", "", ""
        for number, (start, end, text) in enumerate(spoken):
            for side, time in enumerate((start, end)):
                slots += f'<TIME_SLOT TIME_SLOT_ID="ts{number}_{side}" TIME_VALUE="{round(time * 1000)}"/>'
            texts += (
                f'<ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a{number}" TIME_SLOT_REF1="ts{number}_0" '
                f'TIME_SLOT_REF2="ts{number}_1"><ANNOTATION_VALUE>{text}</ANNOTATION_VALUE>'
                "</ALIGNABLE_ANNOTATION></ANNOTATION>"
            )
            notes += (
                f'<ANNOTATION><REF_ANNOTATION ANNOTATION_ID="n{number}" ANNOTATION_REF="a{number}">'
                "<ANNOTATION_VALUE>a note</ANNOTATION_VALUE></REF_ANNOTATION></ANNOTATION>"
            )
        (folder / f"session of {name}.eaf").write_text(
            '<?xml version="1.0" encoding="UTF-8"?><ANNOTATION_DOCUMENT VERSION="3.0"><HEADER MEDIA_FILE="" '
            f'TIME_UNITS="milliseconds"><MEDIA_DESCRIPTOR MEDIA_URL="file:///C:/data/{name}.wav" '
            f'RELATIVE_MEDIA_URL="./{name}.wav"/></HEADER><TIME_ORDER>{slots}</TIME_ORDER>'
            f'<TIER LINGUISTIC_TYPE_REF="utterance" PARTICIPANT="{name}" TIER_ID="words">{texts}</TIER>'
            f'<TIER LINGUISTIC_TYPE_REF="note" PARENT_REF="words" TIER_ID="notes">{notes}</TIER></ANNOTATION_DOCUMENT>'
        )
    return folder


LAYOUTS: dict[str, Callable[[Path, Sequence[Said]], Path]] = {
    "pairs": pairs,
    "transcripts": transcripts,
    "ljspeech": ljspeech,
    "srt": srt,
    "vtt": vtt,
    "textgrid": textgrid,
    "ctm": ctm,
    "stm": stm,
    "audacity": audacity,
    "elan": elan,
    "parquet": parquet,
}
"""Form -> a function that writes the corpus, and gives what `new_recipe.py --from` takes."""
LONG = frozenset({"srt", "vtt", "textgrid", "ctm", "stm", "audacity", "elan"})
