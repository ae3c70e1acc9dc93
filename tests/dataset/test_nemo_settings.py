"""Loader settings of NeMo with real data: what is read, and how it is batched."""

import itertools
import json
from pathlib import Path

import pytest
import yaml

from tests.dataset.support.loading import TOKENIZER
from tests.dataset.support.tars import wav
from tools import convert_to_tarred
from wenet_uio.config import load_config
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.options import LoaderOptions

COUNT = 30


@pytest.fixture(scope="module")
def buckets(tmp_path_factory) -> Path:
    """Two ready-made buckets of four tars, made as NeMo's converter makes them."""
    folder = tmp_path_factory.mktemp("buckets")
    entries = []
    for number in range(COUNT):
        path = folder / f"{number:02d}.wav"
        path.write_bytes(wav(0.3 + number / 50, seed=number))
        entries.append({"audio_filepath": str(path), "duration": 0.3 + number / 50, "text": "abc" * (1 + number % 3)})
    (folder / "m.json").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    words = [f"--manifest_path={folder}/m.json", f"--target_dir={folder}", "--num_shards=4", "--buckets_num=2"]
    assert convert_to_tarred.main(words) == 0
    (folder / "en.txt").write_text("".join(f"{'ab' * (1 + number % 5)}\n" for number in range(40)))
    (folder / "pl.txt").write_text("".join(f"{'bc' * (1 + number % 4)}\n" for number in range(40)))
    (folder / "questions.txt").write_text("What is this?\nAnd that?\n")
    return folder


def nested(folder):
    return {
        "manifest_filepath": [[f"{folder}/bucket{n}/tarred_audio_manifest.json"] for n in (1, 2)],
        "tarred_audio_filepaths": [[f"{folder}/bucket{n}/audio__OP_0..3_CL_.tar"] for n in (1, 2)],
    }


def loader_of(tmp_path, section, training=True, **options):
    values = {"train_ds": section, "dataset_conf": {"filter_conf": {"min_length": 1}, "spec_aug": False}}
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(values))
    config = load_config(tmp_path / "train.yaml")
    return build_loader(config.data, "raw", config, TOKENIZER, training=training, options=LoaderOptions(**options))


def keys_of(loader):
    return [list(batch.keys) for batch in loader]


@pytest.mark.parametrize("is_flat", [False, True])
def test_one_manifest_and_several_tars_a_bucket_are_read_as_the_document_writes_them(buckets, tmp_path, is_flat):
    section = nested(buckets)
    if is_flat:
        section = {key: [each for (each,) in value] for key, value in section.items()}
    batches = keys_of(loader_of(tmp_path, {**section, "batch_size": 4}))
    assert sorted(itertools.chain(*batches)) == [f"{number:02d}" for number in range(COUNT)]
    assert max(map(len, batches)) == 4


def test_every_bucket_has_its_batch_size_and_its_number_of_passes(buckets, tmp_path):
    section = {**nested(buckets), "batch_size": 1, "bucketing_batch_size": 3, "bucketing_weights": [2, 1]}
    loader = loader_of(tmp_path, section)
    batches = keys_of(loader)
    short = {f"{number:02d}" for number in range(COUNT // 2)}
    sizes = {True: set(), False: set()}
    for batch in batches:
        assert set(batch) <= short or not set(batch) & short
        sizes[set(batch) <= short].add(len(batch))
    assert (max(sizes[True]), max(sizes[False])) == (6, 3)
    assert sorted(itertools.chain(*batches)) == sorted(
        [*short, *short, *(f"{n:02d}" for n in range(COUNT // 2, COUNT))]
    )


@pytest.mark.parametrize("world_size", [1, 2])
def test_speech_and_text_are_in_every_step(buckets, tmp_path, world_size):
    text = {
        "input_cfg": [
            {
                "type": "txt_pair",
                "source_path": f"{buckets}/en.txt",
                "target_path": f"{buckets}/pl.txt",
                "questions_path": f"{buckets}/questions.txt",
                "source_language": "en",
                "target_language": "pl",
            }
        ],
        "min_tpt": 0.3,
        "max_tpt": 3.0,
        "bucket_duration_bins": [[10, 4], [10, 26]],
        "bucket_batch_size": [10, 3],
    }
    audio = {**nested(buckets), "batch_duration": 4.0, "max_duration": 30.0}
    section = {"multi_config": True, "sampler_fusion": "zip", "audio": audio, "text": text}
    for rank in range(world_size):
        loader = loader_of(tmp_path, section, rank=rank, world_size=world_size)
        steps, kinds = [], []
        for batch in loader:
            kinds.append(batch.feats.shape[1] > 0)
            if batch.closes_step:
                steps.append(kinds)
                kinds = []
        assert len(steps) == len(loader)
        assert all(set(step) == {True, False} for step in steps[:-1])


def test_pairs_out_of_the_bounds_on_tokens_per_token_are_filtered(buckets, tmp_path):
    source = {"type": "txt_pair", "source_path": f"{buckets}/en.txt", "target_path": f"{buckets}/pl.txt"}
    section = {"input_cfg": [source], "batch_tokens": 60, "min_tpt": 0.5, "max_tpt": 1.0}
    loader = loader_of(tmp_path, section)
    read = sum(len(batch.keys) for batch in loader)
    ratios = [(1 + number % 4) / (1 + number % 5) for number in range(40)]
    assert read == sum(0.5 <= ratio <= 1.0 for ratio in ratios)
