"""The suggestion for a name that is not known."""

from pathlib import Path

import pytest

from wenet_uio.base.messages import nearest_name

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("accum_grda", "accum_grad"),
        ("ACCUM_GRAD", "accum_grad"),
        ("embd", "Embed"),
        ("abc", None),
        ("", None),
    ],
)
def test_the_most_similar_name_is_suggested_and_none_that_is_not_similar(name, nearest):
    assert nearest_name(name, ["max_epoch", "accum_grad", "Embed"]) == nearest
    assert nearest_name(name, []) is None


def test_every_suggestion_follows_the_one_rule():
    modules = [path for name in ("wenet_uio", "tools") for path in (ROOT / name).rglob("*.py")]
    found = [path for path in modules if "difflib" in path.read_text(encoding="utf-8")]
    assert found == [ROOT / "wenet_uio/base/messages.py"]
