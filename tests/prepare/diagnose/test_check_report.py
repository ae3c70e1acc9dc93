"""The page of a check."""

import base64
import io
import re
from dataclasses import replace

import numpy as np
import pytest
import soundfile

from tests.support.audio.crashing import crash_at_marked, mark
from tests.support.data.checking import TOKENIZER
from tests.support.markup import check_markup
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.reader import BatchReader
from wenet_uio.prepare.diagnose import check_report
from wenet_uio.prepare.diagnose.check import Reading, check_corpus
from wenet_uio.prepare.diagnose.check_report import write_html
from wenet_uio.prepare.diagnose.check_shards import opened_for_check
from wenet_uio.prepare.list_making import make_raw_list


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
    assert "<script>alert" not in page
    escaped = "&lt;script&gt;alert(1)&lt;/script&gt;"
    assert f"<h1>{escaped}</h1>" in page
    assert f"<th>{escaped}k<td>" in page
    assert f'</audio><br><span dir="auto">{escaped}t</span>' in page
    check_markup(page)


def test_every_finding_of_the_page_has_a_player_and_the_others_are_counted(
    make_utterances, tmp_path, monkeypatch
):
    monkeypatch.setattr(check_report, "FIRST", 2)
    monkeypatch.setattr(check_report, "SHOWN", 5)
    make_raw_list([replace(line, text="你") for line in make_utterances(7)], str(tmp_path / "list"))
    with opened_for_check(str(tmp_path / "list"), "raw") as (corpus, not_indexed):
        report = check_corpus(corpus, not_indexed, Reading(tokenizer=TOKENIZER))
        write_html(
            str(tmp_path / "page.html"), report, BatchReader(corpus, DatasetConf()), "a list"
        )
    page = (tmp_path / "page.html").read_text()
    rows = re.findall("<th>utt[0-9]+<td>你 in: 你<td><audio ", page)
    assert len(rows) == page.count("<audio ") == 5
    assert "<summary>3 more</summary>" in page
    assert "This page leaves out 2 more of them" in page
    assert "7 unknown unit: suspect" in page
    check_markup(page)
    assert not re.search(r"\b(None|nan)\b", re.sub('data:[^"]*', "", page))


@pytest.mark.parametrize(
    ("rate", "kind"), [(8000, "audio/mpeg"), (16000, "audio/mpeg"), (44056, "audio/flac")]
)
def test_a_player_holds_the_sound_in_few_bytes(rate, kind):
    seconds = np.arange(3 * rate) / rate
    tone = (8000 * np.sin(2 * np.pi * 440 * seconds)).astype(np.float32)
    media_type, data = (
        check_report._encode_player(tone, rate).removeprefix("data:").split(";base64,")
    )
    assert media_type == kind
    sound = base64.b64decode(data)
    samples, stored_rate = soundfile.read(io.BytesIO(sound))
    assert stored_rate == rate
    assert abs(len(samples) / rate - 3) < 0.2
    loudest = np.abs(np.fft.rfft(samples)).argmax() * rate / len(samples)
    assert loudest == pytest.approx(440, abs=2)
    assert len(sound) < 2 * len(tone) * (0.3 if kind == "audio/mpeg" else 1)


@pytest.mark.third
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
