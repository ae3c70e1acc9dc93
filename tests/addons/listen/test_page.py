"""The examples of the page for Python run."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("without_silero")
PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/python.md"


def test_the_examples_of_the_page_run_from_the_first_to_the_last(model, capsys):
    examples = re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert len(examples) == 7
    names = {}
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), names)
    assert Path("talk.srt").read_text().startswith("1\n00:00:0")
    assert Path("talk.vtt").read_text().startswith("WEBVTT")
    assert capsys.readouterr().out
