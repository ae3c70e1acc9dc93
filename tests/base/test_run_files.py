from pathlib import Path

import pytest

from wenet_uio.base.run_files import board_folder, read_starts, recorded_utterance_seconds
from wenet_uio.train.checkpoint import RunFolder


def test_the_newest_start_says_how_long_the_utterances_are(tmp_path: Path) -> None:
    assert (read_starts(tmp_path), recorded_utterance_seconds(tmp_path)) == ([], {})
    run = RunFolder(tmp_path)
    run.note_start({"started": "2026-01-01 00:00:00"})
    assert recorded_utterance_seconds(tmp_path) == {}
    run.note_start({"utterance_seconds": {"median": 0.4, "most": 0.7, "longest": 2.0}})
    assert recorded_utterance_seconds(tmp_path) == {"median": 0.4, "most": 0.7, "longest": 2.0}
    assert len(read_starts(tmp_path)) == 2


@pytest.mark.parametrize(
    ("run", "given", "expected"),
    [
        ("exp/a", None, "exp/a/tensorboard"),
        ("exp/a", "exp/a/tensorboard", "exp/a/tensorboard"),
        ("exp/a", "exp/a", "exp/a"),
        ("exp/a", "exp/linked/curves", "exp/linked/curves"),
        ("exp/a", "tensorboard", "tensorboard/a"),
        ("exp/a/", "exp", "exp/a"),
        ("exp/a", "exp/ab", "exp/ab/a"),
        ("exp/a", "exp/a/../curves", "exp/curves/a"),
        ("exp/linked", "tensorboard", "tensorboard/a"),
        (".", "/curves", "/curves/{here}"),
    ],
)
def test_a_tensorboard_dir_outside_of_the_run_gets_a_folder_of_its_name(
    run: str, given: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("exp/a").mkdir(parents=True)
    Path("exp/linked").symlink_to("a")
    found = board_folder(run, given)
    assert found.resolve() == Path(expected.format(here=tmp_path.name)).resolve()
