"""Sources that are data lists of this package: raw lists and shard lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field, model_validator

from wenet_uio.dataset.corpus.open_list import ListSource
from wenet_uio.dataset.sources.lists import AudioSourceConf, listed

MEMBERS_OF = {"audio": ("wav", "flac", "mp3", "ogg", "opus"), "text": ("txt", "transcript")}
"""{field: usual names of its member in a tar}."""


class RawConf(AudioSourceConf):
    """A raw list: JSON lines that name audio files."""

    data_list: str


class ShardConf(AudioSourceConf):
    """A shard list: tars with audio and texts."""

    data_list: str
    rename: dict[str, str] = Field(default_factory=dict)
    """New names of fields, as `rename` of WebDataset: {audio: flac;wav, text: txt, speaker:
    spk.txt}. `audio` and `text` are other ways to write audio_field and text_field."""

    @model_validator(mode="before")
    @classmethod
    def _fields_of_rename(cls, values: Any) -> Any:
        """Return the keys with `audio` and `text` of `rename` as audio_field and text_field."""
        rename = values.get("rename") if isinstance(values, dict) else None
        if not rename or not isinstance(rename, dict):
            return values

        _refuse_key(rename)
        fields: dict[str, Any] = {"rename": dict(rename)}
        for name, members in MEMBERS_OF.items():
            key = f"{name}_field"
            if name in rename:
                if values.get(key) is not None:
                    raise ValueError(f"rename and {key} name the same field: give one of them")
                fields[key] = fields["rename"].pop(name)
            elif values.get(key) is None:
                _refuse_member(rename, name, members)

        return {**values, **fields}


def _refuse_key(rename: Mapping[str, Any]) -> None:
    """Raise a ValueError if a rename would give samples another key."""
    key = next((name for name in ("key", "__key__") if name in rename), None)
    if key:
        raise ValueError(
            f"rename: {key}: {rename[key]}: the key of a sample is the name that its members "
            "share, and no field of them; remove it, or pack the samples under other names"
        )


def _refuse_member(rename: Mapping[str, Any], name: str, members: Sequence[str]) -> None:
    """Raise a ValueError if a rename gives a field the usual name of its member."""
    member = next((renamed for renamed in members if renamed in rename), None)
    if member:
        raise ValueError(
            f"rename: the {name} is named {name}: write {name}: {rename[member]}, not {member}"
        )


def _raw_lists(conf: RawConf) -> list[ListSource]:
    return [ListSource(conf.data_list, "raw", conf.layout)]


def _shard_lists(conf: ShardConf) -> list[ListSource]:
    layout = replace(conf.layout, rename=tuple(sorted(conf.rename.items())))
    return [ListSource(conf.data_list, "shard", layout)]


RAW = listed(RawConf, _raw_lists)
SHARD = listed(ShardConf, _shard_lists)
