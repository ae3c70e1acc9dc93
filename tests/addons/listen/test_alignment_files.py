import io
import re

from wenet_uio.addons.listen.alignment import Alignment, Interval
from wenet_uio.addons.listen.alignment_files import (
    write_alignments,
    write_clean_list,
    write_ctm,
    write_textgrid,
    write_textgrids,
)


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
