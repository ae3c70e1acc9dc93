from pathlib import Path

import pytest

from tests.support.random_texts import random_trn_pairs
from wenet_uio.scoring.scores import score
from wenet_uio.scoring.trn import paired, read_transcripts
from wenet_uio.scoring.wer import Counts
from wenet_uio.scoring.words import WordRules

SCLITE = Path(__file__).with_name("sclite_counts.txt")
"""Correct, substituted, deleted, inserted words of each pair of random_trn_pairs(500, seed=60), as
sclite 2.4.10 of Debian 12 counts them: sclite -D -e utf-8 -r ref trn -h hyp trn -i spu_id -o pralign."""


def read(tmp_path, references, hypotheses):
    (tmp_path / "ref").write_text(references, encoding="utf-8")
    (tmp_path / "hyp").write_text(hypotheses, encoding="utf-8")
    return paired(read_transcripts(tmp_path / "ref"), read_transcripts(tmp_path / "hyp"))


TRN = "the cat (a-1)\n;; a comment\n\n(a-2)\nthe mat(a-3)\n"
KALDI = "a-1 the cat\na-2\na-3 the mat\n"
TEXTS = {"a-1": "the cat", "a-2": "", "a-3": "the mat"}


@pytest.mark.parametrize("references", [TRN, KALDI])
@pytest.mark.parametrize("hypotheses", [TRN, KALDI])
def test_either_side_may_have_either_format_whatever_its_name(tmp_path, references, hypotheses):
    assert read(tmp_path, references, hypotheses) == (TEXTS, TEXTS)


def test_a_sentence_with_one_wrong_word_of_five_has_20_percent(tmp_path):
    texts = read(
        tmp_path, "she had your dark suit (cmh_sa01)\n", "she had your dark coat (cmh_sa01)\n"
    )
    assert score(*texts, WordRules()).overall == Counts(correct=4, substituted=1)


@pytest.mark.parametrize(
    "lines",
    [
        "u1 one (laughs)\nu2 two (coughs)\n",
        "u1 one (take_1)\nu2 two (take_2)\n",
        "u1 (1)\n",
        "u1 one (laughs)\n",
    ],
)
def test_a_kaldi_text_whose_lines_end_in_parentheses_stays_one(tmp_path, lines):
    hypotheses = "u1 one\nu2 two\n"
    references, recognised = read(tmp_path, lines, hypotheses)
    assert list(references) == [line.split()[0] for line in lines.splitlines()]
    assert recognised == {"u1": "one", "u2": "two"}
    assert "(" in references["u1"]


def test_files_of_sclite_with_other_keys_are_not_read_as_kaldi_texts(tmp_path):
    texts = read(tmp_path, "the cat (a-1)\na cat (a-2)\n", "the cat (b-1)\na cat (b-2)\n")
    with pytest.raises(ValueError, match="references begin with a-1, hypotheses with b-1"):
        score(*texts, WordRules())


def test_the_texts_of_a_kaldi_file_are_left_as_they_are(tmp_path):
    lines = "u1 { a / b } (uh) @\n"
    assert read(tmp_path, lines, lines) == ({"u1": "{ a / b } (uh) @"}, {"u1": "{ a / b } (uh) @"})


@pytest.mark.parametrize(
    ("reference", "hypothesis", "counted"),
    [
        ("i've { um / uh / @ } heard", "i've heard", "i've heard"),
        ("i've { um / uh / @ } heard", "i've UH heard", "i've uh heard"),
        ("i've { um / uh / @ } heard", "i've er heard", "i've heard"),  # inserted, as in sclite
        ("{ a b / { c / d e } f } g", "d e f g", "d e f g"),
        ("{um/uh} and/or @ no", "uh and/or no", "uh and/or no"),
        ("hello (uh) world", "hello world", "hello world"),
        ("hello (uh) world", "hello uh world", "hello uh world"),
        ("{ a }", "", "a"),
        ("{ Um / um }", "um", "um"),
        ("", "a", ""),
    ],
)
def test_the_alternatives_with_the_fewest_errors_count(tmp_path, reference, hypothesis, counted):
    references, recognised = read(tmp_path, f"{reference} (s-1)\n", f"s-1 {hypothesis}\n")
    assert references == {"s-1": counted}
    assert recognised == {"s-1": hypothesis}


def test_a_hypothesis_may_have_alternatives_too(tmp_path):
    texts = read(tmp_path, "s-1 x y\n", "{ q / x } y { z / @ } (s-1)\n")
    assert texts == ({"s-1": "x y"}, {"s-1": "x y"})


def test_a_reference_without_hypothesis_has_its_shortest_words(tmp_path):
    texts = read(tmp_path, "{ a b / c } (s-1)\nd (s-2)\n", "d (s-2)\n")
    assert texts == ({"s-1": "c", "s-2": "d"}, {"s-2": "d"})


def test_500_random_pairs_have_the_counts_of_sclite(tmp_path):
    """Errors are those of sclite, which counts an optional word that is left out as correct; here it
    does not count. sclite weighs errors, and finds an alignment of pair 360 with one more; of pair
    306 it takes another alternative with as many errors.
    """
    pairs = random_trn_pairs(500, seed=60)
    sclite = [Counts(*map(int, line.split())) for line in SCLITE.read_text().splitlines()]
    sides = [
        "".join(f"{text} (s-{number})\n" for number, text in enumerate(side))
        for side in zip(*pairs, strict=True)
    ]
    counts = score(*read(tmp_path, *sides), WordRules(case_sensitive=True)).counts()

    more_errors: list[int] = []
    other_words: list[int] = []
    for number, (mine, theirs) in enumerate(zip(counts, sclite, strict=True)):
        optional = sum(word.startswith("(") for word in pairs[number][0].split())
        if mine.errors != theirs.errors:
            more_errors.append(number)
        if not theirs.words - optional <= mine.words <= theirs.words:
            other_words.append(number)
    assert (more_errors, other_words) == ([360], [306])
    assert sclite[360].errors == counts[360].errors + 1
    assert sum(not mine.words for mine in counts) > 50


@pytest.mark.parametrize(
    ("references", "hypotheses", "message"),
    [
        ("the a (s-1)\nthe b (s-1)\n", "the a (s-1)\n", r"ref:2: utterance 's-1' is there twice"),
        (
            "the a (s-1)\nthe b (s-2)\nthe c\n",
            "s-1 a\n",
            r"ref:3: expected `text \(key\)`, as most",
        ),
        ("a b (s-1)\nc (s-2)\n", "a b (s-1)\nc\nd (s-3)\n", r"hyp:2: expected `text \(key\)`"),
        ("s-1 a\n", "a b (s-1)\nc d (s-2)\ne\n", r"hyp:3: expected `text \(key\)`, as most"),
        ("{ a / b (s-1)\n", "a (s-1)\n", "utterance s-1: `{` has no `}` after it"),
        ("a (s-1)\n", "a } b (s-1)\n", "utterance s-1: `}` has no `{` before it"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, references, hypotheses, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, references, hypotheses)


def test_deep_alternations_are_read(tmp_path):
    depth = 5000
    text = "{ a / " * depth + "b" + " }" * depth
    assert read(tmp_path, f"{text} (s-1)\n", "b (s-1)\n")[0] == {"s-1": "b"}
