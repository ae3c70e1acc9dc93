"""Which members of a tar make a sample, and which of them are its audio and its text: WeNet's way and WebDataset's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal, NamedTuple

from wenet_uio.dataset.formats.data_list import TEXT, ListError, RawLine
from wenet_uio.dataset.formats.tar_members import Member

AUDIO_SUFFIXES = frozenset(
    ("wav", "flac", "mp3", "ogg", "opus", "m4a", "aac", "wma", "webm", "aif", "aiff", "au", "sph", "w64", "caf")
)
"""What the suffix of an audio member may be."""
TEXT_SUFFIXES = ("txt", "text", "transcript", "json", "cls")
"""What the suffix of a member with the text may be, in the order of preference."""
JSON_TEXT = (*TEXT, "transcript")
"""Names that the text may have in a JSON member, in the order of preference."""
EXTRA_BYTES = 4096
"""Other members of up to this size are kept with the sample when they are text."""

KeyEnds = Literal["auto", "first", "last"]


@dataclass(frozen=True)
class Layout:
    """What a user says about shards or manifests of another tool; the defaults find out by themselves."""

    key_ends: KeyEnds = "auto"
    """Dot of a member's name at which the key ends: last (ours, WeNet's), first (WebDataset's)."""
    audio_field: str | None = None
    """What follows the key in the name of the audio member, where a sample has several: `mic2.wav`."""
    text_field: str | None = None
    """The same for the text; also the name of the text in a JSON member or a manifest."""

    @property
    def suffix(self) -> str:
        """What keeps the names of indexes apart that are made with another layout; empty for the default."""
        if self == DEFAULT_LAYOUT:
            return ""
        return f".{hashlib.blake2b(repr(astuple(self)).encode(), digest_size=4).hexdigest()}"


DEFAULT_LAYOUT = Layout()


class FoundSample(NamedTuple):
    """A sample of a tar before its audio is looked at."""

    line: RawLine
    """Its key, text, segment and other fields; `wav` is the member."""
    audio: Member
    text: Member | None
    """The member that is the text as it stands; None when the text comes from elsewhere."""


Fields = dict[str, Member]
ReadMember = Callable[[Member], bytes]


def find_samples(
    members: Sequence[Member], layout: Layout, read: ReadMember
) -> tuple[list[FoundSample], list[tuple[str, str]]]:
    """Group the members of a tar into samples.

    Consecutive members of one key are a sample. Where the user does not say at which dot keys end, the way that makes
    more whole samples is taken, then the one that leaves fewer members over, then the last dot.

    Returns:
        the samples, and (key, reason) of those that lack audio or text.
    """
    ways = ("last", "first") if layout.key_ends == "auto" else (layout.key_ends,)
    groups = max((list(_grouped(members, way)) for way in ways), key=_wholeness)
    samples, bad = [], []
    for key, fields, twice in groups:
        try:
            if twice:
                raise ListError(f"member {twice} is there twice")
            samples.append(_sample(key, fields, layout, read))
        except ListError as error:
            bad.append((key, str(error)))
    return samples, bad


def _grouped(members: Sequence[Member], way: str) -> Iterator[tuple[str, Fields, str]]:
    """Key and fields of each sample, and a field that came twice."""
    key, fields, twice = "", {}, ""
    for member in members:
        own, field = split_name(member.name, way)
        if own != key and fields:
            yield key, fields, twice
            fields, twice = {}, ""
        key = own
        if field in fields:
            twice = field
        fields[field] = member
    if fields:
        yield key, fields, twice


def split_name(name: str, way: str) -> tuple[str, str]:
    """Key (with its folders) and field, in lower case, of a member; `way` is first or last."""
    folder, slash, base = name.rpartition("/")
    key, field = base.split(".", 1) if way == "first" and "." in base else base.rpartition(".")[::2]
    return f"{folder}{slash}{key}", field.lower()


def _wholeness(groups: list[tuple[str, Fields, str]]) -> tuple[int, int]:
    whole = sum(
        not twice and any(map(is_audio, fields)) and any(_suffix(field) in TEXT_SUFFIXES for field in fields)
        for _, fields, twice in groups
    )
    return whole, whole - len(groups)


def _sample(key: str, fields: Fields, layout: Layout, read: ReadMember) -> FoundSample:
    """Raises: ListError: no audio or no text, or a JSON member that is none."""
    audio = _audio_field(fields, layout)
    extra = _extra(fields, audio, read)
    text, member = _text(fields, extra, layout, read)
    if text is None:
        raise ListError(f"no text among its members: {', '.join(fields)}")
    return FoundSample(RawLine(key, fields[audio].name, text, extra=extra), fields[audio], member)


def _audio_field(fields: Fields, layout: Layout) -> str:
    """The field that is asked for; else `wav` before `x.wav`, and what comes first in the tar."""
    if layout.audio_field:
        if layout.audio_field not in fields:
            raise ListError(f"no {layout.audio_field} among its members: {', '.join(fields)}")
        return layout.audio_field
    audio = sorted(filter(is_audio, fields), key=lambda field: "." in field)
    if not audio:
        raise ListError(f"no audio among its members: {', '.join(fields)}")
    return audio[0]


def _text(fields: Fields, extra: dict[str, Any], layout: Layout, read: ReadMember) -> tuple[str | None, Member | None]:
    """The text and the member that it is, taking what it takes out of `extra`."""
    wanted = layout.text_field
    for field in [wanted] if wanted else _by_preference(fields):
        if field in fields and _suffix(field) != "json":
            extra.pop(field, None)
            return _decoded(fields[field], read), fields[field]
        for name in [wanted] if wanted else JSON_TEXT:
            if isinstance(extra.get(name), str):
                return extra.pop(name), None
    return None, None


def _by_preference(fields: Fields) -> list[str]:
    known = [field for field in fields if _suffix(field) in TEXT_SUFFIXES]
    return sorted(known, key=lambda field: (TEXT_SUFFIXES.index(_suffix(field)), "." in field))


def _extra(fields: Fields, audio: str, read: ReadMember) -> dict[str, Any]:
    """What comes with a sample: fields of its `json`, other JSON members, and small members that are text."""
    extra: dict[str, Any] = {}
    several = sum(_suffix(field) == "json" for field in fields) > 1
    for field, member in fields.items():
        if _suffix(field) == "json":
            try:
                values = json.loads(_decoded(member, read))
            except ValueError as error:
                raise ListError(f"member {field} is not JSON ({error})") from None
            own_name = not isinstance(values, dict) or (several and field != "json")
            extra |= {field: values} if own_name else values
        elif field != audio and not is_audio(field) and member.size <= EXTRA_BYTES:
            try:
                extra[field] = _decoded(member, read)
            except ListError:
                continue  # a small binary member: not for the text or its tags
    return extra


def _decoded(member: Member, read: ReadMember) -> str:
    try:
        return read(member).decode()
    except UnicodeDecodeError as error:
        raise ListError(f"member {member.name} is not UTF-8 ({error.reason} at byte {error.start})") from None


def is_audio(field: str) -> bool:
    return _suffix(field) in AUDIO_SUFFIXES


def _suffix(field: str) -> str:
    return field.rpartition(".")[2]
