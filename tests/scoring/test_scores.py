import io
import json
import re

import pytest

from wenet_uio.scoring.scores import ReportFormat, as_dict, score, write_comparison, write_report
from wenet_uio.scoring.words import WordRules

BY_CHARACTER = WordRules("auto")


def report(references, hypotheses, rules=BY_CHARACTER, **options):
    file = io.StringIO()
    write_report(score(references, hypotheses, rules), file, ReportFormat(**options))
    return file.getvalue()


def test_the_report_has_the_lines_of_wenet():
    text = report({"u1": "我爱 ok"}, {"u1": "我 a ok"})
    assert text.startswith(
        "\nutt: u1\nWER: 33.33 % N=3 C=2 S=1 D=0 I=0\nlab: 我 爱 OK\nrec: 我 A  OK\n\n===="
    )
    assert "\nOverall -> 33.33 % N=3 C=2 S=1 D=0 I=0\n" in text
    assert (
        "\nMandarin -> 50.00 % N=2 C=1 S=1 D=0 I=0\nEnglish -> 0.00 % N=1 C=1 S=0 D=0 I=0\n" in text
    )


def test_without_verbosity_only_totals_are_written():
    assert (
        report({"u1": "我"}, {"u1": "我"}, verbose=0)
        == "Counted -> characters (CER)\nOverall -> 0.00 % N=1 C=1 S=0 D=0 I=0\n"
    )


def test_missing_hypotheses_are_deletions_and_extra_ones_are_named():
    text = report({"u1": "我 爱", "u2": "你 好 吗"}, {"u1": "我 爱", "u9": "你"}, verbose=0)
    assert "Missing: 1 without hypothesis, counted as deleted: u2\n" in text
    assert "Extra: 1 without reference, not scored: u9\n" in text
    assert "Overall -> 60.00 % N=5 C=2 S=0 D=3 I=0\n" in text


def test_files_without_a_common_key_are_an_error():
    with pytest.raises(ValueError, match="references begin with u1, hypotheses with v1"):
        score({"u1": "a"}, {"v1": "a"}, WordRules())


def test_an_inserted_word_counts_for_its_own_script():
    scores = score({"u": "我"}, {"u": "我 ok"}, BY_CHARACTER)
    assert scores.scripts["English"].inserted == 1
    assert scores.scripts["Mandarin"].inserted == 0


def test_long_alignments_wrap_with_padding_of_choice():
    text = report(
        {"u": "a bb c"}, {"u": "a c"}, rules=WordRules(), words_per_line=2, padding="_", verbose=2
    )
    assert "lab(u): A BB\nrec(u): A __\n\nlab(u): C\nrec(u): C\n" in text


def test_the_interval_follows_the_total():
    references = {f"u{number}": "a b c d" for number in range(40)}
    hypotheses = {
        key: "a b c d" if number % 2 else "a b c x" for number, key in enumerate(references)
    }
    text = report(references, hypotheses, verbose=0, resamples=500)
    _, first, second = text.splitlines()
    assert first == "Overall -> 12.50 % N=160 C=140 S=20 D=0 I=0"
    low, high = map(
        float,
        re.fullmatch(
            r"95 % interval -> (\S+) to (\S+) %, 500 resamples of the utterances", second
        ).groups(),
    )
    assert 5 < low < 12.5 < high < 20


def test_two_systems_are_compared():
    references = {f"u{number}": "a b c d" for number in range(40)}
    worse = dict.fromkeys(references, "a b x x")
    better = dict.fromkeys(references, "a b c x")
    file = io.StringIO()
    systems = [
        (name, score(references, found, WordRules()))
        for name, found in (("old", worse), ("new", better))
    ]
    write_comparison(*systems, file, 100)
    assert file.getvalue().splitlines() == [
        "1: old -> 50.00 % N=160 C=80 S=80 D=0 I=0",
        "2: new -> 25.00 % N=160 C=120 S=40 D=0 I=0",
        "2 - 1 -> -25.00 points, 95 % interval -25.00 to -25.00, p = 0.000 (100 paired resamples)",
    ]


def test_without_words_of_references_the_rate_is_none_and_inserted_words_are_counted():
    silence = {f"u{number}": "" for number in range(20)}
    heard = {key: "you" if key == "u3" else "" for key in silence}
    text = report(silence, heard, verbose=0, resamples=100)
    assert text.splitlines() == [
        "Without words: 20 of 20 references; insertions there: 1, in 1 of them",
        "Counted -> characters and words (MER)",
        "Overall -> n/a % N=0 C=0 S=0 D=0 I=1",
    ]
    quiet = report(silence, silence, WordRules(), verbose=0, resamples=100)
    assert "Overall -> 0.00 % N=0 C=0 S=0 D=0 I=0\n" in quiet
    assert "interval" not in text + quiet


def test_words_inserted_into_silence_count_beside_references_with_words():
    text = report({"u": "a b", "v": ""}, {"u": "a b", "v": "c d"}, WordRules(), resamples=100)
    assert "utt: v\nWER: n/a % N=0 C=0 S=0 D=0 I=2\n" in text
    assert "Without words: 1 of 2 references; insertions there: 2, in 1 of them\n" in text
    assert "Overall -> 100.00 % N=2 C=2 S=0 D=0 I=2\n" in text


def test_resamples_without_words_have_no_rate():
    references = {f"u{number}": "a b" if number == 0 else "" for number in range(3)}
    record = as_dict(score(references, dict.fromkeys(references, "a"), WordRules()), 200)
    low, high = record["interval"]
    assert (low, record["rate"], high) == (50, 150, 150)  # 3 errors in 6, 4 or 2 words


def test_a_record_of_silence_has_no_rate_and_is_json():
    scores = score({"u": ""}, {"u": "you"}, WordRules())
    record = as_dict(scores, 100, scores)
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert (record["rate"], record["inserted"], record["interval"]) == (None, 1, None)
    assert record["compared"]["difference"] is None
    file = io.StringIO()
    write_comparison(("a", scores), ("b", scores), file, 100)
    assert file.getvalue().endswith("2 - 1 -> n/a, the references have no words\n")


@pytest.mark.parametrize(
    ("unit", "text", "line"),
    [
        ("auto", "我 爱 你", "characters (CER)"),
        ("auto", "i love you", "words (WER)"),
        ("auto", "我爱 you", "characters and words (MER)"),
        ("auto", "かな ไทย 한", "characters (CER)"),
        ("auto", "дом 2008", "words (WER)"),
        ("word", "我 爱 你", "words (WER)"),
        ("char", "i love you", "characters (CER)"),
    ],
)
def test_a_report_names_what_is_counted(unit, text, line):
    assert f"\nCounted -> {line}\n" in report({"u": text}, {"u": "x 我"}, WordRules(unit))
