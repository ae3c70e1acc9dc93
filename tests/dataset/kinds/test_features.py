"""Features of real recordings, packed by kaldi_native_io: one digest and equal batches in raw lists
and in shards.
"""

from __future__ import annotations

import io
import json
import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml

from tests.support.data.digits import WORDS, train_steps
from tests.support.data.kaldi_features import read_by_kaldi, write_ark, write_feats
from tests.support.data.loading import FakeConfig, same
from wenet_uio.config import parse_config
from wenet_uio.dataset import LoaderOptions, build_loader, open_corpus
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.types import SampleRef, waveform_of
from wenet_uio.models import build_model
from wenet_uio.prepare.kaldi_tables import read_utterances
from wenet_uio.prepare.list_making import make_raw_list, make_shard_list
from wenet_uio.prepare.sharding import ShardOptions
from wenet_uio.text.symbols import write_symbols
from wenet_uio.text.tokenizer import build_tokenizer

PER_SHARD = 20
CONF = {
    "resample_conf": {"resample_rate": 8000},
    "fbank_conf": {"num_mel_bins": 23, "dither": 1.0},
    "speed_perturb": True,
    "batch_conf": {"batch_type": "dynamic", "max_frames_in_batch": 400},
}
TOKENS = {word: number for number, word in enumerate(WORDS)}


class NeedsWaveform:
    def __call__(self, example):
        return replace(example, waveform=waveform_of(example) / 2)


def as_labels(text):
    return [TOKENS[text]]


@pytest.fixture(scope="module")
def wavs(corpora):
    return sorted((corpora / "fsdd/recordings").glob("*.wav"))[::40]


@pytest.fixture(scope="module")
def kaldi(wavs, tmp_path_factory):
    """Folder with a Kaldi directory of plain and one of compressed features."""
    folder = tmp_path_factory.mktemp("kaldi")
    write_feats(folder / "plain", wavs)
    write_feats(folder / "compressed", wavs, "kSpeechFeature")
    return folder


def write_lists(folder, into, lines=None):
    """Paths of the raw list and the shard list of a Kaldi directory, or of these lines."""
    lines = lines or read_utterances(str(folder / "feats.scp"), str(folder / "text"))
    into.mkdir(exist_ok=True)
    lists = {kind: str(into / f"{kind}.list") for kind in ("raw", "shard")}
    assert make_raw_list(lines, lists["raw"], PER_SHARD) == []
    assert (
        make_shard_list(lines, into / "shards", lists["shard"], ShardOptions(per_shard=PER_SHARD))
        == []
    )
    return lists


def loader(path, kind, *, training=True, conf=None, **options):
    config = FakeConfig(**{**CONF, **(conf or {})})
    return build_loader(
        path, kind, config, as_labels, training=training, options=LoaderOptions(**options)
    )


@pytest.fixture(scope="module")
def lists(kaldi):
    return {
        form: write_lists(kaldi / form, kaldi / form / "lists") for form in ("plain", "compressed")
    }


def test_raw_lists_and_shards_have_one_digest(lists):
    corpora = [open_corpus(path, kind) for own in lists.values() for kind, path in own.items()]
    assert len({corpus.digest for corpus in corpora}) == 1
    assert all(corpus.kinds == {"features"} and not corpus.bad for corpus in corpora)


@pytest.mark.parametrize("form", ["plain", "compressed"])
def test_raw_lists_and_shards_have_equal_batches(form, lists):
    batches = [list(loader(path, kind)) for kind, path in lists[form].items()]
    assert all(same(*pair) for pair in zip(*batches, strict=True))
    assert max(batch.feats.shape[0] * batch.feats.shape[1] for batch in batches[0]) <= 400


@pytest.mark.parametrize("form", ["plain", "compressed"])
def test_batches_hold_the_numbers_that_kaldi_reads(form, kaldi, lists):
    expected = read_by_kaldi(kaldi / form)
    found = {}
    for batch in loader(lists[form]["shard"], "shard", training=False):
        assert batch.seconds == pytest.approx(int(batch.feats_lengths.sum()) / 100)
        for key, feats, length in zip(batch.keys, batch.feats, batch.feats_lengths, strict=True):
            found[key] = feats[:length].numpy()
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[key], matrix) for key, matrix in expected.items())


def test_a_run_inside_an_epoch_resumes_on_other_ranks_in_the_other_form(lists):
    stored = lists["compressed"]
    whole = list(loader(stored["shard"], "shard"))
    first = loader(stored["raw"], "raw")
    batches = iter(first)
    taken = [next(batches) for _ in range(2)]
    ranks = [loader(stored["shard"], "shard", rank=rank, world_size=2) for rank in range(2)]
    for each in ranks:
        each.load_state_dict(first.state_dict())
    rest = [list(each) for each in ranks]
    assert len(rest[0]) == len(rest[1])
    resumed = [*taken, *(batch for step in zip(*rest, strict=True) for batch in step)]
    assert all(same(*pair) for pair in zip(whole, resumed, strict=False))
    keys = [key for batch in resumed for key in batch.keys]
    assert sorted(keys) == sorted(key for batch in whole for key in batch.keys)


def test_speeds_and_other_steps_on_audio_are_left_out_and_named_once(caplog, lists):
    stored = lists["plain"]
    own = [{"use": f"{__name__}:NeedsWaveform", "after": "resample"}]
    with caplog.at_level(logging.WARNING):
        conf = {"operators": own, "noise_conf": {"made": ["pink"], "prob": 1}, "gain_conf": {}}
        batches = list(loader(stored["raw"], "raw", conf=conf))
    said = [
        record.getMessage() for record in caplog.records if "stored features" in record.getMessage()
    ]
    assert said == [
        f"{stored['raw']}: stored features are read as they are; what needs audio is left out: "
        "speed_perturb, "
        f"noise_conf, gain_conf, {__name__}:NeedsWaveform"
    ]
    assert sum(len(batch) for batch in batches) == open_corpus(stored["raw"], "raw").num_samples


def test_babble_of_stored_features_is_refused_in_one_line(lists):
    with pytest.raises(
        ValueError, match="noise_conf.made: babble: it needs audio, and .* has stored features"
    ):
        loader(lists["plain"]["raw"], "raw", conf={"noise_conf": {"made": ["babble"]}})


def test_augmentation_of_features_changes_stored_features(lists):
    path = lists["plain"]["raw"]
    plain, masked = (
        next(
            iter(loader(path, "raw", conf={"spec_aug": on, "spec_sub": False, "spec_trim": False}))
        )
        for on in (False, True)
    )
    assert plain.keys == masked.keys
    assert (plain.feats != masked.feats).any()


def test_another_number_of_features_is_refused_by_the_name_of_the_utterance(tmp_path, lists):
    path = lists["plain"]["raw"]
    with pytest.raises(
        ListError, match=r"raw.list: 0_\S+: 23 features per frame, dataset_conf has 40 \(fbank_conf"
    ):
        loader(path, "raw", conf={"fbank_conf": {"num_mel_bins": 40}})
    write_ark(
        tmp_path,
        {
            f"u{number}": np.zeros((30, 20 if number == 7 else 23), np.float32)
            for number in range(9)
        },
    )
    (tmp_path / "text").write_text("".join(f"u{number} one\n" for number in range(9)))
    path = write_lists(tmp_path, tmp_path / "odd")["raw"]
    skipped = [
        sample
        for batch in loader(path, "raw", conf={"max_bad_ratio": 1.0})
        for sample in batch.skipped
    ]
    assert [(sample.key, sample.reason, sample.filtered) for sample in skipped] == [
        ("u7", "feature_dim", False)
    ]


@pytest.mark.parametrize("device", ["worker", "accelerator"])
def test_a_mixture_of_audio_and_features_needs_features_of_the_workers(
    device, wavs, tmp_path, lists
):
    stored = lists["plain"]
    lines = [RawLine(f"audio-{wav.stem}", str(wav), WORDS[int(wav.stem[0])]) for wav in wavs]
    assert make_raw_list(lines, str(tmp_path / "audio.list")) == []
    sources = [
        {"type": "shard", "data_list": stored["shard"]},
        {"type": "raw", "data_list": f"{tmp_path}/audio.list"},
    ]
    (tmp_path / "mixture.yaml").write_text(yaml.safe_dump({"sources": sources}))
    made = loader(str(tmp_path / "mixture.yaml"), "raw", defer_features=device == "accelerator")
    if device == "accelerator":
        with pytest.raises(
            ValueError,
            match="audio and stored features in one batch .* need feature_device: worker",
        ):
            list(made)
        return
    batches = list(made)
    assert sum(len(batch) for batch in batches) == 2 * len(wavs)
    assert not any(batch.skipped for batch in batches)


def test_features_are_sent_as_they_are_if_the_accelerator_computes_those_of_audio(lists):
    stored = lists["plain"]
    deferred, plain = (
        list(loader(stored["raw"], "raw", defer_features=on)) for on in (True, False)
    )
    assert all(same(left.to("cpu"), right) for left, right in zip(deferred, plain, strict=True))


def test_filters_count_the_frames_of_features(lists):
    stored = lists["plain"]
    corpus = open_corpus(stored["raw"], "raw")
    frames = np.concatenate([corpus.rows(shard).num_samples for shard in range(corpus.num_shards)])
    bound = int(np.median(frames))
    conf = {"filter_conf": {"max_length": bound, "min_length": bound}, "spec_trim": False}
    batches = list(loader(stored["raw"], "raw", conf=conf))
    assert sum(len(batch) for batch in batches) == (frames == bound).sum()
    assert all((batch.feats_lengths == bound).all() for batch in batches)


def test_lines_may_name_features_and_state_their_durations(kaldi, lists, tmp_path, monkeypatch):
    stated = []
    for line in read_utterances(str(kaldi / "plain/feats.scp"), str(kaldi / "plain/text")):
        frames = len(read_by_kaldi(kaldi / "plain")[line.key]) if len(stated) < 3 else 0
        place = line.wav.removeprefix(f"{kaldi}/")
        extra = {"duration": frames / 100, "sampling_rate": 16000} if frames else {}
        stated.append({"key": line.key, "feats": place, "txt": line.text, **extra})
    path = kaldi / "stated.list"
    path.write_text("".join(json.dumps(values) + "\n" for values in stated))
    monkeypatch.chdir(tmp_path)  # places are relative to the list
    measured = open_corpus(lists["plain"]["raw"], "raw")
    corpus = open_corpus(str(path), "raw")
    assert corpus.bad == []
    assert np.array_equal(corpus.rows(0).num_samples[:PER_SHARD], measured.rows(0).num_samples)
    assert corpus.rows(0).sample_rate.tolist() == [100] * corpus.num_samples
    assert corpus.read(SampleRef(0, 0)).audio.endswith(
        "plain/feats.ark:" + stated[0]["feats"].rpartition(":")[2]
    )


def test_sets_of_cat_are_read_by_a_pattern_of_length_groups(kaldi, tmp_path):
    """CAT's `trset`: {shortest}_{longest} in frames, each a folder of tars with `mat.npy` and
    `label.txt`.
    """
    webdataset = pytest.importorskip("webdataset")
    matrices = read_by_kaldi(kaldi / "plain")
    for first, last in ((10, 45), (45, 2000)):
        folder = tmp_path / f"{first}_{last}"
        folder.mkdir()
        with webdataset.ShardWriter(str(folder / "data-%05d.tar"), maxcount=9, verbose=0) as writer:
            for key, matrix in matrices.items():
                if first <= len(matrix) < last:
                    label = WORDS[int(key[0])]
                    writer.write(
                        {"__key__": key, "mat.npy": matrix.astype(np.float32), "label.txt": label}
                    )
    (tmp_path / "cat.list").write_text(f"{tmp_path}/{{10_45,45_2000}}/data-*.tar\n")
    corpus = open_corpus(str(tmp_path / "cat.list"), "shard")
    assert (corpus.num_samples, corpus.bad, corpus.kinds) == (len(matrices), [], {"features"})
    found = {key for batch in loader(str(tmp_path / "cat.list"), "shard") for key in batch.keys}
    assert found == matrices.keys()


def test_features_that_state_the_rate_of_their_audio_are_used(tmp_path):
    webdataset = pytest.importorskip("webdataset")
    file = io.BytesIO()
    np.save(file, np.ones((40, 23), np.float32))
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as writer:
        writer.write(
            {
                "__key__": "a",
                "feats.npy": file.getvalue(),
                "json": {"text": "one", "sample_rate": 8000},
            }
        )
    (tmp_path / "a.list").write_text(f"{tmp_path}/a.tar\n")
    corpus = open_corpus(str(tmp_path / "a.list"), "shard")
    assert (corpus.bad, corpus.num_samples) == ([], 1)


def test_a_model_learns_from_features_in_shards(lists, tmp_path):
    write_symbols(tmp_path / "units.txt", WORDS)
    conf = {
        "encoder": "conformer",
        "encoder_conf": {
            "output_size": 32,
            "attention_heads": 2,
            "linear_units": 64,
            "num_blocks": 1,
        },
        "decoder": "transformer",
        "decoder_conf": {"attention_heads": 2, "linear_units": 32, "num_blocks": 1},
        "tokenizer": "char",
        "tokenizer_conf": {
            "symbol_table_path": str(tmp_path / "units.txt"),
            "split_with_space": True,
        },
        "dataset_conf": {**CONF, "batch_conf": {"batch_type": "static", "batch_size": 25}},
        "input_dim": 23,
    }
    config = parse_config(conf, "example")
    torch.manual_seed(0)
    made = build_loader(
        lists["compressed"]["shard"], "shard", config, build_tokenizer(config), training=True
    )
    batches = [
        (batch.feats, batch.feats_lengths, batch.target, batch.target_lengths) for batch in made
    ]
    losses = train_steps(build_model(config), batches, 15, lr=5e-3)
    assert sum(losses[-3:]) < 0.9 * sum(losses[:3])


def test_an_archive_in_a_store_is_answered_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    line = {"key": "a", "feats": "http://127.0.0.1:9/feats.ark:5", "txt": "one"}
    (tmp_path / "a.list").write_text(json.dumps(line) + "\n")
    with pytest.raises(
        ListError,
        match=r"feats.ark:5: archives of features in a store are not read by byte; pack them",
    ):
        open_corpus(str(tmp_path / "a.list"), "raw")
