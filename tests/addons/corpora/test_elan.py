from __future__ import annotations

import pytest

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
