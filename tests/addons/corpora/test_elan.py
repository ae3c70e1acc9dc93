from __future__ import annotations

import pytest

from tests.support.data.little_memory import outcome_of_reading
from tests.support.fuzz import damaged
from wenet_uio.addons.corpora import bounded_xml, elan
from wenet_uio.addons.corpora.elan import read_eaf, tier_texts
from wenet_uio.dataset.formats.errors import ListError

SLOTS = '<TIME_SLOT TIME_SLOT_ID="t{}" {}/>'


def eaf(tmp_path, *tiers, values=(0, 1000, None, 2000)):
    slots = "".join(
        SLOTS.format(number, "" if value is None else f'TIME_VALUE="{value}"')
        for number, value in enumerate(values)
    )
    path = tmp_path / "a.eaf"
    path.write_text(
        f"<ANNOTATION_DOCUMENT><HEADER/><TIME_ORDER>{slots}</TIME_ORDER>{''.join(tiers)}"
        "</ANNOTATION_DOCUMENT>"
    )
    return path


def tier(name, *annotations, kind="speech", more=""):
    inner = "".join(f"<ANNOTATION>{annotation}</ANNOTATION>" for annotation in annotations)
    return f'<TIER TIER_ID="{name}" LINGUISTIC_TYPE_REF="{kind}" {more}>{inner}</TIER>'


def timed(name, start, end, text):
    return (
        f'<ALIGNABLE_ANNOTATION ANNOTATION_ID="{name}" TIME_SLOT_REF1="t{start}" '
        f'TIME_SLOT_REF2="t{end}"><ANNOTATION_VALUE>{text}</ANNOTATION_VALUE>'
        "</ALIGNABLE_ANNOTATION>"
    )


def referring(name, other, text):
    return (
        f'<REF_ANNOTATION ANNOTATION_ID="{name}" ANNOTATION_REF="{other}"><ANNOTATION_VALUE>{text}'
        "</ANNOTATION_VALUE></REF_ANNOTATION>"
    )


def texts(path, chosen=None):
    return [
        (text.start, text.end, text.text, text.speaker)
        for text in tier_texts(path, read_eaf(path).tiers, chosen)
    ]


def test_open_times_lie_between_their_neighbours(tmp_path):
    path = eaf(tmp_path, tier("a", timed("x", 1, 2, "one"), timed("y", 2, 3, "two")))
    assert texts(path) == [(1.0, 1.5, "one", None), (1.5, 2.0, "two", None)]


def test_tiers_of_one_type_are_those_of_the_speakers(tmp_path):
    path = eaf(
        tmp_path,
        tier("ann", timed("x", 1, 3, "one"), more='PARTICIPANT="Ann"'),
        tier("bo", timed("y", 0, 1, "two")),
        tier("notes", referring("n", "x", "loud"), kind="note", more='PARENT_REF="ann"'),
    )
    assert texts(path) == [(0.0, 1.0, "two", "bo"), (1.0, 2.0, "one", "Ann")]
    assert texts(path, "ann") == [(1.0, 2.0, "one", "Ann")]
    assert texts(path, "note") == [(1.0, 2.0, "loud", None)]
    assert len(texts(path, "speech")) == 2


def test_texts_that_refer_to_one_annotation_are_joined(tmp_path):
    words = [referring("w", "s", "one"), referring("v", "s", "two")]
    path = eaf(
        tmp_path,
        tier("words", *words, kind="words", more='PARENT_REF="sentences"'),
        tier("sentences", timed("r", 0, 1, "")),
        tier("s", referring("s", "r", " ")),
    )
    assert texts(path) == [(0.0, 1.0, "one two", None)]


@pytest.mark.parametrize(
    ("tiers", "message"),
    [
        ([tier("a", timed("x", 0, 9, "one"))], "damaged, or no file of ELAN"),
        ([tier("a", referring("x", "x", "one"))], "damaged, or no file of ELAN"),
        (["<TIER>"], "damaged, or no file of ELAN"),
        ([tier("a", timed("x", 0, 1, " "))], "no tier with a text"),
        (
            [tier("a", timed("x", 0, 1, "one")), tier("b", timed("y", 0, 1, "two"), kind="music")],
            r"several tiers have texts \(a, b\); name one of them, or their type: --text_field a",
        ),
    ],
)
def test_a_file_that_is_not_clear_is_refused(tmp_path, tiers, message):
    with pytest.raises(ListError, match=message):
        texts(eaf(tmp_path, *tiers))


def test_texts_of_a_long_chain_of_tiers_have_the_times_at_its_end(tmp_path):
    """In either order of the file, and in a time that grows with the length of the chain."""
    last = 20_000
    chain = [referring(f"a{number}", f"a{number + 1}", f"{number}") for number in range(last)]
    timed_end = timed(f"a{last}", 0, 1, "")
    for in_order in ([*chain, timed_end], [timed_end, *reversed(chain)]):
        [text] = texts(eaf(tmp_path, tier("a", *in_order)))
        assert text[:2] == (0.0, 1.0)
        assert sorted(map(int, text[2].split())) == list(range(last))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html><TIME_SLOT TIME_SLOT_ID='a'/></html>", "its root is html"),
        (b"<ANNOTATION/>", "its root is ANNOTATION"),
        (b"<ANNOTATION_DOCUMENT/>", "it has neither time slots nor annotations"),
        (b"", "no element found"),
        (b"<?xml version='1.0' encoding='none'?><ANNOTATION_DOCUMENT/>", "encoding"),
        (b"<ANNOTATION_DOCUMENT><TIER><ANNOTATION/></TIER></ANNOTATION_DOCUMENT>", "TIER_ID"),
    ],
)
def test_what_is_no_file_of_elan_is_refused_with_one_line(tmp_path, content, message):
    path = tmp_path / "a.eaf"
    path.write_bytes(content)
    with pytest.raises(ListError, match=f"a.eaf: damaged, or no file of ELAN .*{message}") as error:
        read_eaf(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("time", ["nan", "inf", "1e400", "-1"])
def test_a_time_that_no_recording_has_is_refused(tmp_path, time):
    path = eaf(tmp_path, tier("a", timed("x", 0, 1, "one")), values=(0, time))
    with pytest.raises(ListError, match=f"the time of a slot is {time}"):
        read_eaf(path)


def eaf_of(*parts):
    """The bytes of an .eaf, of parts (bytes, times)."""
    start = b"<ANNOTATION_DOCUMENT><TIME_ORDER><TIME_SLOT TIME_SLOT_ID='t' TIME_VALUE='0'/></TIME_ORDER>"
    end = b"</TIER></ANNOTATION_DOCUMENT>"
    return b"".join([start, b"<TIER TIER_ID='a'>", *(part * times for part, times in parts), end])


ANNOTATION = (
    b"<ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID='a' TIME_SLOT_REF1='t' TIME_SLOT_REF2='t'>"
    b"<ANNOTATION_VALUE>x</ANNOTATION_VALUE></ALIGNABLE_ANNOTATION></ANNOTATION>"
)
BOMBS = {
    "depth": [(b"<ANNOTATION>", 100_000)],
    "elements of an annotation": [(b"<ANNOTATION>", 1), (b"<a b='1'/>", 500_000)],
    "a text": [(b"<ANNOTATION>", 1), (b"x" * 1000, 10_000)],
    "names": [(b"".join(b"<a%d/>" % number for number in range(20_000)), 1)],
    "text between annotations": [(b"x" * 1000, 10_000)],
}
BOUNDS = {
    "MOST_BYTES": (bounded_xml, 100_000),
    "MOST_ELEMENTS": (bounded_xml, 1000),
    "MOST_ENTRIES": (elan, 1000),
}
"""{bound: its module, and a smaller value}; with the true bounds this takes a minute."""
MOST_MEMORY = 1 << 28
"""Bytes that reading may take above what the process has."""


def count_texts(path):
    """Number of texts in an .eaf."""
    return sum(len(tier.texts) for tier in read_eaf(path).tiers)


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_of_elan_is_refused_with_one_line(name, tmp_path):
    path = tmp_path / "a.eaf"
    path.write_bytes(eaf_of(*BOMBS[name]))
    outcome = outcome_of_reading(path, count_texts, MOST_MEMORY)
    assert outcome.startswith(f"ListError: {path}: too large ("), outcome
    assert "\n" not in outcome


@pytest.mark.parametrize("bound", BOUNDS)
def test_an_eaf_above_a_bound_is_refused_with_one_line(bound, tmp_path, monkeypatch):
    path = tmp_path / "a.eaf"
    path.write_bytes(eaf_of((ANNOTATION, 2000)))
    read_eaf(path)
    monkeypatch.setattr(BOUNDS[bound][0], bound, BOUNDS[bound][1])
    with pytest.raises(
        ListError, match=r"a\.eaf: too large \(it has more than .*\); save it in parts"
    ):
        read_eaf(path)


def test_entities_in_an_eaf_are_refused(tmp_path):
    doctype = b"<!DOCTYPE d [<!ENTITY a '%s'>]>" % (b"x" * 1000)
    path = tmp_path / "a.eaf"
    path.write_bytes(doctype + eaf_of((ANNOTATION.replace(b">x<", b">&a;<"), 2)))
    with pytest.raises(ListError, match=r"a\.eaf: damaged, or no file of ELAN \(it has a DOCTYPE"):
        read_eaf(path)


def test_a_tier_with_more_bytes_than_an_annotation_may_have_is_read(tmp_path):
    path = tmp_path / "a.eaf"
    path.write_bytes(eaf_of((ANNOTATION, 30_000)))
    assert path.stat().st_size > bounded_xml.MOST_HELD
    assert outcome_of_reading(path, count_texts, MOST_MEMORY) == "1"


def test_a_damaged_eaf_is_read_or_refused_by_name(tmp_path):
    words = [referring("w", "s", "one"), referring("v", "s", "two")]
    sound = eaf(
        tmp_path,
        tier("words", *words, kind="words", more='PARENT_REF="s"'),
        tier("s", timed("s", 0, 2, "text")),
    ).read_bytes()
    path = tmp_path / "a.eaf"
    for case, data in damaged({"eaf": sound}, 200):
        path.write_bytes(data)
        try:
            read_eaf(path)
        except ListError as error:
            assert str(error).startswith(f"{path}: "), case
            assert "\n" not in str(error), case
        except Exception as error:
            raise AssertionError(f"{case}: {error!r}") from error
