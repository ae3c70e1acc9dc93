"""Read tiers of ELAN's .eaf: annotations with times, and those that refer to them.

Source: the schema EAFv3.0 of the Max Planck Institute for Psycholinguistics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import unquote
from xml.etree.ElementTree import Element

import numpy as np

from wenet_uio.addons.corpora.bounded_xml import DAMAGE, TooLargeError, XmlReader
from wenet_uio.addons.corpora.timed_texts import SILENCES, TimedText
from wenet_uio.base.files import naming
from wenet_uio.dataset.formats.errors import ListError

Span = tuple[float, float]
"""Start and end in seconds."""
ELEMENTS = ("MEDIA_DESCRIPTOR", "TIME_SLOT", "ANNOTATION")
"""Elements that are read, of a tier one annotation at a time."""
MOST_ENTRIES = 2_000_000
"""Time slots and annotations; 1.5 GB of memory. A word-by-word transcript of a day has half as many."""


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


class _Annotation(NamedTuple):
    """An annotation as the file has it."""

    tier: str
    """TIER_ID."""
    name: str
    """ANNOTATION_ID."""
    slots: tuple[str, str] | None
    """Time slots of its start and end; None if it has the times of another annotation."""
    parent: str | None
    """ANNOTATION_ID of that annotation."""
    text: str


class _Contents(NamedTuple):
    """What is read of an .eaf, in its order."""

    media: list[str]
    """Addresses of recordings."""
    slots: list[tuple[str, str | None]]
    """Id and milliseconds of each time slot."""
    tiers: dict[str, dict[str, str]]
    """Attributes of each tier with annotations, by its TIER_ID."""
    annotations: list[_Annotation]


def read_eaf(path: str | Path) -> ElanFile:
    """Read an .eaf.

    A time that ELAN leaves open lies evenly between its neighbours. Texts that refer to one
    annotation are joined in their order.

    Raises:
        ListError: the file is damaged, no .eaf, or larger than any that is read.
    """
    try:
        with naming(path), open(path, "rb") as file:
            contents = _read_contents(file)
        times = _slot_seconds(contents.slots)
        spans = _annotation_spans(contents.annotations, times)
    except TooLargeError as error:
        raise ListError(f"{path}: too large ({error}); save it in parts") from None
    except DAMAGE as error:
        raise ListError(f"{path}: damaged, or no file of ELAN ({error}); save it again") from None

    names = [Path(unquote(address).removeprefix("file:")).name for address in contents.media]
    return ElanFile(list(filter(None, names)), _tiers_with_texts(contents, spans))


def _read_contents(file: IO[bytes]) -> _Contents:
    """Read what an .eaf has, element by element.

    Raises:
        TooLargeError: it has too much.
        ParseError, ExpatError, LookupError, ValueError: it is damaged, or no .eaf.
    """
    contents = _Contents([], [], {}, [])
    for element, ancestors in XmlReader().elements(file, "it", ELEMENTS):
        root = (*ancestors, element)[0]
        if root.tag != "ANNOTATION_DOCUMENT":
            raise ValueError(f"its root is {root.tag:.40}")

        if element.tag == "MEDIA_DESCRIPTOR":
            address = element.get("RELATIVE_MEDIA_URL") or element.get("MEDIA_URL", "")
            contents.media.append(address)
        elif element.tag == "TIME_SLOT":
            contents.slots.append((element.attrib["TIME_SLOT_ID"], element.get("TIME_VALUE")))
        else:
            tier = ancestors[-1].attrib
            contents.tiers.setdefault(tier["TIER_ID"], tier)
            contents.annotations.extend(_annotation(tier["TIER_ID"], child) for child in element)

        if len(contents.slots) + len(contents.annotations) > MOST_ENTRIES:
            raise TooLargeError(f"it has more than {MOST_ENTRIES} time slots and annotations")

    if not contents.slots and not contents.annotations:
        raise ValueError("it has neither time slots nor annotations")
    return contents


def _annotation(tier: str, element: Element) -> _Annotation:
    """Return an annotation, which has times of its own or refers to one that has."""
    name = element.attrib["ANNOTATION_ID"]
    text = " ".join((element.findtext("ANNOTATION_VALUE") or "").split())
    if element.tag == "ALIGNABLE_ANNOTATION":
        slots = element.attrib["TIME_SLOT_REF1"], element.attrib["TIME_SLOT_REF2"]
        return _Annotation(tier, name, slots, None, text)
    return _Annotation(tier, name, None, element.attrib["ANNOTATION_REF"], text)


def _slot_seconds(slots: Sequence[tuple[str, str | None]]) -> dict[str, float]:
    """Return the seconds of each time slot, by its id."""
    timed_slots: list[int] = []
    stated_seconds: list[float] = []
    for number, (_, milliseconds) in enumerate(slots):
        if milliseconds:
            seconds_of_slot = float(milliseconds) / 1000
            if not 0 <= seconds_of_slot < math.inf:
                raise ValueError(f"the time of a slot is {milliseconds:.40}")

            timed_slots.append(number)
            stated_seconds.append(seconds_of_slot)

    if not stated_seconds:
        return {}

    # Slots without a time lie evenly between their neighbours.
    seconds = np.interp(range(len(slots)), timed_slots, stated_seconds)
    return dict(zip((name for name, _ in slots), seconds.tolist(), strict=True))


def _annotation_spans(
    annotations: Sequence[_Annotation], times: Mapping[str, float]
) -> dict[str, Span]:
    """Return start and end of each annotation in seconds, by its id.

    An annotation without times has those of the annotation that it refers to.

    Raises:
        KeyError: an annotation refers to none that has times.
    """
    spans: dict[str, Span] = {}
    parent_of: dict[str, str] = {}
    for annotation in annotations:
        if annotation.slots is not None:
            start, end = annotation.slots
            spans[annotation.name] = (times[start], times[end])
        elif annotation.parent is not None:
            parent_of[annotation.name] = annotation.parent

    for name in list(parent_of):
        # Each annotation is visited once, so long chains take no longer than short ones.
        chain: list[str] = []
        ancestor = name
        while ancestor not in spans:
            chain.append(ancestor)
            ancestor = parent_of.pop(ancestor)
        spans |= dict.fromkeys(chain, spans[ancestor])

    return spans


def _tiers_with_texts(contents: _Contents, spans: Mapping[str, Span]) -> list[ElanTier]:
    """Return the tiers that have texts; annotations of a tier at the same time are one text.

    Args:
        spans: by ANNOTATION_ID.
    """
    texts_by_span: dict[str, dict[Span, list[str]]] = {name: {} for name in contents.tiers}
    for annotation in contents.annotations:
        if annotation.text.lower() not in SILENCES:
            span = spans[annotation.name]
            texts_by_span[annotation.tier].setdefault(span, []).append(annotation.text)

    tiers: list[ElanTier] = []
    for name, attributes in contents.tiers.items():
        speaker = attributes.get("PARTICIPANT") or None
        texts = [
            TimedText(start, end, " ".join(parts), speaker)
            for (start, end), parts in sorted(texts_by_span[name].items())
        ]
        if texts:
            kind = attributes.get("LINGUISTIC_TYPE_REF", "")
            tiers.append(ElanTier(name, kind, attributes.get("PARENT_REF"), texts))

    return tiers


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
