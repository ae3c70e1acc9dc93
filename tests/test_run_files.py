from pathlib import Path

from wenet_uio.run_files import read_starts, recorded_utterance_seconds
from wenet_uio.train.checkpoint import RunFolder


def test_the_newest_start_says_how_long_the_utterances_are(tmp_path: Path) -> None:
    assert (read_starts(tmp_path), recorded_utterance_seconds(tmp_path)) == ([], {})
    run = RunFolder(tmp_path)
    run.note_start({"started": "by an older version"})
    assert recorded_utterance_seconds(tmp_path) == {}
    run.note_start({"utterance_seconds": {"median": 0.4, "most": 0.7, "longest": 2.0}})
    assert recorded_utterance_seconds(tmp_path) == {"median": 0.4, "most": 0.7, "longest": 2.0}
    assert len(read_starts(tmp_path)) == 2
