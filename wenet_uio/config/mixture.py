"""Config of a mixture of sources: a list of sources, or `sources` with options. NeMo's input_cfg
files are read too.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from wenet_uio.config.base import ConfigError, Section, parse
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.yaml_file import read_yaml

Weight = Annotated[float, Field(gt=0)]
Paths = str | tuple[str, ...]
"""One pattern of paths or several; a pattern may hold ranges and globs."""
Buckets = Paths | tuple[tuple[str, ...], ...]
"""Also NeMo's list of lists of paths. A weight beside a path is refused; write a source with its
own weight instead."""
PerBatch = bool | Literal["weighted", "round_robin", "zip"]

KEYS = {
    "raw": ("data_list",),
    "shard": ("data_list",),
    "nemo": ("manifest_filepath",),
    "nemo_tarred": ("manifest_filepath", "tarred_audio_filepaths"),
    "lhotse": ("cuts_path",),
    "lhotse_cuts": ("cuts_path",),
    "lhotse_shar": ("shar_path",),
    **dict.fromkeys(("parquet", "mds", "litdata"), ("paths",)),
    "txt": ("paths",),
    "txt_pair": ("source_paths", "target_paths"),
    "multimodal_conversation": ("manifest_filepath",),
    "tts_text": ("manifest_filepath",),
    "group": ("input_cfg",),
}
"""Required keys of each type of source. In a nemo source, `data_list` is another name of
manifest_filepath."""
ALL_KEYS = frozenset(key for keys in KEYS.values() for key in keys)
IGNORED = frozenset(
    [
        *(
            "shuffle",
            "shard_seed",
            "force_finite",
            "metadata_only",
            "max_open_streams",
            "lang_field",
        ),
        *("tarred_random_access", "slice_length", "skip_missing_manifest_entries"),
    ]
)
"""Keys of NeMo that say in which order its loader reads a source. They are ignored, because the
plan decides the order. Entries without audio and audio without an entry are listed and never stop a
run, for any value of skip_missing_manifest_entries."""
NEMO_NAMES = {
    "tarred_audio_filepath": "tarred_audio_filepaths",
    "source_path": "source_paths",
    "target_path": "target_paths",
}
"""Other names that NeMo's documents use for keys."""
MEMBERS_OF = {"audio": ("wav", "flac", "mp3", "ogg", "opus"), "text": ("txt", "transcript")}
INHERITED = ("text_field", "audio_field", "key_ends", "token_equivalent_duration")
"""Keys that a group passes on to its sources."""


class SourceConf(Section):
    """One source, or a group of sources."""

    type: Literal[
        "raw",
        "shard",
        "nemo",
        "nemo_tarred",
        "lhotse",
        "lhotse_cuts",
        "lhotse_shar",
        "parquet",
        "mds",
        "litdata",
        "txt",
        "txt_pair",
        "multimodal_conversation",
        "tts_text",
        "group",
    ]
    """raw, shard: a data list; nemo: NeMo's manifest of audio files; nemo_tarred: tars and their
    manifests; lhotse_cuts (NeMo calls it lhotse): a JSONL file of cuts; lhotse_shar: a folder of
    Lhotse's Shar; parquet: files of Hugging Face's data sets, or folders of them; mds, litdata:
    shards of MosaicML's and chunks of Lightning's streaming data sets, or folders of them; txt:
    text without audio, one text a line; txt_pair: two text files that are paired line by line;
    tts_text: text that an operator of the user speaks, NeMo's manifests or plain text; group:
    sources with a common weight and tags."""
    data_list: str | None = None
    manifest_filepath: Buckets | None = None
    tarred_audio_filepaths: Buckets | None = None
    cuts_path: Paths | None = None
    shar_path: Paths | None = None
    paths: Paths | None = None
    source_paths: Paths | None = None
    target_paths: Paths | None = None
    questions_path: Paths | None = None
    """txt_pair: text files of questions, one a line. Each pair gets one of them as its field
    `question`."""
    language: str | None = None
    source_language: str | None = None
    target_language: str | None = None
    questions_language: str | None = None
    """Languages are set on every sample, like tags."""
    token_equivalent_duration: Annotated[float, Field(gt=0)] | None = None
    """multimodal_conversation: seconds of audio that count as one token; default 0.08."""
    audio_locator_tag: str = "[audio]"
    """multimodal_conversation: stands for an audio turn in the text of a conversation."""
    speakers_filepath: Paths | None = None
    """tts_text: files of speakers, separated by blanks or line ends. Each text gets one of them in
    each epoch as its field `speaker`, unless its line states a `speaker`."""
    seconds_per_character: Annotated[float, Field(gt=0)] = 0.15
    """tts_text: seconds of the longest speech of a character. The plan counts them, and 0.5 s for
    each text, unless a line states its `duration`."""
    text_field: str | None = None
    """Name of the text in a manifest or a JSON member, or field of the text member in a tar.
    `txt;cls`: the first of these that a sample has."""
    audio_field: str | None = None
    """Field of the audio member, if the samples of a WebDataset tar have several; alternatives as
    in text_field."""
    rename: dict[str, str] = Field(default_factory=dict)
    """shard: new names of fields, as `rename` of WebDataset: {audio: flac;wav, text: txt, speaker:
    spk.txt}. `audio` and `text` are other ways to write audio_field and text_field."""
    key_ends: Literal["auto", "first", "last"] | None = None
    """Dot at which the key of a member ends: last (ours and WeNet's), first (WebDataset's), or
    auto."""
    input_cfg: tuple[SourceConf, ...] | str | None = None
    """The sources of a group, or the path of a file of sources."""
    weight: Weight | None = None
    """Share among the sources of one level. Either all sources of a level have a weight, or none;
    without weights the shares are proportional to the number of utterances."""
    repeat: Annotated[int, Field(gt=0)] = 1
    """Number of times that a source without a weight is read in one epoch."""
    batch_conf: BatchConf | None = None
    """Batches of a source or group of the highest level, instead of `dataset_conf.batch_conf`. The
    mixture needs `per_batch`, because every batch then holds samples of one entry only."""
    tags: dict[str, Any] = Field(default_factory=dict)
    """Fields set on every sample; the tags of an outer group override those of an inner source."""

    _files: tuple[str, ...] = PrivateAttr(())
    """The files of sources that include this source, from the outermost to the innermost."""

    @model_validator(mode="before")
    @classmethod
    def _nemo_names(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values

        values = {name: value for name, value in values.items() if name not in IGNORED}
        for name in NEMO_NAMES.keys() & values.keys():
            if NEMO_NAMES[name] in values:
                raise ValueError(f"{name} and {NEMO_NAMES[name]} are one key: give one of them")
            values[NEMO_NAMES[name]] = values.pop(name)

        values |= _fields_of_rename(values)
        # [audio] without quotes is a list in yaml
        if isinstance(tag := values.get("audio_locator_tag"), list):
            values["audio_locator_tag"] = f"[{', '.join(map(str, tag))}]"
        if values.get("type") == "nemo" and values.get("data_list") is not None:
            values["manifest_filepath"] = values.pop("data_list")

        return values

    @model_validator(mode="after")
    def _has_the_keys_of_its_type(self) -> SourceConf:
        needed = KEYS[self.type]
        if missing := [name for name in needed if not getattr(self, name)]:
            raise ValueError(f"a source of type {self.type} needs {' and '.join(missing)}")
        if strange := sorted(name for name in ALL_KEYS - set(needed) if getattr(self, name)):
            raise ValueError(f"a source of type {self.type} has no {' and '.join(strange)}")
        if self.weight is not None and self.repeat != 1:
            raise ValueError("weight and repeat exclude one another")

        return self

    @model_validator(mode="after")
    def _is_spoken_if_it_has_speakers(self) -> SourceConf:
        if self.speakers_filepath and self.type != "tts_text":
            raise ValueError(f"a source of type {self.type} has no speakers_filepath; tts_text has")
        return self

    @model_validator(mode="after")
    def _has_members_that_fit(self) -> SourceConf:
        if isinstance(self.input_cfg, tuple):
            _check_weights(self.input_cfg)
            if any(source.batch_conf for source in self.input_cfg):
                raise ValueError("batch_conf belongs to the group, not to the sources in it")
        return self

    def files(self, key: str) -> Buckets:
        """Return the patterns of paths under a required key of this type of source, see KEYS.

        Raises:
            KeyError: this type of source has no such key.
        """
        if key not in KEYS[self.type]:
            raise KeyError(f"a source of type {self.type} has no {key}")
        return getattr(self, key)

    def members(self) -> list[SourceConf]:
        """Return the sources of a group, with the keys that they inherit. Reads the file if
        `input_cfg` is a path.

        Raises:
            ConfigError: the file holds unknown keys or impossible values, or includes itself.
            KeyError: this source is not a group.
        """
        if self.input_cfg is None:
            raise KeyError(f"a source of type {self.type} has no input_cfg")
        if not isinstance(self.input_cfg, str):
            return [conf._inheriting(self, self._files) for conf in self.input_cfg]

        path = os.path.realpath(self.input_cfg)
        files = (*self._files, path)
        if path in self._files:
            raise ConfigError(
                f"{self.input_cfg}: this file of sources includes itself: {' > '.join(files)}"
            )

        return [conf._inheriting(self, files) for conf in load_mixture(self.input_cfg).sources]

    def _inheriting(self, group: SourceConf, files: tuple[str, ...]) -> SourceConf:
        """This source, with the keys that only its group sets, as a part of `files`."""
        inherited = {
            name: getattr(group, name) for name in INHERITED if getattr(self, name) is None
        }
        conf = self.model_copy(update=inherited)
        conf._files = files
        return conf

    @property
    def own_tags(self) -> dict[str, Any]:
        """`tags`, and the languages as tags."""
        names = ("language", "source_language", "target_language", "questions_language")
        return {
            **{name: getattr(self, name) for name in names if getattr(self, name) is not None},
            **self.tags,
        }


def _fields_of_rename(values: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a source that its `rename` stands for; none without a `rename`.

    Raises:
        ValueError: the source has no tars, or names a field twice.
    """
    if not isinstance(rename := values.get("rename"), dict) or not rename:
        return {}

    if values.get("type") != "shard":
        raise ValueError(
            "rename goes with type: shard; for other types give text_field or audio_field"
        )

    fields: dict[str, Any] = {"rename": dict(rename)}
    for name, members in MEMBERS_OF.items():
        key, member = (
            f"{name}_field",
            next((renamed for renamed in members if renamed in rename), None),
        )
        if name in rename and values.get(key) is not None:
            raise ValueError(f"rename and {key} name the same field: give one of them")
        if name in rename:
            fields[key] = fields["rename"].pop(name)
        elif member and values.get(key) is None:
            raise ValueError(
                f"rename: the {name} is named {name}: write {name}: {rename[member]}, not {member}"
            )

    return fields


class MixtureConf(Section):
    """Sources, and how they are mixed."""

    sources: tuple[SourceConf, ...] = Field(min_length=1)
    utterances_per_epoch: Annotated[int, Field(gt=0)] | None = None
    """Default: the number of utterances of all sources."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Shares are raised to 1 / temperature: above 1, small sources gain."""
    per_batch: PerBatch = False
    """False: a batch may mix sources. With any other value a batch holds samples of one source
    only. True: weights are shares of utterances. weighted: weights are shares of batches.
    round_robin: all sources have equally many batches, and take turns. zip: every step has one
    batch of every entry of `sources` on every rank; its batches run one after the other, as the
    pieces of one step."""

    @model_validator(mode="before")
    @classmethod
    def _names(cls, values: Any) -> Any:
        if isinstance(values, (list, tuple)):
            return {"sources": values}

        if isinstance(values, dict) and "input_cfg" in values:
            return {
                "sources": values["input_cfg"],
                **{k: v for k, v in values.items() if k != "input_cfg"},
            }

        if not isinstance(values, (dict, MixtureConf)):
            raise ValueError(f"expected a list of sources, found {type(values).__name__}")

        return values

    @model_validator(mode="after")
    def _weighted_alike(self) -> MixtureConf:
        _check_weights(self.sources)
        if self.per_batch in ("round_robin", "zip") and any(
            source.weight is not None for source in self.sources
        ):
            raise ValueError(
                f"per_batch {self.per_batch} gives every source as many batches: leave the weights "
                "out"
            )

        if not self.per_batch and any(source.batch_conf for source in self.sources):
            raise ValueError(
                "batch_conf of a source needs per_batch: true, weighted, round_robin or zip"
            )

        return self

    @property
    def has_entries(self) -> bool:
        """Whether the sources of one group share batches: in `zip`, and if an entry has a
        `batch_conf`.
        """
        return self.per_batch == "zip" or any(source.batch_conf for source in self.sources)

    def batch_confs(self, default: BatchConf) -> tuple[BatchConf, ...]:
        """Return `batch_conf` of each entry; empty if all have the default."""
        if not any(source.batch_conf for source in self.sources):
            return ()
        return tuple(source.batch_conf or default for source in self.sources)


def _check_weights(sources: tuple[SourceConf, ...]) -> None:
    """Raise ValueError if some sources of a level have a weight, others have none."""
    weighted = [source for source in sources if source.weight is not None]
    if weighted and len(weighted) < len(sources):
        raise ValueError(
            f"{len(weighted)} of {len(sources)} sources of one level have a weight: give all one, "
            "or none"
        )


def load_mixture(path: str | Path) -> MixtureConf:
    """Read a mixture file.

    Raises:
        ConfigError: the file cannot be read, or holds unknown keys or impossible values; the
            message names each.
    """
    return parse(MixtureConf, read_yaml(path), str(path))
