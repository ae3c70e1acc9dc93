import io
import re

import pytest
import torch

from wenet_uio.addons.listen.alignment import (
    Alignment,
    Interval,
    align_transcript,
    write_alignments,
    write_clean_list,
    write_ctm,
    write_textgrid,
    write_textgrids,
)
from wenet_uio.search.recogniser import FrameClock
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

UNITS = ["<blank>", "▁", "a", "b", "我"]
TOKENIZER = Tokenizer(CharSplitter(), {unit: place for place, unit in enumerate(UNITS)})
CLOCK = FrameClock(step=0.04, offset=0.02, shift=0.01)


def posteriors(labels, sure=0.9):
    """(T, V): each frame gives its label `sure`."""
    probs = torch.full((len(labels), len(UNITS)), (1 - sure) / (len(UNITS) - 1))
    probs[range(len(labels)), labels] = sure
    return probs.log()


def test_tokens_and_words_get_the_frames_that_emit_them():
    heard = [0, 2, 2, 3, 0, 1, 3, 0, 4, 4, 0]
    found = align_transcript(posteriors(heard), [2, 3, 1, 3, 4], TOKENIZER, CLOCK, 0.5, blank=0)
    assert [each.text for each in found.tokens] == ["a", "b", "▁", "b", "我"]
    assert [each.start for each in found.tokens] == pytest.approx([0.06, 0.14, 0.22, 0.26, 0.34])
    assert [each.end for each in found.tokens] == pytest.approx([0.14, 0.18, 0.26, 0.3, 0.42])
    assert [(each.text, each.start, each.end) for each in found.words] == [
        ("ab", pytest.approx(0.06), pytest.approx(0.18)),
        ("b", pytest.approx(0.22), pytest.approx(0.3)),
        ("我", pytest.approx(0.34), pytest.approx(0.42)),
    ]
    assert [each.confidence for each in found.words] == pytest.approx([0.9] * 3)
    assert found.score == pytest.approx(0.0, abs=1e-5)


def test_a_wrong_text_scores_below_the_right_one():
    heard = posteriors([0, 2, 2, 3, 0, 1, 3, 0])
    right = align_transcript(heard, [2, 3, 1, 3], TOKENIZER, CLOCK, 0.5, blank=0)
    wrong = align_transcript(heard, [2, 4, 1, 3], TOKENIZER, CLOCK, 0.5, blank=0)
    assert right.score == pytest.approx(0.0, abs=1e-5)
    assert wrong.score == pytest.approx(
        (torch.tensor(0.025).log() - torch.tensor(0.9).log()).item() / 4, abs=1e-4
    )
    assert align_transcript(heard, [2] * 5, TOKENIZER, CLOCK, 0.5, blank=0) is None


def test_an_empty_text_has_no_intervals():
    found = align_transcript(posteriors([0, 0]), [], TOKENIZER, CLOCK, 0.1, blank=0)
    assert (found.tokens, found.words, found.score) == ((), (), pytest.approx(0.0))


def test_ctm_and_textgrid_are_in_their_formats(tmp_path):
    words = (Interval('say "hi"', 0.1, 0.3, 0.5), Interval("b", 0.3, 0.42, 1.0))
    alignment = Alignment(tokens=words[1:], words=words, score=0.0, seconds=0.5)
    write_ctm({"u1": alignment}, tmp_path / "ctm", "words")
    assert (
        tmp_path / "ctm"
    ).read_text() == 'u1 1 0.100 0.200 say "hi" 0.500\nu1 1 0.300 0.120 b 1.000\n'

    file = io.StringIO()
    write_textgrid(alignment, file)
    text = file.getvalue()
    assert text.startswith('File type = "ooTextFile"\nObject class = "TextGrid"\n')
    assert re.findall(r'name = "(\w+)"', text) == ["words", "tokens"]
    assert re.findall(r"intervals: size = (\d)", text) == ["4", "3"]
    assert re.findall(r'text = "(.*)"', text) == ["", 'say ""hi""', "b", "", "", "b", ""]
    edges = [float(edge) for edge in re.findall(r"xmax = ([\d.]+)\n +text", text)]
    assert edges == [0.1, 0.3, 0.42, 0.5, 0.3, 0.42, 0.5]


def test_the_clean_list_lacks_poor_and_broken_lines(tmp_path):
    lines = ['{"key": "a", "wav": "a.wav", "txt": "x"}', "broken", '{"wav": "b.wav", "txt": "y"}']
    (tmp_path / "list").write_text("\n".join(lines))
    assert write_clean_list(tmp_path / "list", tmp_path / "clean", {"a": "score -9"}) == 1
    assert (tmp_path / "clean").read_text() == lines[2] + "\n"


def test_all_files_are_written_to_the_result_folder(tmp_path):
    alignment = Alignment(tokens=(Interval("a", 0.0, 0.1, 1.0),), words=(), score=-0.5, seconds=0.1)
    write_alignments({"a/1": alignment}, {"b": "score -9.00"}, tmp_path)
    write_textgrids({"a/1": alignment}, tmp_path / "textgrid")
    names = sorted(
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()
    )
    assert names == ["poor", "scores", "textgrid/a_1.TextGrid", "tokens.ctm", "words.ctm"]
    assert (tmp_path / "scores").read_text() == "a/1 -0.5000\n"
    assert (tmp_path / "poor").read_text() == "b score -9.00\n"
    assert (tmp_path / "tokens.ctm").read_text() == "a/1 1 0.000 0.100 a 1.000\n"
