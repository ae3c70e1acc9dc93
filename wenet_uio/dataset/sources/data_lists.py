"""Sources that are data lists of this package: raw lists and shard lists."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import Field, model_validator

from wenet_uio.dataset.sources.lists import AudioSourceConf, SourceList, listed

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

        fields: dict[str, Any] = {"rename": dict(rename)}
        for name, members in MEMBERS_OF.items():
            key = f"{name}_field"
            member = next((renamed for renamed in members if renamed in rename), None)
            if name in rename and values.get(key) is not None:
                raise ValueError(f"rename and {key} name the same field: give one of them")
            if name in rename:
                fields[key] = fields["rename"].pop(name)
            elif member and values.get(key) is None:
                raise ValueError(
                    f"rename: the {name} is named {name}: write {name}: {rename[member]}, not "
                    f"{member}"
                )

        return {**values, **fields}


def _raw_lists(conf: RawConf) -> list[SourceList]:
    return [SourceList(conf.data_list, "raw", conf.layout)]


def _shard_lists(conf: ShardConf) -> list[SourceList]:
    layout = replace(conf.layout, rename=tuple(sorted(conf.rename.items())))
    return [SourceList(conf.data_list, "shard", layout)]


RAW = listed(RawConf, _raw_lists)
SHARD = listed(ShardConf, _shard_lists)
