"""Choosing pseudo labels: limits, agreement of two models, results of recognize.py."""

import json

import pytest

from wenet_uio.addons.corpora.pseudo_labels import (
    Label,
    LeftOut,
    Limits,
    Speech,
    Spelling,
    choose_labels,
    find_repetition,
    read_labels,
)

SPEECH = [Speech("a", 1.0), Speech("b", 2.0), Speech("c", 10.0)]
LABELS = {"a": Label("one two", 0.9), "b": Label("three", 0.5), "c": Label("four", 0.8)}


def reasons(limits, labels=LABELS, others=None, speech=SPEECH):
    return {
        key: why.reason
        for key, why in choose_labels(speech, labels, limits, others).left_out.items()
    }


def test_without_limits_every_text_becomes_a_label_in_the_order_of_the_list():
    choice = choose_labels(SPEECH, dict(reversed(LABELS.items())), Limits())
    assert list(choice.texts.items()) == [("a", "one two"), ("b", "three"), ("c", "four")]
    assert choice.left_out == {}


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(min_confidence=0.8), {"b": "confidence"}),
        (Limits(min_seconds=1.5), {"a": "short"}),
        (Limits(max_seconds=2), {"c": "long"}),
        (Limits(min_rate=1), {"c": "slow"}),
        (Limits(max_rate=5.9), {"a": "fast"}),
        (Limits(max_rate=6, min_rate=0.4, min_seconds=1, max_seconds=10, min_confidence=0.5), {}),
    ],
)
def test_a_limit_leaves_out_what_is_beyond_it_and_keeps_what_equals_it(limits, expected):
    assert reasons(limits) == expected


def test_empty_texts_missing_results_and_keys_that_are_there_twice_are_left_out():
    speech = [*SPEECH, Speech("b", 3.0), Speech("d", 1.0)]
    labels = LABELS | {"d": Label("  ")}
    del labels["a"]
    assert reasons(Limits(), labels, speech=speech) == {
        "a": "not_recognised",
        "b": "key_twice",
        "d": "empty",
    }


def test_a_text_without_confidence_is_left_out_if_other_texts_have_one():
    assert reasons(Limits(min_confidence=0.1), LABELS | {"a": Label("one")}) == {"a": "confidence"}


def test_texts_on_which_two_models_differ_by_more_than_the_bound_are_left_out():
    others = {"a": Label("ONE TOO"), "b": Label("three")}
    assert reasons(Limits(max_cer=20), others=others) == {"c": "not_recognised"}
    assert reasons(Limits(max_cer=10), others=others) == {
        "a": "disagreement",
        "c": "not_recognised",
    }
    assert reasons(Limits(max_cer=0), others=LABELS) == {}
    detail = choose_labels(SPEECH, LABELS, Limits(max_cer=10), others).left_out["a"].detail
    assert detail == "CER 14.29 %; the second model recognised: ONE TOO"


def test_an_utterance_of_no_length_is_too_fast():
    assert reasons(Limits(max_rate=100), speech=[Speech("a", 0.0)]) == {"a": "fast"}


@pytest.mark.parametrize(
    "values",
    [
        {"min_confidence": 1.1},
        {"max_cer": -1},
        {"min_seconds": float("nan")},
        {"min_rate": 3, "max_rate": 2},
        {"max_repeats": 0},
    ],
)
def test_limits_that_make_no_sense_are_refused(values):
    with pytest.raises(ValueError, match=next(iter(values))):
        Limits(**values)


def test_a_bound_without_what_it_bounds_is_refused():
    with pytest.raises(ValueError, match="no confidences; decode with --token_times"):
        choose_labels(SPEECH, {"a": Label("one")}, Limits(min_confidence=0.5))
    with pytest.raises(ValueError, match="belong together"):
        choose_labels(SPEECH, LABELS, Limits(), LABELS)
    with pytest.raises(ValueError, match="belong together"):
        choose_labels(SPEECH, LABELS, Limits(max_cer=5))


def test_results_are_read_from_nbest_or_else_from_text(tmp_path):
    (tmp_path / "text").write_text("a one two\nb\n")
    assert read_labels(tmp_path) == {"a": Label("one two"), "b": Label("")}
    lines = [
        {
            "key": "a",
            "hypotheses": [
                {"text": "one", "score": -1, "confidence": 0.7},
                {"text": "two", "score": -2},
            ],
        }
    ]
    (tmp_path / "nbest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_labels(tmp_path) == {"a": Label("one", 0.7)}
    (tmp_path / "nbest.jsonl").write_text('{"key": "a", "hypotheses": []}\n')
    with pytest.raises(ValueError, match=r"nbest\.jsonl:1: not a line of recognize\.py"):
        read_labels(tmp_path)
    with pytest.raises(OSError, match="text"):
        read_labels(tmp_path / "missing")


@pytest.mark.parametrize("part", ["no", "thank you", "Women and children.", "哈", "ha", "ไม่"])
@pytest.mark.parametrize("before", ["", "He said: "])
@pytest.mark.parametrize("between", [" ", ", ", "! "])
def test_a_part_that_stands_in_a_row_too_often_is_found_whatever_stands_between(
    part, before, between
):
    for times in range(2, 9):
        text = before + between.join([part] * times)
        found = find_repetition(text, 4)
        assert (found is not None) == (times > 4), text
        if found:
            assert found[1] == times
            assert found[0] in part.lower()


@pytest.mark.parametrize(
    "text",
    ["", "   ", "committee", "one one two two one one two two", "2648 2648", "a b c d e f g"],
)
def test_usual_texts_have_no_repetition(text):
    assert find_repetition(text, 4) is None


def test_texts_that_repeat_themselves_are_left_out_and_the_detail_says_what():
    labels = LABELS | {"b": Label("and so on " * 30)}
    left_out = choose_labels(SPEECH, labels, Limits(max_repeats=4)).left_out
    assert {key: tuple(why) for key, why in left_out.items()} == {
        "b": ("repeats", "'and so on' 30 times in a row")
    }
    assert reasons(Limits(), labels) == {}


def test_labels_are_written_for_the_student_and_texts_with_other_digits_are_left_out():
    labels = {
        "a": Label("It's the 2nd dog, No. 5!"),
        "b": Label("In 1990."),
        "c": Label("YES"),
    }
    texts = {
        "keep": {"a": "IT'S THE 2ND DOG NO 5", "b": "IN 1990", "c": "YES"},
        "leave_out": {"c": "YES"},
        "words": {"a": "IT'S THE SECOND DOG NO FIVE", "c": "YES"},
    }
    for digits, expected in texts.items():
        choice = choose_labels(SPEECH, labels, Limits(), spelling=Spelling("english", digits))
        assert choice.texts == expected
        assert choice.changed == len(expected) - 1
        assert {why.reason for why in choice.left_out.values()} <= {"digits"}


@pytest.mark.parametrize(
    ("text", "is_note"),
    [
        ("[BLANK_AUDIO]", True),
        (" (upbeat music) ", True),
        ("*coughs*.", True),
        ("♪ [Music] ♪ (applause)", True),
        ("[laughs] no", False),
        ("yes (no)", False),
        ("yes", False),
    ],
)
def test_a_text_that_only_names_a_sound_is_no_label(text, is_note):
    spelling = Spelling("english", "words")
    choice = choose_labels(SPEECH, LABELS | {"b": Label(text, 0.9)}, Limits(), spelling=spelling)
    expected = {"b": LeftOut("note", text)} if is_note else {}
    assert choice.left_out == expected


def test_a_text_of_punctuation_alone_is_empty_for_the_student():
    labels = {key: Label("...", 0.9) for key in LABELS}
    choice = choose_labels(SPEECH, labels, Limits(), spelling=Spelling("english"))
    assert {why.reason for why in choice.left_out.values()} == {"empty"}


def test_both_teachers_are_compared_as_the_student_writes():
    others = {key: Label(label.text.upper() + ".") for key, label in LABELS.items()}
    spelling = Spelling("english")
    assert choose_labels(SPEECH, LABELS, Limits(max_cer=0), others, spelling).left_out == {}


@pytest.mark.parametrize("values", [{"text": "klingon"}, {"digits": "roman"}])
def test_an_unknown_spelling_is_refused_with_the_known_ones(values):
    with pytest.raises(ValueError, match=f"{next(iter(values))}: expected (none|keep), "):
        Spelling(**values)
