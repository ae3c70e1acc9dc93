"""How much quiet a training hears is measured before it starts, and the training does not change."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import yaml

from tests.support.data.loading import loader, same
from tests.support.storage.servers import serving
from tests.support.train.training_corpus import write_corpus
from wenet_uio.addons.listen import heard_quiet
from wenet_uio.addons.listen.heard_quiet import measure_quiet, quiet_around
from wenet_uio.bin import train
from wenet_uio.config import load_config
from wenet_uio.config.dataset import HeardQuiet
from wenet_uio.config.named_code import Loaded
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.prepare.list_making import make_raw_list, make_shard_list
from wenet_uio.prepare.sharding import ShardOptions

RATE = 8000
RANDOM = """
import random, numpy, torch
def operator():
    def draw(example):
        random.random(), numpy.random.rand(), torch.rand(1)
        return example
    return draw
"""


def spoken(corpora: Path, number: int) -> np.ndarray:
    """A digit that is cut close, from -1 to 1."""
    return soundfile.read(corpora / f"fsdd/recordings/{number % 10}_jackson_{number // 10}.wav")[0]


def noise(seconds: float, level: float | None, seed: int) -> np.ndarray:
    """Quiet of a level in dB of full scale; None: zeros."""
    scale = 0.0 if level is None else 10 ** (level / 20)
    return scale * np.random.default_rng(seed).standard_normal(round(seconds * RATE))


def write_list(
    corpora: Path, folder: Path, before: float, behind: float, level: float | None, count: int = 20
) -> list[RawLine]:
    """Write digits with quiet around them."""
    folder.mkdir(parents=True)
    lines = []
    for number in range(count):
        parts = noise(before, level, number), spoken(corpora, number), noise(behind, level, 99)
        path = folder / f"u{number}.wav"
        soundfile.write(path, np.concatenate(parts), RATE)
        lines.append(RawLine(path.stem, str(path), "abc"[number % 3]))
    make_raw_list(lines, str(folder / "raw.list"))
    return lines


@pytest.mark.third
@pytest.mark.parametrize("level", [None, -80, -60, -50])
@pytest.mark.parametrize(("before", "behind"), [(0.0, 0.0), (0.3, 0.05), (0.0, 1.0), (2.0, 0.5)])
def test_the_quiet_of_a_corpus_is_measured_at_each_end(
    corpora: Path, tmp_path: Path, before: float, behind: float, level: float | None
) -> None:
    write_list(corpora, tmp_path / "a", before, behind, level)
    conf = {"speed_perturb": False, "filter_conf": {"max_length": 10000}}
    heard = measure_quiet(loader(tmp_path / "a/raw.list", "raw", conf=conf))
    assert heard is not None
    # Some of these recordings have a little quiet of their own, and noise covers soft ends.
    assert before - 0.02 <= heard.before <= before + 0.1
    assert behind - 0.02 <= heard.behind <= behind + 0.2


def test_what_operators_add_and_cut_counts(corpora: Path, tmp_path: Path) -> None:
    write_list(corpora, tmp_path / "a", 0.3, 0.3, None)
    conf = {"quiet_conf": {"prob": 1.0, "seconds": [0.6, 0.6]}, "speed_perturb": False}
    added = measure_quiet(loader(tmp_path / "a/raw.list", "raw", conf=conf))
    cut = measure_quiet(loader(tmp_path / "a/raw.list", "raw", conf={"trim_conf": {"top_db": 40}}))
    on_device = measure_quiet(
        loader(tmp_path / "a/raw.list", "raw", conf=conf, defer_features=True)
    )
    assert added is not None
    assert cut is not None
    assert 0.55 < min(added.before, added.behind) < max(added.before, added.behind) < 0.85
    assert max(cut.before, cut.behind) < 0.2
    assert on_device == added


def test_features_texts_and_silence_have_no_quiet(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((50, 20), np.float32))
    soundfile.write(tmp_path / "b.wav", np.zeros(RATE), RATE)
    for name in ("a.npy", "b.wav"):
        make_raw_list([RawLine("a", str(tmp_path / name), "b")], str(tmp_path / "a.list"))
        assert measure_quiet(loader(tmp_path / "a.list", "raw")) is None
    assert quiet_around(np.zeros(0, np.float32), RATE) is None


def seed_all() -> None:
    """Seed the global random generators."""
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)


def draw_all() -> tuple[float, ...]:
    """The next number of each global random generator."""
    return random.random(), np.random.rand(), float(torch.rand(1))


def test_the_loader_yields_the_same_batches_and_no_random_number_is_used_up(
    corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_list(corpora, tmp_path / "a", 0.1, 0.1, -60)
    (tmp_path / "drawing.py").write_text(RANDOM)
    monkeypatch.syspath_prepend(tmp_path)
    operators = [{"use": "drawing:operator", "after": "resample"}]
    measured, other = (
        loader(tmp_path / "a/raw.list", "raw", conf={"operators": operators}) for _ in range(2)
    )
    state = measured.state_dict()
    seed_all()
    expected = draw_all()
    seed_all()
    assert measure_quiet(measured) is not None
    assert draw_all() == expected
    assert measured.state_dict() == state == other.state_dict()
    for epoch in range(2):
        batches = list(zip(measured, other, strict=True))
        assert batches, epoch
        assert all(same(left, right) for left, right in batches)


def test_no_more_than_some_utterances_are_read_for_no_longer_than_some_seconds(
    corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_list(corpora, tmp_path / "a", 0.1, 0.1, -60)
    one = loader(tmp_path / "a/raw.list", "raw")
    monkeypatch.setattr(heard_quiet, "BATCHES", 3)
    monkeypatch.setattr(heard_quiet, "OF_A_BATCH", 2)
    assert len(list(heard_quiet.heard_examples(one))) == 6
    monkeypatch.setattr(heard_quiet, "MOST_SECONDS", 0.0)
    caplog.set_level("INFO")
    measure_quiet(one)
    assert "medians of 1 utterances" in caplog.text


def test_of_remote_shards_only_the_utterances_are_fetched(
    corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    lines = write_list(corpora, tmp_path / "a", 0.3, 0.3, -60)
    make_shard_list(
        lines, tmp_path / "tars", str(tmp_path / "local.list"), ShardOptions(per_shard=10)
    )
    with serving(tmp_path / "tars") as server:
        names = sorted(path.name for path in (tmp_path / "tars").glob("*.tar"))
        (tmp_path / "far.list").write_text("".join(f"{server.url}/{name}\n" for name in names))
        one = loader(tmp_path / "far.list", "shard")
        for path in (tmp_path / "cache").rglob("*.tar"):
            path.unlink()
        server.requests.clear()
        monkeypatch.setattr(heard_quiet, "BATCHES", 2)
        monkeypatch.setattr(heard_quiet, "OF_A_BATCH", 3)
        heard = measure_quiet(one)
        assert heard == measure_quiet(loader(tmp_path / "local.list", "shard"))
        assert sum(server.requests.values()) <= 6
        assert one.prefetch is not None
        one.prefetch.close()
    assert not list((tmp_path / "cache").rglob("*.tar"))


def trained(folder: Path, *options: str) -> dict:
    """The train.yaml of a run in `folder`."""
    command = f"--config train.yaml --train_data train.list --cv_data cv.list --device cpu --model_dir {folder}"
    assert train.main([*command.split(), *options]) == 0
    return yaml.safe_load(Path(folder, "train.yaml").read_text())["dataset_conf"]


def test_a_run_writes_what_it_heard_keeps_it_over_resumes_and_trains_as_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path, max_epoch=1)
    monkeypatch.chdir(tmp_path)
    heard = trained(Path("measured"))["heard_quiet"]
    assert heard == {"before": 0.0, "behind": 0.0}  # steady tones

    monkeypatch.setattr(train, "MEASURE_QUIET", Loaded("wenet_uio.addons.taken_away:measure"))
    assert trained(Path("absent"))["heard_quiet"] is None
    weights = [torch.load(f"{name}/epoch_0.pt") for name in ("measured", "absent")]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[1])

    # A run that resumes keeps what it measured, and a new one does not take over that of other data.
    assert trained(Path("measured"), "--override_config", "max_epoch=2")["heard_quiet"] == heard
    config = yaml.safe_load(Path("train.yaml").read_text())
    config["dataset_conf"]["heard_quiet"] = {"before": 1.0, "behind": 1.0}
    Path("train.yaml").write_text(yaml.safe_dump(config))
    assert trained(Path("stated"))["heard_quiet"] is None
    kept = load_config("measured/train.yaml").dataset_conf.heard_quiet
    assert kept == HeardQuiet(before=0.0, behind=0.0)


def test_an_error_in_the_measurement_costs_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_corpus(tmp_path, max_epoch=1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(heard_quiet, "speech_segments", lambda *arguments, **options: 1 / 0)
    assert trained(Path("exp"))["heard_quiet"] is None
    assert "the measurement of quiet around speech left out, training goes on" in caplog.text
