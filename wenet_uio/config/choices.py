"""The parts that a train.yaml can name, and the section that belongs to each of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from wenet_uio.config.base import Section
from wenet_uio.config.encoder_kind import ENCODERS, encoder_kind
from wenet_uio.config.family import FAMILIES, families, family_of
from wenet_uio.config.model import DECODER_CONFS
from wenet_uio.config.named_code import NamedSections
from wenet_uio.config.optimizer import OPTIMIZERS, optimizer_kind
from wenet_uio.config.schedules import SCHEDULER_CONFS
from wenet_uio.config.text import AGGREGATE, TOKENIZERS


class PartSections(Mapping[str, type[Section]]):
    """{name: section} of the parts under one key: those that families share, and those of one
    family alone.
    """

    def __init__(self, key: str, shared: Mapping[str, type[Section]]) -> None:
        self._key, self._shared = key, shared

    def __getitem__(self, name: str) -> type[Section]:
        if name in self._shared:
            return self._shared[name]
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, type[Section]]:
        sections = dict(self._shared)
        for family in families():
            sections |= family.parts.own.get(self._key, {})
        return sections


CHOICES: dict[str, Mapping[str, type[Section]]] = {
    "encoder": NamedSections(ENCODERS, lambda name: encoder_kind(name).section),
    "decoder": PartSections("decoder", DECODER_CONFS),
    "predictor": PartSections("predictor", {}),
    "joint": PartSections("joint", {}),
    "model": NamedSections(FAMILIES, lambda name: family_of(name).section),
    "optim": NamedSections(
        OPTIMIZERS, lambda name: optimizer_kind(name).section, accepts_code=False
    ),
    "scheduler": SCHEDULER_CONFS,
}
"""{key: {name: section class}}: the name under `key` selects the class of the section
`key`_conf."""
KNOWN_NAMES: dict[str, Collection[str]] = {
    **CHOICES,
    "ctc": ("ctc",),
    "cmvn": ("global_cmvn",),
    "tokenizer": (*TOKENIZERS, AGGREGATE),
    "dataset": ("asr",),
}
"""{key: names that it can have}. `module:name` of another package can stand under `encoder` and
`model` too."""
