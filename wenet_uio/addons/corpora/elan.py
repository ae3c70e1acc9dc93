"""Read tiers of ELAN's .eaf: annotations with times, and those that refer to them.

Source: the schema EAFv3.0 of the Max Planck Institute for Psycholinguistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np

from wenet_uio.addons.corpora.timed_texts import SILENCES, TimedText
from wenet_uio.base.files import naming
from wenet_uio.dataset.formats.errors import ListError

Span = tuple[float, float]
"""Start and end in seconds."""


@dataclass(frozen=True)
class ElanTier:
    """A tier with texts."""

    name: str
    kind: str
    """Its linguistic type."""
    parent: str | None
    """Name of the tier whose annotations it describes; None if it has times of its own."""
    texts: list[TimedText]


@dataclass(frozen=True)
class ElanFile:
    """What an .eaf has."""

    media: list[str]
    """Names of its recordings, without folders."""
    tiers: list[ElanTier]
    """Tiers with texts, in their order."""


def read_eaf(path: str | Path) -> ElanFile:
    """Read an .eaf.

    A time that ELAN leaves open lies evenly between its neighbours. Texts that refer to one
    annotation are joined in their order.

    Raises:
        ListError: the file is damaged, or no .eaf.
    """
    try:
        with naming(path):
            root = ElementTree.parse(path).getroot()
        times = _slot_seconds(root)
        spans = _annotation_spans(root, times)
        tiers = [_read_tier(tier, spans) for tier in root.iterfind("TIER")]
    except (ElementTree.ParseError, KeyError, ValueError, RecursionError) as error:
        raise ListError(f"{path}: damaged, or no file of ELAN ({error}); save it again") from None

    if root.tag != "ANNOTATION_DOCUMENT":
        raise ListError(f"{path}: no file of ELAN, its root is {root.tag}")

    media = [
        unquote(element.get("RELATIVE_MEDIA_URL") or element.get("MEDIA_URL", ""))
        for element in root.iterfind("HEADER/MEDIA_DESCRIPTOR")
    ]
    names = [Path(name.removeprefix("file:")).name for name in media]
    return ElanFile(list(filter(None, names)), [tier for tier in tiers if tier.texts])


def _slot_seconds(root: Element) -> dict[str, float]:
    """Return the seconds of each time slot, by its id."""
    slots: list[str] = []
    timed_slots: list[int] = []
    stated_seconds: list[float] = []
    for number, slot in enumerate(root.iterfind("TIME_ORDER/*")):
        slots.append(slot.attrib["TIME_SLOT_ID"])
        milliseconds = slot.get("TIME_VALUE")
        if milliseconds:
            timed_slots.append(number)
            stated_seconds.append(float(milliseconds) / 1000)

    if not stated_seconds:
        return {}

    # Slots without a time lie evenly between their neighbours.
    seconds = np.interp(range(len(slots)), timed_slots, stated_seconds)
    return dict(zip(slots, seconds.tolist(), strict=True))


def _annotation_spans(root: Element, times: Mapping[str, float]) -> dict[str, Span]:
    """Return start and end of each annotation in seconds, by its id.

    An annotation without times has those of the annotation that it refers to.

    Raises:
        KeyError: an annotation refers to none that has times.
    """
    spans = {}
    parent_of = {}
    for annotation in root.iterfind("TIER/ANNOTATION/*"):
        name = annotation.attrib["ANNOTATION_ID"]
        if annotation.tag == "ALIGNABLE_ANNOTATION":
            start = times[annotation.attrib["TIME_SLOT_REF1"]]
            end = times[annotation.attrib["TIME_SLOT_REF2"]]
            spans[name] = (start, end)
        else:
            parent_of[name] = annotation.attrib["ANNOTATION_REF"]

    for name, ancestor in parent_of.items():
        # More steps than there are annotations: they refer to each other in a circle.
        steps = 0
        while ancestor not in spans and steps <= len(parent_of):
            ancestor, steps = parent_of[ancestor], steps + 1
        spans[name] = spans[ancestor]

    return spans


def _read_tier(tier: Element, spans: Mapping[str, Span]) -> ElanTier:
    """Read a tier; annotations of the same time are one text. `spans` are by ANNOTATION_ID."""
    name, speaker = tier.attrib["TIER_ID"], tier.get("PARTICIPANT") or None
    texts_by_span: dict[Span, list[str]] = {}
    for annotation in tier.iterfind("ANNOTATION/*"):
        text = " ".join((annotation.findtext("ANNOTATION_VALUE") or "").split())
        if text.lower() not in SILENCES:
            texts_by_span.setdefault(spans[annotation.attrib["ANNOTATION_ID"]], []).append(text)

    texts = [
        TimedText(start, end, " ".join(parts), speaker)
        for (start, end), parts in sorted(texts_by_span.items())
    ]
    return ElanTier(name, tier.get("LINGUISTIC_TYPE_REF", ""), tier.get("PARENT_REF"), texts)


def tier_texts(path: str | Path, tiers: Sequence[ElanTier], chosen: str | None) -> list[TimedText]:
    """Return the texts of the chosen tier, or of all tiers of speakers.

    Without a choice, the tiers with times of their own are taken if they are of one type, as those
    of several speakers are; a tier is the speaker if it names none.

    Args:
        chosen: name of a tier, or of a type of tiers.

    Raises:
        ListError: there is no such tier, or nothing says which tier has the texts.
    """
    wanted = _chosen_tiers(path, tiers, chosen)
    texts = list(wanted[0].texts)
    if len(wanted) > 1:
        texts = [
            replace(text, speaker=text.speaker or tier.name)
            for tier in wanted
            for text in tier.texts
        ]

    return sorted(texts, key=lambda text: (text.start, text.end))


def _chosen_tiers(
    path: str | Path, tiers: Sequence[ElanTier], chosen: str | None
) -> list[ElanTier]:
    """Return the tiers of a choice, or those of the speakers; see `tier_texts`."""
    wanted = _matching_tiers(tiers, chosen)
    names = ", ".join(tier.name for tier in tiers)
    if not wanted:
        raise ListError(f"{path}: no tier {chosen or 'with a text'}; its tiers with texts: {names}")
    if chosen is None and any(tier.kind != wanted[0].kind for tier in wanted):
        raise ListError(
            f"{path}: several tiers have texts ({names}); name one of them, or their type: "
            f"--text_field {wanted[0].name}"
        )
    return wanted


def _matching_tiers(tiers: Sequence[ElanTier], chosen: str | None) -> list[ElanTier]:
    """Return the tier of a name, else the tiers of a type; None: those of speakers."""
    if chosen is None:
        return [tier for tier in tiers if tier.parent is None] or list(tiers)

    named = [tier for tier in tiers if tier.name == chosen]
    return named or [tier for tier in tiers if tier.kind == chosen]
