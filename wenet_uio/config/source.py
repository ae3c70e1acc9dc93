"""Sources of a mixture: the keys that all of them have, and the table of their types."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    Field,
    PrivateAttr,
    SerializeAsAny,
    WrapValidator,
    field_validator,
    model_validator,
)

from wenet_uio.config.base import Positive, Section, known_name
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.filters import FilterConf
from wenet_uio.config.named_code import Loaded, named_record

_FOLDERS = "wenet_uio.dataset"
SOURCES: dict[str, str] = {
    "raw": f"{_FOLDERS}.sources.lists:RAW",
    "shard": f"{_FOLDERS}.sources.lists:SHARD",
    "nemo": "wenet_uio.addons.nemo.sources:NEMO",
    "nemo_tarred": "wenet_uio.addons.nemo.sources:NEMO_TARRED",
    "lhotse": f"{_FOLDERS}.sources.lhotse:CUTS",
    "lhotse_cuts": f"{_FOLDERS}.sources.lhotse:CUTS",
    "lhotse_shar": f"{_FOLDERS}.sources.lhotse:SHAR",
    "parquet": f"{_FOLDERS}.sources.containers:CONTAINERS",
    "mds": f"{_FOLDERS}.sources.containers:CONTAINERS",
    "litdata": f"{_FOLDERS}.sources.containers:CONTAINERS",
    "txt": f"{_FOLDERS}.kinds.text:TEXT",
    "txt_pair": f"{_FOLDERS}.kinds.text:PAIR",
    "multimodal_conversation": f"{_FOLDERS}.kinds.conversation:CONVERSATION",
    "tts_text": f"{_FOLDERS}.kinds.to_speak:TO_SPEAK",
    "group": "wenet_uio.config.mixture:GROUP",
}
"""{type in the yaml: `module:name` of its SourceType}. Nothing else in the package names a type
of sources. A yaml cannot name the code of other packages here: it may come with a stranger's
model."""

Weight = Annotated[float, Field(gt=0, le=1e15)]
"""Beyond the bound, the sum of weights would lose the small ones."""
Paths = str | tuple[str, ...]
"""One pattern of paths or several; a pattern may hold ranges and globs."""
Buckets = Paths | tuple[tuple[str, ...], ...]
"""Also NeMo's list of lists of paths."""

ORDER_OF_NEMO = frozenset(
    {
        "shuffle",
        "shard_seed",
        "force_finite",
        "metadata_only",
        "max_open_streams",
        "lang_field",
        "tarred_random_access",
        "slice_length",
        "skip_missing_manifest_entries",
    }
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
INHERITED = ("text_field", "audio_field", "key_ends", "token_equivalent_duration")
"""Keys that a group passes on to its sources. Any source may state them; they mean nothing to
types that lack them."""


class SourceConf(Section):
    """Keys of every source; each type of sources has more."""

    type: str
    weight: Weight | None = None
    """Share among the sources of one level. Either all sources of a level have a weight, or none;
    without weights the shares are proportional to the number of utterances."""
    repeat: Positive = 1
    """Number of times that a source without a weight is read in one epoch."""
    batch_conf: BatchConf | None = None
    """Batches of a source or group of the highest level, instead of `dataset_conf.batch_conf`. The
    mixture needs `per_batch`, because every batch then holds samples of one entry only."""
    filter_conf: FilterConf | None = None
    """Filters of a source or group of the highest level, instead of `dataset_conf.filter_conf`.
    Needs `per_batch`, as `batch_conf` does."""
    tags: dict[str, Any] = Field(default_factory=dict)
    """Fields set on every sample; the tags of an outer group override those of an inner source."""
    language: str | None = None
    source_language: str | None = None
    target_language: str | None = None
    questions_language: str | None = None
    """Languages are set on every sample, like tags."""

    _files: tuple[str, ...] = PrivateAttr(())
    """The files of sources that include this source, from the outermost to the innermost."""

    @classmethod
    def variants(cls) -> list[type[Section]]:
        """Return the sections of all types; a type itself has no others."""
        return list(source_sections()) if cls is SourceConf else [cls]

    @model_validator(mode="before")
    @classmethod
    def _keys_of_its_type(cls, values: Any) -> Any:
        """Return the keys of this type; refuse those of other types that would be lost."""
        if not isinstance(values, dict):
            return values

        renamed = _rename_keys(values)
        known_keys = _all_keys()
        # An unknown key may be a misspelled required one; it is the problem then.
        if renamed.keys() <= known_keys:
            cls._require_keys(renamed)
        cls._refuse_lost_keys(renamed)

        keys_of_other_types = known_keys - cls.model_fields.keys()
        return {key: value for key, value in renamed.items() if key not in keys_of_other_types}

    @classmethod
    def _require_keys(cls, values: Mapping[str, Any]) -> None:
        """Raise a ValueError if a required key is missing or empty."""
        required = [name for name, field in cls.model_fields.items() if field.is_required()]
        missing = [name for name in required if not values.get(name)]
        if missing:
            raise ValueError(f"a source of type {values['type']} needs {' and '.join(missing)}")

    @classmethod
    def _refuse_lost_keys(cls, values: Mapping[str, Any]) -> None:
        """Raise a ValueError if a key means something to other types only, and has a value."""
        foreign_keys = _all_keys() - cls.model_fields.keys() - set(INHERITED)
        lost = sorted(key for key in foreign_keys if values.get(key))
        if lost:
            raise ValueError(
                f"a source of type {values['type']} has no {' and '.join(lost)}; "
                f"{' or '.join(_types_having(lost[0]))} has"
            )

    @model_validator(mode="after")
    def _is_weighted_or_repeated(self) -> SourceConf:
        if self.weight is not None and self.repeat != 1:
            raise ValueError("weight and repeat exclude one another")
        return self

    def inheriting(self, group: SourceConf, files: tuple[str, ...]) -> SourceConf:
        """Return this source with the keys of INHERITED that its group has and it has not.

        Args:
            files: the files of sources that include it, from the outermost to the innermost.
        """
        inherited: dict[str, Any] = {}
        for name in INHERITED:
            if name in type(self).model_fields and getattr(self, name) is None:
                inherited[name] = getattr(group, name)

        conf = self.model_copy(update=inherited)
        conf._files = files
        return conf

    def open(self) -> Sequence[Any]:
        """Return the corpora of this source, see `SourceType.open`."""
        return source_type(self.type).open(self)

    def lists(self) -> Sequence[Any]:
        """Return the data lists of this source, see `SourceType.lists`."""
        return source_type(self.type).lists(self)

    @property
    def own_tags(self) -> dict[str, Any]:
        """`tags`, and the languages as tags; a tag of the same name wins."""
        tags: dict[str, Any] = {}
        for name in ("language", "source_language", "target_language", "questions_language"):
            language = getattr(self, name)
            if language is not None:
                tags[name] = language

        tags.update(self.tags)
        return tags


Conf = TypeVar("Conf", bound=SourceConf)


@dataclass(frozen=True)
class SourceType:
    """What the package knows about a type of sources."""

    section: type[SourceConf]
    """Keys of a source of this type."""
    open: Callable[[Any], Sequence[Any]] = lambda _: ()
    """`open(conf)` returns the corpora of a source, one for each list or file; none of a group, whose
    members are opened. It raises a ListError if the data cannot be used."""
    lists: Callable[[Any], Sequence[Any]] = lambda _: ()
    """`lists(conf)` returns the `ListSource`s of a source; none for samples without audio."""
    is_text: bool = False
    """Whether the samples are counted in tokens, not in seconds."""


def source_type(name: str) -> SourceType:
    """Return what `type: name` means: a name in SOURCES.

    Raises:
        ValueError: the name is unknown.
    """
    return named_record("type", name, SOURCES, SourceType)


class _Typed(BaseModel):
    """What every source has. `type` selects one of a union of sections, which is loaded only then."""

    type: str

    @field_validator("type")
    @classmethod
    def _is_known(cls, name: str) -> str:
        return known_name(name, SOURCES)


def parse_source(values: Any) -> SourceConf:
    """Validate one source as the section of its type.

    Raises:
        ValidationError: of pydantic, with the problems of the source.
    """
    if isinstance(values, SourceConf):
        return values

    _Typed.model_validate(values)
    values = _split_weighted(values)
    return source_type(values["type"]).section.model_validate(values)


def _split_weighted(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a source whose lists are `[path, weight]` each as a group of sources, one for each
    path; any other source as it is.

    Raises:
        ValueError: not every path has one weight.
    """
    named = {NEMO_NAMES.get(key, key): value for key, value in values.items()}
    lists = {key: named[key] for key in WEIGHTED if key in named}
    if not has_weights(lists):
        return values

    # Keys of every type of sources go to the group, the others to each of its members.
    group: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for key, value in named.items():
        if key in SourceConf.model_fields and key != "type":
            group[key] = value
        elif key not in lists:
            shared[key] = value

    members = [{**shared, **member} for member in weighted_members(lists)]
    return {**group, "type": "group", "input_cfg": members}


AnySource = Annotated[
    SerializeAsAny[SourceConf], WrapValidator(lambda values, _: parse_source(values))
]
"""A source of any type, as a field of a section."""


@lru_cache
def source_sections() -> Mapping[type[SourceConf], tuple[str, ...]]:
    """Return {section: names of its types} of this installation, in the order of SOURCES."""
    names_by_section: dict[type[SourceConf], tuple[str, ...]] = {}
    for name, use in SOURCES.items():
        if Loaded(use).is_installed:
            section = source_type(name).section
            names_by_section[section] = (*names_by_section.get(section, ()), name)

    return names_by_section


@lru_cache
def _all_keys() -> frozenset[str]:
    """Return the keys of all types of sources."""
    keys: set[str] = set()
    for section in source_sections():
        keys.update(section.model_fields)

    return frozenset(keys)


def _types_having(key: str) -> list[str]:
    """Return the types that have a key."""
    types: list[str] = []
    for section, names in source_sections().items():
        if key in section.model_fields:
            types += names

    return types


def _rename_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a source under their first names, without those that NeMo's loader needs.

    Raises:
        ValueError: a key is there under both of its names.
    """
    renamed = {name: value for name, value in values.items() if name not in ORDER_OF_NEMO}
    for nemo_name, name in NEMO_NAMES.items():
        if nemo_name not in renamed:
            continue
        if name in renamed:
            raise ValueError(f"{nemo_name} and {name} are one key: give one of them")
        renamed[name] = renamed.pop(nemo_name)

    return renamed


WEIGHTED = ("manifest_filepath", "tarred_audio_filepaths", "shar_path")
"""Keys whose paths may have weights."""


def has_weights(lists: Mapping[str, Any]) -> bool:
    """Tell whether a path has a weight.

    Args:
        lists: {key of WEIGHTED: its paths}.
    """
    items = itertools.chain.from_iterable(_list_items(paths) for paths in lists.values())
    return any(_item_weight(item) is not None for item in items)


def without_weights(paths: Any) -> Any:
    """Return the value of a key of WEIGHTED with the paths alone."""
    if not isinstance(paths, (list, tuple)):
        return paths
    return [item if _item_weight(item) is None else [item[0]] for item in paths]


def weighted_members(lists: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the paths and the weight of each source, as {key: path, "weight": weight}.

    Args:
        lists: {key of WEIGHTED: its items}, each a path or [path, weight]. The first items of all
            lists are one source, and so on; one of them has the weight of the source.

    Raises:
        ValueError: the lists differ in length, or not every source has one weight.
    """
    columns = [_list_items(paths) for paths in lists.values()]
    lengths = {len(column) for column in columns}
    if len(lengths) != 1:
        raise ValueError(f"{' and '.join(lists)} of paths with weights need as many items")

    members: list[dict[str, Any]] = []
    for items in zip(*columns, strict=True):  # the items of one source
        weights = {_item_weight(item) for item in items} - {None}
        if len(weights) != 1:
            raise ValueError(
                f"{next(iter(lists))}: {items[0]!r}: expected [path, weight]: give each path one "
                "weight"
            )
        paths = [item if _item_weight(item) is None else item[0] for item in items]
        member: dict[str, Any] = dict(zip(lists, paths, strict=True))
        member["weight"] = weights.pop()
        members.append(member)

    return members


def _list_items(paths: Any) -> Sequence[Any]:
    """Return the items of a list of paths; none of a single path."""
    return paths if isinstance(paths, (list, tuple)) else ()


def _item_weight(item: Any) -> float | None:
    """Return the weight of `[path, weight]`; None if an item has no weight."""
    is_pair = isinstance(item, (list, tuple)) and len(item) == 2
    return item[1] if is_pair and type(item[1]) in (int, float) else None
