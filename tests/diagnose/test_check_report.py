"""The page of a check."""

import re
from dataclasses import replace

import pytest

from tests.support.audio.crashing import crash_at_marked, mark
from tests.support.data.checking import TOKENIZER
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.reader import BatchReader
from wenet_uio.diagnose.check import Reading, check_corpus
from wenet_uio.diagnose.check_report import write_html
from wenet_uio.diagnose.check_shards import opened_for_check
from wenet_uio.prepare.list_making import make_raw_list


@pytest.fixture(autouse=True)
def _without_a_picture(monkeypatch):
    """A picture takes more than a second; test_check.py has one."""
    monkeypatch.setattr("wenet_uio.diagnose.check_report._histograms", lambda report: b"")


def test_markup_in_keys_texts_and_the_title_stays_text(make_utterances, tmp_path):
    script = "<script>alert(1)</script>"
    (line,) = make_utterances(1)
    make_raw_list([replace(line, key=f"{script}k", text=f"{script}t")], str(tmp_path / "list"))
    reading = Reading(DatasetConf(), TOKENIZER)
    with opened_for_check(str(tmp_path / "list"), "raw") as (corpus, not_indexed):
        report = check_corpus(corpus, not_indexed, reading)
        write_html(str(tmp_path / "page.html"), report, BatchReader(corpus, reading.conf), script)
    page = (tmp_path / "page.html").read_text()
    assert report.counts["unknown_unit"] == 1
    assert "<script" not in page
    escaped = "&lt;script&gt;alert(1)&lt;/script&gt;"
    assert f"<h1>{escaped}</h1>" in page
    assert f"<th>{escaped}k<td>" in page
    assert f"</audio><br>{escaped}t\n" in page


def test_the_first_five_findings_of_a_kind_have_players(make_utterances, tmp_path):
    make_raw_list([replace(line, text="你") for line in make_utterances(7)], str(tmp_path / "list"))
    with opened_for_check(str(tmp_path / "list"), "raw") as (corpus, not_indexed):
        report = check_corpus(corpus, not_indexed, Reading(tokenizer=TOKENIZER))
        write_html(
            str(tmp_path / "page.html"), report, BatchReader(corpus, DatasetConf()), "a list"
        )
    page = (tmp_path / "page.html").read_text()
    assert len(re.findall("<th>utt[0-9]+<td>你 in: 你<td>", page)) == 7
    assert page.count("<audio ") == 5


@pytest.mark.parametrize("processes", [1, 2])
def test_audio_that_crashes_the_decoder_is_named_and_the_page_has_no_player_for_it(
    make_utterances, tmp_path, monkeypatch, processes
):
    lines = make_utterances(5)
    make_raw_list(lines, str(tmp_path / "list"))
    mark(lines[2].wav)
    mark(lines[4].wav)
    crash_at_marked(monkeypatch)
    with opened_for_check(str(tmp_path / "list"), "raw") as (corpus, not_indexed):
        report = check_corpus(corpus, not_indexed, Reading(), processes=processes)
        write_html(
            str(tmp_path / "page.html"), report, BatchReader(corpus, DatasetConf()), "a list"
        )
    named = [(finding.kind, finding.key) for finding in report.findings]
    assert named == [("unreadable", lines[2].key), ("unreadable", lines[4].key)]
    assert report.findings[0].detail.startswith(
        f"{lines[2].wav}: the decoder crashed its process (SIGSEGV)"
    )
    page = (tmp_path / "page.html").read_text()
    assert "the decoder crashed its process" in page
    assert "<audio " not in page
