"""The mixture of sources: a list of them, or `sources` with options. NeMo's input_cfg files are read too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, model_validator

from wenet_uio.config.base import ConfigError, Section, parse

Weight = Annotated[float, Field(gt=0)]
Paths = str | tuple[str, ...]
"""One pattern or several, with ranges and globs."""
Buckets = Paths | tuple[tuple[str, ...], ...]
"""NeMo's list of lists; a weight beside a path is an error: there it is a source of its own that has one."""
PerBatch = bool | Literal["weighted", "round_robin"]

KEYS = {
    "raw": ("data_list",),
    "shard": ("data_list",),
    "nemo": ("manifest_filepath",),
    "nemo_tarred": ("manifest_filepath", "tarred_audio_filepaths"),
    "lhotse": ("cuts_path",),
    "lhotse_cuts": ("cuts_path",),
    "lhotse_shar": ("shar_path",),
    "txt": ("paths",),
    "txt_pair": ("source_paths", "target_paths"),
    "group": ("input_cfg",),
}
"""What each type of source needs; `data_list` is another name of manifest_filepath."""
IGNORED = frozenset(
    [
        *("shuffle", "shard_seed", "force_finite", "metadata_only", "max_open_streams", "lang_field"),
        *("tarred_random_access", "slice_length", "skip_missing_manifest_entries"),
    ]
)
"""Keys of NeMo's that say how its loader walks through a source. The plan decides that here: they are read over. An
entry without audio and audio without an entry are listed and never stop a run, whatever skip_missing_manifest_entries
says."""
INHERITED = ("text_field", "audio_field", "key_ends")
"""What a group gives to its sources that do not say it themselves."""


class SourceConf(Section):
    """One source, or a group of them."""

    type: Literal[
        "raw",
        "shard",
        "nemo",
        "nemo_tarred",
        "lhotse",
        "lhotse_cuts",
        "lhotse_shar",
        "txt",
        "txt_pair",
        "group",
    ]
    """nemo: a manifest of audio files, which is a raw list with NeMo's names; nemo_tarred: tars and their manifests;
    lhotse_cuts (NeMo calls it lhotse): a JSONL of cuts; lhotse_shar: a folder of Lhotse's Shar; txt: text without
    audio, a text a line; txt_pair: two such files, line by line."""
    data_list: str | None = None
    manifest_filepath: Buckets | None = None
    tarred_audio_filepaths: Buckets | None = None
    cuts_path: Paths | None = None
    shar_path: Paths | None = None
    paths: Paths | None = None
    source_paths: Paths | None = None
    target_paths: Paths | None = None
    language: str | None = None
    source_language: str | None = None
    target_language: str | None = None
    """Languages are set on the samples, as tags are."""
    text_field: str | None = None
    """Name of the text in a manifest, a JSON member, or of the member that is the text."""
    audio_field: str | None = None
    """Of WebDataset's samples with several audio members, the one to read."""
    key_ends: Literal["auto", "first", "last"] | None = None
    """Dot at which keys of members end: last is ours and WeNet's way, first WebDataset's."""
    input_cfg: tuple[SourceConf, ...] | str | None = None
    """Of a group: its sources, or a file of them."""
    weight: Weight | None = None
    """Share among the sources of one level: all have one, or none; without, shares go by size."""
    repeat: Annotated[int, Field(gt=0)] = 1
    """Times that a source without a weight is read in one epoch."""
    tags: dict[str, Any] = Field(default_factory=dict)
    """Set on every sample; those of an outer group win."""

    @model_validator(mode="before")
    @classmethod
    def _nemo_names(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        values = {name: value for name, value in values.items() if name not in IGNORED}
        if values.get("type") == "nemo" and "data_list" in values:
            values["manifest_filepath"] = values.pop("data_list")
        return values

    @model_validator(mode="after")
    def _has_what_its_type_needs(self) -> SourceConf:
        needed = KEYS[self.type]
        if missing := [name for name in needed if not getattr(self, name)]:
            raise ValueError(f"a source of type {self.type} needs {' and '.join(missing)}")
        others = {name for names in KEYS.values() for name in names} - set(needed)
        if strange := sorted(name for name in others if getattr(self, name)):
            raise ValueError(f"a source of type {self.type} has no {' and '.join(strange)}")
        if isinstance(self.input_cfg, tuple):
            _check_weights(self.input_cfg)
        if self.weight is not None and self.repeat != 1:
            raise ValueError("weight and repeat exclude one another")
        return self

    def inheriting(self, group: SourceConf) -> SourceConf:
        """This source with what it does not say itself from its group."""
        given = {name: getattr(group, name) for name in INHERITED if getattr(self, name) is None}
        return self.model_copy(update=given)

    @property
    def own_tags(self) -> dict[str, Any]:
        """`tags`, and the languages as tags."""
        names = ("language", "source_language", "target_language")
        return {**{name: getattr(self, name) for name in names if getattr(self, name) is not None}, **self.tags}


class MixtureConf(Section):
    """What is mixed, and how."""

    sources: tuple[SourceConf, ...] = Field(min_length=1)
    utterances_per_epoch: Annotated[int, Field(gt=0)] | None = None
    """Default: as many as all sources hold."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Shares are raised to 1 / temperature: above 1, small sources gain."""
    per_batch: PerBatch = False
    """Each batch holds one source only. True: weights are shares of utterances, as ever. weighted: they are shares of
    batches. round_robin: every source has as many batches as any other, and they take turns."""

    @model_validator(mode="before")
    @classmethod
    def _names(cls, values: Any) -> Any:
        if isinstance(values, (list, tuple)):
            return {"sources": values}
        if isinstance(values, dict) and "input_cfg" in values:
            return {"sources": values["input_cfg"], **{k: v for k, v in values.items() if k != "input_cfg"}}
        if not isinstance(values, (dict, MixtureConf)):
            raise ValueError(f"expected a list of sources, found {type(values).__name__}")
        return values

    @model_validator(mode="after")
    def _weighted_alike(self) -> MixtureConf:
        _check_weights(self.sources)
        if self.per_batch == "round_robin" and any(source.weight is not None for source in self.sources):
            raise ValueError("per_batch round_robin gives every source as many batches: leave the weights out")
        return self


def _check_weights(sources: tuple[SourceConf, ...]) -> None:
    """All sources of a level have a weight, or none.

    Raises:
        ValueError: some have.
    """
    weighted = [source for source in sources if source.weight is not None]
    if weighted and len(weighted) < len(sources):
        raise ValueError(f"{len(weighted)} of {len(sources)} sources of one level have a weight: give all one, or none")


def load_mixture(path: str | Path) -> MixtureConf:
    """Read a mixture file.

    Raises:
        ConfigError: naming every unknown key and impossible value.
    """
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None
    return parse(MixtureConf, values, str(path))
