"""align.py on audio, from the command line."""

from pathlib import Path

import pytest

from tests.bin import conftest
from tests.support.models.recogniser import KEYS
from wenet_uio.addons.listen import align

folder = conftest.folder


def call(data, *options):
    arguments = [
        "--config",
        "train.yaml",
        "--checkpoint",
        "model.pt",
        "--result_dir",
        data,
        "--device",
        "cpu",
    ]
    arguments += ["--data_type", data, "--data_list", f"{data}.list", "--batch_size", "2"]
    align.main([*arguments, *map(str, options)])
    return {path.name: path.read_text() for path in Path(data).iterdir() if path.is_file()}


def test_raw_and_shard_lists_give_the_same_files_in_the_order_of_the_list(folder):
    raw = call("raw", "--textgrid")
    assert raw.pop("clean.list") == (folder / "raw.list").read_text()
    assert raw == call("shard")
    assert [line.split()[0] for line in raw["words.ctm"].splitlines()] == KEYS
    assert [line.split()[0] for line in raw["tokens.ctm"].splitlines()[::2]] == KEYS
    assert [line.split()[4] for line in raw["tokens.ctm"].splitlines()] == ["a", "b"] * 5
    assert raw["poor"] == ""
    assert sorted(path.stem for path in (folder / "raw" / "textgrid").iterdir()) == sorted(KEYS)


def test_low_scores_and_unreadable_utterances_are_poor_and_not_in_the_clean_list(folder, capsys):
    scores = dict(line.split() for line in call("raw")["scores"].splitlines())
    worst = min(scores, key=lambda key: float(scores[key]))
    unreadable = next(key for key in KEYS if key != worst)
    (folder / f"{unreadable}.wav").write_bytes(b"RIFF")
    files = call("raw", "--min_score", float(scores[worst]) + 1e-3)
    reasons = dict(line.split(" ", 1) for line in files["poor"].splitlines())
    assert set(reasons) == {worst, unreadable}
    assert reasons[worst].startswith("score -")
    assert reasons[unreadable].startswith("unreadable: ")
    assert files["clean.list"].count("\n") == 3
    assert "4 utterances aligned, 2 poor or unreadable" in capsys.readouterr().out


def test_it_is_an_error_if_no_utterance_aligns(folder):
    for key in KEYS:
        (folder / f"{key}.wav").write_bytes(b"RIFF")
    with pytest.raises(ValueError, match=r"raw\.list: not one utterance could be aligned"):
        call("raw")
