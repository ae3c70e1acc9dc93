"""The examples of the README run."""

import re
from pathlib import Path

import pytest

import wenet_uio

pytestmark = pytest.mark.usefixtures("without_silero")
README = Path(wenet_uio.__file__).parent / "addons/listen/README.md"


def test_the_examples_of_the_readme_run_from_the_first_to_the_last(model, capsys):
    examples = re.findall(
        r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert len(examples) == 7
    names = {}
    for example in examples:
        exec(compile(example, str(README), "exec"), names)
    assert Path("talk.srt").read_text().startswith("1\n00:00:0")
    assert Path("talk.vtt").read_text().startswith("WEBVTT")
    assert capsys.readouterr().out
