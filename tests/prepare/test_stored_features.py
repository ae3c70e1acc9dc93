"""Packing of stored features, and their CMVN statistics."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.data.kaldi_features import read_by_kaldi, write_ark
from tests.support.data.packing import pack
from wenet_uio.audio.decoders import AudioError
from wenet_uio.base.executor import Executor
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset import open_corpus
from wenet_uio.dataset.corpus.shard_corpus import ShardCorpus
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.prepare.cmvn_stats import cmvn_statistics
from wenet_uio.prepare.extraction import read_samples
from wenet_uio.prepare.kaldi_tables import read_utterances
from wenet_uio.prepare.list_making import make_raw_list
from wenet_uio.prepare.shard_job import Storing
from wenet_uio.prepare.sharding import DurationGroup, ShardOptions, parse_group

RANDOM = np.random.default_rng(1)
MATRICES = {
    f"u{number}": RANDOM.normal(size=(20 + 10 * number, 23)).astype(np.float32)
    for number in range(10)
}
CONF = DatasetConf(fbank_conf={"num_mel_bins": 23})


@pytest.fixture
def kaldi(tmp_path):
    """Folder with compressed features and texts."""
    write_ark(tmp_path, MATRICES, "kSpeechFeature")
    (tmp_path / "text").write_text("".join(f"{key} text\n" for key in MATRICES))
    return tmp_path


def lines_of(folder: Path) -> list[RawLine]:
    return read_utterances(str(folder / "feats.scp"), str(folder / "text"))


def test_whole_matrices_keep_their_bytes_and_parts_become_arrays(kaldi):
    lines = [
        *lines_of(kaldi),
        RawLine("part", lines_of(kaldi)[9].wav + "[0:49,0:12]", "x", 0.1, 0.3),
    ]
    assert pack(lines, kaldi / "s", str(kaldi / "list"), ShardOptions()) == []
    samples = {sample.key: sample for sample in read_samples(str(kaldi / "s/shards_000000000.tar"))}
    assert list(samples["u3"].members) == ["txt", "ark"]
    assert samples["u3"].as_row() == "u3\t0.500\t100\ttxt,ark\ttext"
    ark = (kaldi / "feats.ark").read_bytes()
    assert all(samples[key].members["ark"] in ark for key in MATRICES)
    corpus = open_corpus(str(kaldi / "list"), "shard")
    assert [corpus.rows(0).num_samples[row] for row in (0, 9, 10)] == [20, 110, 20]
    assert list(samples["part"].members) == ["txt", "npy"]
    expected = read_by_kaldi(kaldi)["u9"][10:30, :13]
    assert np.array_equal(np.load(_file(kaldi, samples["part"].members["npy"])), expected)


def _file(folder, data):
    (folder / "part.npy").write_bytes(data)
    return folder / "part.npy"


def test_a_tar_that_is_scanned_again_has_the_index_that_was_written_with_it(kaldi):
    pack(lines_of(kaldi), kaldi / "s", str(kaldi / "list"), ShardOptions(per_shard=4))
    before = open_corpus(str(kaldi / "list"), "shard")
    for index in kaldi.rglob("*.idx"):
        index.unlink()
    after = open_corpus(str(kaldi / "list"), "shard")
    assert isinstance(after, ShardCorpus)
    assert (after.digest, after.kinds, after.bad) == (before.digest, {"features"}, [])


def test_shards_of_features_keep_the_bound_on_bytes_and_are_kept_by_a_rerun(kaldi, capsys):
    options = ShardOptions(per_shard=None, max_bytes=20_000)
    for _ in range(2):
        assert pack(lines_of(kaldi), kaldi / "s", str(kaldi / "list"), options) == []
    tars = sorted((kaldi / "s").glob("*.tar"))
    assert 1 < len(tars) < 5
    assert all(tar.stat().st_size <= 20_000 for tar in tars)
    assert f"{len(tars)} of {len(tars)} shards were there already" in capsys.readouterr().err


@pytest.mark.parametrize("storing", [Storing("flac"), Storing("opus"), Storing("keep", 8000)])
def test_codecs_and_rates_do_not_apply_to_features(storing, kaldi):
    with pytest.raises(
        ValueError, match="stored features are packed as they are; leave out --audio_format and"
    ):
        pack(lines_of(kaldi), kaldi / "s", str(kaldi / "list"), ShardOptions(storing=storing))


def test_bad_features_are_named_and_all_others_are_packed(kaldi):
    lines = lines_of(kaldi)
    lines[3] = RawLine("u3", f"{kaldi}/feats.ark:7", "text")
    lines[4] = RawLine("u4", f"{kaldi}/gone.ark:7", "text")
    for make in (
        lambda: make_raw_list(lines, str(kaldi / "raw")),
        lambda: pack(
            lines, kaldi / "s", str(kaldi / "list"), ShardOptions(groups=[DurationGroup(0, 9)])
        ),
        lambda: pack(lines, kaldi / "t", str(kaldi / "other"), ShardOptions()),
    ):
        bad = dict(make())
        assert list(bad) == ["u3", "u4"]
        assert "feats.ark:7: no Kaldi matrix in binary form at byte 7" in bad["u3"]
        assert "gone.ark:7: No such file" in bad["u4"]


def test_statistics_of_stored_features_are_sums_of_their_numbers(kaldi):
    found = cmvn_statistics([*lines_of(kaldi)], CONF, Executor())
    feats = np.concatenate(list(read_by_kaldi(kaldi).values())).astype(np.float64)
    assert found["frame_num"] == len(feats)
    np.testing.assert_allclose(found["mean_stat"], feats.sum(0), rtol=1e-9)
    np.testing.assert_allclose(found["var_stat"], np.square(feats).sum(0), rtol=1e-9)
    with pytest.raises(AudioError, match=r"u0 \S+: 23 features per frame, dataset_conf has 80"):
        cmvn_statistics(lines_of(kaldi), DatasetConf(fbank_conf={"num_mel_bins": 80}), Executor())


def test_the_tool_of_statistics_takes_several_tables_with_their_segments(
    kaldi, tmp_path, monkeypatch
):
    from tools import compute_cmvn_stats

    (tmp_path / "train.yaml").write_text("dataset_conf: {fbank_conf: {num_mel_bins: 23}}\n")
    place = lines_of(kaldi)[9].wav
    for part in ("a", "b"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "feats.scp").write_text(f"rec{part} {place}\n")
        (tmp_path / part / "segments").write_text(f"utt{part} rec{part} 0.1 0.4\n")
    options = ["--train_config", "train.yaml", "--in_scp", "{a,b}/feats.scp", "--out_cmvn", "cmvn"]
    monkeypatch.chdir(tmp_path)
    compute_cmvn_stats.main(options)
    assert '"frame_num": 60}' in (tmp_path / "cmvn").read_text()


def test_groups_of_frames_are_exact_and_become_folders_for_a_pattern(kaldi):
    groups = [parse_group(text, "frames") for text in (":29", "30:60", "60:110")]
    matrices = {
        f"f{frames}": np.ones((frames, 23), np.float32) for frames in (28, 29, 30, 59, 60, 109, 110)
    }
    write_ark(kaldi, matrices)
    (kaldi / "text").write_text("".join(f"{key} text\n" for key in matrices))
    assert (
        pack(lines_of(kaldi), kaldi / "s", str(kaldi / "list"), ShardOptions(groups=groups)) == []
    )
    packed = {
        tar.parent.name: [s.key for s in read_samples(str(tar))]
        for tar in (kaldi / "s").glob("*/*.tar")
    }
    assert packed == {"0_29": ["f28"], "30_60": ["f30", "f59"], "60_110": ["f60", "f109"]}
    outside = json.loads((kaldi / "list.json").read_text())["outside"]
    assert outside == [["f29", 0.29], ["f110", 1.1]]
    (kaldi / "some.list").write_text(f"{kaldi}/s/{{0_29,60_110}}/*.tar\n")
    assert open_corpus(str(kaldi / "some.list"), "shard").num_samples == 3


def test_groups_of_frames_count_ten_milliseconds_of_audio(make_utterances, tmp_path):
    lines = make_utterances(12)
    groups = [parse_group(text, "frames") for text in ("0:60", "60:")]
    assert pack(lines, tmp_path / "s", str(tmp_path / "list"), ShardOptions(groups=groups)) == []
    seconds = {tar.parent.name: [float(s.as_row().split("\t")[1]) for s in read_samples(str(tar))]
               for tar in (tmp_path / "s").glob("*/*.tar")}  # fmt: skip
    assert seconds.keys() == {"0_60", "60_inf"}
    assert max(seconds["0_60"]) < 0.6 <= min(seconds["60_inf"])
    with pytest.raises(
        ValueError, match="a group is SHORTEST:LONGEST in frames, such as 10:500, not '5'"
    ):
        parse_group("5", "frames")
