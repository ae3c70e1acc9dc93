"""Samples of a tar: which members belong together, and which of them are the audio and the text.

Consecutive members with one key are a sample. Folders are part of the key. A key ends at the last
dot of the name, as in WeNet and this project (`a.b.wav` is the field `wav` of the key `a.b`), or at
the first dot, as in WebDataset (the field `b.wav` of the key `a`), or where the suffix of the audio
begins (`a.b.wav` and `a.b.en.txt` are the fields `wav` and `en.txt` of the key `a.b`). For each tar
the way is taken that gives more whole samples. If several give as many, the way that gives fewer
incomplete samples is taken, then the last dot, then the first.

| of a sample | comes from |
|---|---|
| audio | the member whose field is a suffix of audio (`wav`), before `far.wav`; of several, the first in the tar |
| text | `txt`, `text`, `transcript`, then `txt`, `text` or `transcript` of a JSON object, then `cls` |
| other fields | the other values of the JSON object, and other members of up to 4 KB that are UTF-8 text |

Members with two equal fields make a sample bad. Arrays in `.npy`, `.pth` and `.pt` are audio if a
sample has no other: features (frames, features), or a waveform at 16 kHz, which is bad if JSON
states another rate. Matrices of Kaldi in `.ark` are features. `.pyd` is never opened.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal, NamedTuple

from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.read import audio_info
from wenet_uio.audio.tensors import RATE
from wenet_uio.dataset.formats.data_list import TEXT, RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import as_word, one_word
from wenet_uio.dataset.formats.tar_headers import (
    BLOCK,
    EXTENDED,
    KIND_AT,
    LOOK_BACK,
    member_before,
)
from wenet_uio.dataset.formats.tar_members import Member, plain_name
from wenet_uio.text.characters import without_mark

PLAIN_SUFFIXES = ("wav", "wave", "w64", "aif", "aiff", "aifc", "au", "snd", "caf", "sph")
LOSSLESS_SUFFIXES = ("flac", "wv", "tta")
LOSSY_SUFFIXES = ("mp3", "mp2", "ogg", "oga", "opus", "m4a", "aac", "ac3", "wma", "webm", "mka")
TELEPHONE_SUFFIXES = ("amr", "awb", "3ga")
AUDIO_SUFFIXES = frozenset(
    (*PLAIN_SUFFIXES, *LOSSLESS_SUFFIXES, *LOSSY_SUFFIXES, *TELEPHONE_SUFFIXES)
)
"""Suffixes of audio members. Those of video (mp4, avi, ts) are none: beside them lies the audio."""
ARRAY_SUFFIXES = frozenset(("ark", "npy", "pth", "pt"))
"""Suffixes of members that may hold a waveform or features as an array; `ark` is a matrix of
Kaldi."""
RATES = ("sample_rate", "sampling_rate", "sr")
"""Names of the sample rate in a JSON member."""
TEXT_SUFFIXES = ("txt", "text", "transcript", "json", "cls")
"""Suffixes of members that contain the text, in the order of preference."""
JSON_TEXT = (*TEXT, "transcript")
"""Names of the text in a JSON member, in the order of preference."""
EXTRA_BYTES = 4096
"""Other members of up to this size are kept with the sample if they are UTF-8 text."""

KeyEnds = Literal["auto", "first", "last", "audio"]


@dataclass(frozen=True)
class Layout:
    """Options of a user for shards and manifests that another tool made; the defaults detect the
    layout.
    """

    key_ends: KeyEnds = "auto"
    """Dot in the name of a member at which the key ends: last (WeNet and this project), first
    (WebDataset), audio (that before the suffix of the audio), or auto."""
    audio_field: str | None = None
    """Field of the audio, the part of the member's name after the key, for samples with several:
    `mic2.wav`. Several alternatives are separated by semicolons, as in WebDataset: the first that a
    sample has."""
    text_field: str | None = None
    """Field of the text; also the name of the text in a JSON member or a manifest. It may have
    alternatives too."""
    rename: tuple[tuple[str, str], ...] = ()
    """New names of other fields, each with its old name or alternatives."""

    @property
    def suffix(self) -> str:
        """Part of the file name of an index that differs between layouts; empty for the default
        layout.
        """
        if self == DEFAULT_LAYOUT:
            return ""
        # As in versions that renamed nothing
        options = astuple(self) if self.rename else astuple(self)[:3]
        return f".{hashlib.blake2b(repr(options).encode(), digest_size=4).hexdigest()}"


DEFAULT_LAYOUT = Layout()


class FoundSample(NamedTuple):
    """A sample of a tar whose audio has not been read yet."""

    line: RawLine
    """Key, text, segment and other fields; `wav` is the name of the audio member."""
    audio: Member
    text: Member | None
    """The member that contains just the text; None if the text comes from JSON or a manifest."""


Fields = dict[str, Member]
"""Members of a sample by field: the part of the name after the key."""
ReadMember = Callable[[Member], bytes]


class Group(NamedTuple):
    """Consecutive members with one key."""

    key: str
    fields: Fields
    double_field: str
    """A field that two members have; empty if there is none."""


def find_samples(
    members: Sequence[Member], layout: Layout, read: ReadMember
) -> tuple[list[FoundSample], list[tuple[str, str]]]:
    """Group the members of a tar into samples, as the docstring of this module describes.

    Args:
        read: reads the bytes of a member.

    Returns:
        the samples, and (key, reason) of groups that are not a sample: audio or text is missing, or
        a field is double.
    """
    members = _without_resource_forks(members)
    ways = ("last", "first", "audio") if layout.key_ends == "auto" else (layout.key_ends,)
    # Of equals, max takes the first: so the order of the ways counts.
    groups = max((list(_group_members(members, way)) for way in ways), key=_rate_groups)
    samples: list[FoundSample] = []
    refused: list[tuple[Group, str]] = []

    for group in groups:
        key, fields, double_field = group
        try:
            if double_field:
                raise ListError(f"two members with the field {double_field}")
            samples.append(_sample(key, fields, layout, read))
        except ListError as error:
            refused.append((group, str(error)))

    return samples, [
        (group.key.strip() or next(iter(group.fields.values())).name, reason)
        for group, reason in _join_parts(refused)
    ]


def _join_parts(refused: Sequence[tuple[Group, str]]) -> list[tuple[Group, str]]:
    """Return the groups that are no samples, and why; groups that together are a sample are named
    once, with how to pack the tar.
    """
    parts_of: dict[str, list[Group]] = {}
    for group, _ in refused:
        if not _is_whole(group):
            parts_of.setdefault(_without_folders(group.key), []).append(group)

    scattered = {name: parts for name, parts in parts_of.items() if _is_whole(_join_groups(parts))}
    joined = []
    for group, reason in refused:
        parts = scattered.get(_without_folders(group.key))
        if parts is None or _is_whole(group):
            joined.append((group, reason))
        elif group is parts[0]:
            joined.append((group, _describe_scattered(parts)))

    return joined


def _without_folders(key: str) -> str:
    return key.rpartition("/")[2]


def _join_groups(parts: Sequence[Group]) -> Group:
    """Return parts of a sample as one group."""
    fields = {name: member for part in parts for name, member in part.fields.items()}
    count = sum(len(part.fields) for part in parts)
    is_double = any(part.double_field for part in parts) or len(fields) < count
    double_field = next(iter(fields)) if is_double else ""
    return Group(parts[0].key, fields, double_field)


def _describe_scattered(parts: Sequence[Group]) -> str:
    """Say where the parts of a sample are, and how to pack the tar."""
    keys = list(dict.fromkeys(part.key for part in parts))
    if len(keys) == 1:
        return (
            "its audio and its text are not next to each other in the tar; pack the tar again in "
            "the order of names: tar --sort=name"
        )

    folders = " and ".join(f"{key.rpartition('/')[0] or '.'}/" for key in keys)
    return (
        f"its audio and its text are in different folders of the tar ({folders}); put them into "
        "one folder, and pack it in the order of names: tar --sort=name"
    )


def _without_resource_forks(members: Sequence[Member]) -> Sequence[Member]:
    """Leave out the member `._NAME` that tar of macOS writes for attributes of the member NAME."""
    names = {member.name for member in members}

    def is_fork(name: str) -> bool:
        folder, slash, base = name.rpartition("/")
        return base.startswith("._") and f"{folder}{slash}{base[2:]}" in names

    return [member for member in members if not is_fork(member.name)]


def _group_members(members: Sequence[Member], way: str) -> Iterator[Group]:
    """Yield the groups of members if keys end in this way: last, first or audio, as in `KeyEnds`."""
    key, fields, double_field = "", {}, ""
    audio_keys = _audio_keys(members) if way == "audio" else frozenset()
    for member in members:
        if way == "audio":
            member_key, field = _split_by_audio(member.name, audio_keys)
        else:
            member_key, field = split_name(member.name, way)

        if member_key != key and fields:
            yield Group(key, fields, double_field)
            fields, double_field = {}, ""

        key = member_key
        if field in fields:
            double_field = field

        fields[field] = member

    if fields:
        yield Group(key, fields, double_field)


def split_name(name: str, way: str) -> tuple[str, str]:
    """Return the key (with folders) and field (in lower case) of a member; `way` is the dot that
    ends the key: first or last.
    """
    folder, slash, base = name.rpartition("/")
    key, field = base.split(".", 1) if way == "first" and "." in base else base.rpartition(".")[::2]
    return f"{folder}{slash}{key}", field.lower()


def _audio_keys(members: Sequence[Member]) -> frozenset[str]:
    """Return the names of audio members up to their last dots."""
    split = (split_name(member.name, "last") for member in members)
    return frozenset(key for key, field in split if is_audio(field))


def _split_by_audio(name: str, audio_keys: frozenset[str]) -> tuple[str, str]:
    """Return the key and field of a member: the longest key of audio that its name continues."""
    folder, slash, base = name.rpartition("/")
    dots = [place for place, letter in enumerate(base) if letter == "."]
    for dot in reversed(dots):
        key = f"{folder}{slash}{base[:dot]}"
        if key in audio_keys:
            return key, base[dot + 1 :].lower()
    return split_name(name, "last")


def keys_of(name: str) -> set[str]:
    """Return the keys that a member may belong to: up to any dot of its name.

    `x/a.b.wav` may belong to `x/a` and to `x/a.b`; a name without a dot is its own key.
    """
    folder, slash, base = name.rpartition("/")
    parts = base.split(".")
    most_parts = max(1, len(parts) - 1)
    return {
        as_word(f"{folder}{slash}{'.'.join(parts[:count])}") for count in range(1, most_parts + 1)
    }


def is_member_of(key: str, data: memoryview, start: int, end: int) -> bool:
    """Tell whether a tar still has a member of this key where its index says.

    Args:
        key: of the sample, with folders.
        data: the bytes of the tar.
        start: first byte of the data of the member, behind its header.
        end: one past the last byte of the data.
    """
    size, header = end - start, start - BLOCK

    # A comparison of bytes confirms most members, and parsing is slower. It needs a name that the
    # header has whole: no extended header before it, no prefix (byte 345), and fewer than the 100
    # bytes of the field. The size is at bytes 124 to 134, in octal.
    if (
        header >= 2 * BLOCK
        and data[header - 2 * BLOCK + KIND_AT] not in EXTENDED
        and not data[header + 345]
    ):
        name = bytes(data[header : header + 100]).partition(b"\0")[0]
        prefix = f"{key}.".encode()
        field = name[len(prefix) :]
        is_of_key = (
            name.startswith(prefix) and len(name) < 100 and b"." not in field and b"/" not in field
        )
        if is_of_key and data[header + 124 : header + 135] == b"%011o" % size:
            return True

    name, stated_size = member_before(data[max(0, start - LOOK_BACK) : start])
    return stated_size == size and key in keys_of(plain_name(name))


def _rate_groups(groups: Sequence[Group]) -> tuple[int, int]:
    """Return (whole samples, minus incomplete samples): the better way to end keys has the larger
    pair.
    """
    whole = sum(map(_is_whole, groups))
    incomplete = len(groups) - whole
    return whole, -incomplete


def _is_whole(group: Group) -> bool:
    """Tell whether a group has audio and text, and no field twice."""
    has_audio = any(map(is_audio, group.fields))
    has_text = any(_suffix(field) in TEXT_SUFFIXES for field in group.fields)
    return has_audio and has_text and not group.double_field


def _sample(key: str, fields: Fields, layout: Layout, read: ReadMember) -> FoundSample:
    """Return the sample of the members with one key.

    Raises:
        ListError: audio or text is missing, or a JSON member is not JSON.
    """
    audio = _audio_field(fields, layout)
    extra = _extra(fields, audio, read)
    text, text_member = _text(fields, extra, layout, read)

    # An array does not say its rate itself; its sample may.
    rates = set()
    if _is_array(audio):
        rates = {extra[name] for name in RATES if isinstance(extra.get(name), int)}
    if rates - {RATE} and not _are_features(read(fields[audio])):
        raise ListError(
            f"{audio} is an array at {max(rates)} Hz; arrays are read at {RATE} Hz: store it as "
            "flac or wav"
        )

    if text is None:
        raise ListError(f"no text among its members: {', '.join(fields)}")

    extra = _rename_fields(extra, layout.rename)
    line = RawLine(one_word(key), fields[audio].name, text, extra=extra)
    return FoundSample(line, fields[audio], text_member)


def _rename_fields(extra: dict[str, Any], rename: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the other fields of a sample under new names.

    Args:
        rename: (new name, old names separated by `;`); the first old name that the sample has
            counts.
    """
    old_names: dict[str, str] = {}
    for new_name, alternatives in rename:
        for name in alternatives.split(";"):
            if name in extra:
                old_names[new_name] = name
                break

    kept = {name: value for name, value in extra.items() if name not in old_names.values()}
    return kept | {new_name: extra[old_name] for new_name, old_name in old_names.items()}


def _are_features(data: bytes) -> bool:
    try:
        return audio_info(data).is_features
    except AudioError:  # will be among the bad samples
        return False


def _audio_field(fields: Fields, layout: Layout) -> str:
    """Return the field of the layout; else an audio field without a dot before others, and the
    first in the tar.
    """
    if layout.audio_field:
        wanted = layout.audio_field.split(";")
        audio_field = next((field for field in wanted if field in fields), None)
        if audio_field is None:
            raise ListError(f"no {' or '.join(wanted)} among its members: {', '.join(fields)}")

        return audio_field

    audio = sorted(filter(is_audio, fields), key=lambda field: (_is_array(field), "." in field))
    if not audio:
        raise ListError(f"no audio among its members: {', '.join(fields)}")

    return audio[0]


def _text(
    fields: Fields, extra: dict[str, Any], layout: Layout, read: ReadMember
) -> tuple[str | None, Member | None]:
    """Return the text, and its member if that contains just the text; removes the text from
    `extra`.
    """
    wanted = layout.text_field.split(";") if layout.text_field else None
    for field in wanted or _likely_texts(fields):
        if field in fields and _suffix(field) != "json":
            extra.pop(field, None)
            return _decode_text(fields[field], read), fields[field]
        for name in [field] if wanted else JSON_TEXT:
            if isinstance(extra.get(name), str):
                return extra.pop(name), None

    return None, None


def _likely_texts(fields: Fields) -> list[str]:
    """Return the fields that may hold the text, the likeliest first.

    Raises:
        ListError: several are as likely.
    """
    known = [field for field in fields if _suffix(field) in TEXT_SUFFIXES]
    known.sort(key=lambda field: (TEXT_SUFFIXES.index(_suffix(field)), "." in field))
    texts = [field for field in known if _suffix(field) not in ("json", "cls")]
    rivals = [field for field in texts if _suffix(field) == _suffix(texts[0])]
    if len(rivals) > 1 and "." in rivals[0]:
        raise ListError(f"several texts: {', '.join(rivals)}; text_field chooses one")
    return known


def _extra(fields: Fields, audio: str, read: ReadMember) -> dict[str, Any]:
    """Return other fields of a sample: values of `json`, other JSON members, and small members that
    are text.
    """
    extra: dict[str, Any] = {}
    several = sum(_suffix(field) == "json" for field in fields) > 1
    for field, member in fields.items():
        if _suffix(field) == "json":
            # The values of `json` are fields themselves; those of `a.json` beside it are one field.
            values = _parsed(field, member, read)
            is_one_field = not isinstance(values, dict) or (several and field != "json")
            extra |= {field: values} if is_one_field else values
        elif field != audio and not is_audio(field) and member.size <= EXTRA_BYTES:
            try:
                extra[field] = _decode_text(member, read)
            except ListError:
                continue  # a small binary member

    return extra


def _parsed(field: str, member: Member, read: ReadMember) -> Any:
    try:
        return json.loads(_decode_text(member, read))
    except (ValueError, RecursionError) as error:
        raise ListError(f"member {field} is not JSON ({error})") from None


def _decode_text(member: Member, read: ReadMember) -> str:
    try:
        return without_mark(read(member).decode())
    except UnicodeDecodeError as error:
        raise ListError(
            f"member {member.name} is not UTF-8 ({error.reason} at byte {error.start})"
        ) from None


def is_audio(field: str) -> bool:
    """Tell whether a field is one of audio by its suffix, such as `wav` or `mic2.flac`."""
    return _suffix(field) in AUDIO_SUFFIXES or _is_array(field)


def _is_array(field: str) -> bool:
    return _suffix(field) in ARRAY_SUFFIXES


def _suffix(field: str) -> str:
    return field.rpartition(".")[2]
