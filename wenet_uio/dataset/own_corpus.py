"""A corpus of one's own: audio and a file of transcripts, of whatever form, as parts to train, develop and test on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from wenet_uio.dataset.audio import audio_info
from wenet_uio.dataset.data_dir import Recording, audio_files, split_by
from wenet_uio.dataset.data_list import ListError, RawLine
from wenet_uio.dataset.manifests import READERS
from wenet_uio.dataset.shard_layout import AUDIO_SUFFIXES
from wenet_uio.text.normalize import english, mandarin

PARTS = {"train": "train", "dev": "dev", "valid": "dev", "validation": "dev", "eval": "dev", "test": "test"}
"""What a column or field `part` (or split, subset) may say."""
SHARES = {"dev": 10.0, "test": 10.0}
"""In percent, of the speakers, or of the utterances where none are known."""
TEXTS: dict[str, Callable[[str], str]] = {
    "keep": lambda text: " ".join(text.split()),
    "english": english,
    "mandarin": mandarin,
}
"""What is done with transcripts."""
LHOTSE_FIELDS = frozenset({"recording", "supervisions"})


def form_of(path: Path) -> str:
    """The form of a file of transcripts, from its name and, for JSON lines, from its first line.

    Raises:
        ListError: the name says nothing.
    """
    if path.is_dir():
        return "kaldi"
    suffixes = path.suffixes
    if suffixes[-2:] == [".jsonl", ".gz"]:
        return "lhotse"
    if path.suffix in (".tsv", ".csv"):
        return path.suffix[1:]
    if path.suffix in (".json", ".jsonl", ".list"):
        with open(path, encoding="utf-8") as file:
            first = file.readline()
        return "lhotse" if all(f'"{name}"' in first for name in LHOTSE_FIELDS) else "nemo"
    raise ListError(f"{path}: its name does not say what it is; say --form {', '.join(READERS)}")


def read_transcripts(path: Path, form: str | None, audio: Path | None) -> list[RawLine]:
    """Utterances of a file of transcripts.

    Args:
        form: one of READERS; None goes by the name of the file.
        audio: folder in which audio is looked for, by its relative path, with any suffix, or by its bare name.

    Raises:
        ListError: what the file holds that cannot be used; audio that is not in the folder.
    """
    lines = READERS[form or form_of(path)](str(path))
    if not lines:
        raise ListError(f"{path}: no utterance in it")
    if audio is None:
        return lines
    found = audio_files(
        audio, *(f".{suffix}" for suffix in AUDIO_SUFFIXES), key=lambda wav: str(wav.relative_to(audio).with_suffix(""))
    )
    by_name: dict[str, list[Path]] = {}
    for wav in found.values():
        by_name.setdefault(wav.stem, []).append(wav)

    def sought(line: RawLine) -> RawLine:
        wav = Path(line.wav)
        if wav.is_absolute() and wav.is_file():
            return line
        there = found.get(str(wav)) or found.get(str(wav.with_suffix("")))
        matches = [there] if there else by_name.get(wav.stem, [])
        if len(matches) != 1:
            what = "is not there" if not matches else f"may be {matches[0]} or {matches[1]}"
            raise ListError(f"{path}: {line.key}: audio {line.wav} {what} in {audio}")
        return replace(line, wav=str(matches[0]))

    return [sought(line) for line in lines]


def into_parts(lines: Sequence[RawLine], text: str) -> dict[str, list[Recording]]:
    """Train, dev and test: as the utterances say themselves, or else a tenth each of the speakers or of the utterances.

    Raises:
        ListError: some say to which part they belong and others not, or an unknown part; a channel but the first.
    """
    told = [line for line in lines if "part" in line.extra]
    if told and len(told) < len(lines):
        odd = next(line for line in lines if "part" not in line.extra)
        raise ListError(f"{odd.key}: no part, but {told[0].key} has one; give all one, or none")
    for line in lines:
        if line.extra.get("channel"):
            raise ListError(f"{line.key}: channel {line.extra['channel']}; save the channel as a file of its own")
    are_cut = any(line.start or line.end is not None for line in lines)
    recordings = {line.key: _recording(line, TEXTS[text], are_cut) for line in lines}
    if len(recordings) < len(lines):
        seen: set[str] = set()
        twice = next(line.key for line in lines if line.key in seen or seen.add(line.key))
        raise ListError(f"{twice}: two utterances have this key")
    if told:
        parts: dict[str, list[Recording]] = {"train": [], "dev": [], "test": []}
        for line in lines:
            name = str(line.extra["part"]).lower()
            if name not in PARTS:
                raise ListError(f"{line.key}: part {name!r}; known: {', '.join(PARTS)}")
            parts[PARTS[name]].append(recordings[line.key])
        return parts
    split = split_by(lambda line: str(line.extra.get("speaker", line.key)), lines, SHARES)
    return {part: [recordings[line.key] for line in of] for part, of in split.items()}


def _recording(line: RawLine, normalize: Callable[[str], str], is_cut: bool) -> Recording:
    end = line.end
    if is_cut and end is None:
        info = audio_info(line.wav)
        end = info.num_samples / info.sample_rate
    return Recording(line.key, Path(line.wav), normalize(line.text), line.start, end)
