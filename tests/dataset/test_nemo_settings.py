"""Loader settings of NeMo with real data: what is read, and how it is batched."""

import itertools
import json
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.support.data.loading import TOKENIZER
from tests.support.data.tars import wav
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
        entries.append(
            {
                "audio_filepath": str(path),
                "duration": 0.3 + number / 50,
                "text": "abc" * (1 + number % 3),
            }
        )
    (folder / "m.json").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    words = [
        f"--manifest_path={folder}/m.json",
        f"--target_dir={folder}",
        "--num_shards=4",
        "--buckets_num=2",
    ]
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
    values = {
        "train_ds": section,
        "dataset_conf": {"filter_conf": {"min_length": 1}, "spec_aug": False},
    }
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(values))
    config = load_config(tmp_path / "train.yaml")
    return build_loader(
        config.data, "raw", config, TOKENIZER, training=training, options=LoaderOptions(**options)
    )


def keys_of(loader):
    return [list(batch.keys) for batch in loader]


@pytest.mark.parametrize("is_flat", [False, True])
def test_one_manifest_and_several_tars_a_bucket_are_read_as_the_document_writes_them(
    buckets, tmp_path, is_flat
):
    section = nested(buckets)
    if is_flat:
        section = {key: [each for (each,) in value] for key, value in section.items()}
    batches = keys_of(loader_of(tmp_path, {**section, "batch_size": 4}))
    assert sorted(itertools.chain(*batches)) == [f"{number:02d}" for number in range(COUNT)]
    assert max(map(len, batches)) == 4


def test_every_bucket_has_its_batch_size_and_its_number_of_passes(buckets, tmp_path):
    section = {
        **nested(buckets),
        "batch_size": 1,
        "bucketing_batch_size": 3,
        "bucketing_weights": [2, 1],
    }
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


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize(
    "keys",
    [
        {"batch_size": 4},
        {"batch_size": 1, "bucketing_batch_size": 3},
        {"batch_size": 1, "bucketing_batch_size": [4, 2], "bucketing_weights": [2, 1]},
        {"batch_size": 4, "bucketing_strategy": "fully_randomized"},
        {"use_lhotse": True, "batch_duration": 3, "quadratic_duration": 30},
        {"use_semi_sorted_batching": True, "randomization_factor": 0.1, "batch_size": 4},
        {"tarred_shard_strategy": "scatter", "batch_size": 4},
    ],
)
def test_the_buckets_of_the_document_are_read_by_all_ranks_in_equal_steps(
    buckets, tmp_path, keys, ranks
):
    of_ranks = [
        list(loader_of(tmp_path, {**nested(buckets), **keys}, rank=rank, world_size=ranks))
        for rank in range(ranks)
    ]
    assert len({sum(batch.closes_step for batch in batches) for batches in of_ranks}) == 1
    read = Counter(key for batches in of_ranks for batch in batches for key in batch.keys)
    of_short = keys.get("bucketing_weights", [1])[0]
    assert read == {f"{n:02d}": of_short if n < COUNT // 2 else 1 for n in range(COUNT)}


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
        planned = len(loader)
        steps, kinds = [], []
        for batch in loader:
            kinds.append(batch.feats.shape[1] > 0)
            if batch.closes_step:
                steps.append(kinds)
                kinds = []
        assert len(steps) == planned
        assert all(set(step) == {True, False} for step in steps[:-1])


def test_pairs_out_of_the_bounds_on_tokens_per_token_are_filtered(buckets, tmp_path):
    source = {
        "type": "txt_pair",
        "source_path": f"{buckets}/en.txt",
        "target_path": f"{buckets}/pl.txt",
    }
    section = {"input_cfg": [source], "batch_tokens": 60, "min_tpt": 0.5, "max_tpt": 1.0}
    loader = loader_of(tmp_path, section)
    read = sum(len(batch.keys) for batch in loader)
    ratios = [(1 + number % 4) / (1 + number % 5) for number in range(40)]
    assert read == sum(0.5 <= ratio <= 1.0 for ratio in ratios)


def conversations_of(buckets, path):
    """Conversations in which a user speaks and the assistant writes 1 to 6 letters."""
    lines = [
        {
            "id": f"c{number}",
            "conversations": [
                {"from": "user", "value": f"{buckets}/{number:02d}.wav", "type": "audio"},
                {"from": "assistant", "value": "abcabc"[: 1 + number % 6], "type": "text"},
            ],
        }
        for number in range(12)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {
        "type": "multimodal_conversation",
        "manifest_filepath": str(path),
        "token_equivalent_duration": 0.08,
    }


@pytest.mark.parametrize("kind", ["txt", "txt_pair", "multimodal_conversation"])
def test_a_static_batch_size_is_the_number_of_texts_or_conversations_in_a_batch(
    buckets, tmp_path, kind
):
    source = {
        "txt": {"type": "txt", "paths": f"{buckets}/en.txt"},
        "txt_pair": {
            "type": "txt_pair",
            "source_path": f"{buckets}/en.txt",
            "target_path": f"{buckets}/pl.txt",
        },
        "multimodal_conversation": conversations_of(buckets, tmp_path / "chat.jsonl"),
    }[kind]
    batches = keys_of(loader_of(tmp_path, {"input_cfg": [source], "batch_size": 5}))
    count = 12 if kind == "multimodal_conversation" else 40
    assert len(set(itertools.chain(*batches))) == sum(map(len, batches)) == count
    assert (max(map(len, batches)), len(batches)) == (-(-count // len(batches)), -(-count // 5))


def test_static_batches_hold_text_or_audio_and_never_both(buckets, tmp_path):
    sources = [
        {"type": "txt", "paths": f"{buckets}/en.txt"},
        {"type": "nemo", "manifest_filepath": f"{buckets}/m.json"},
    ]
    loader = loader_of(tmp_path, {"input_cfg": sources, "batch_size": 5})
    batches = [set(batch.keys) for batch in loader]
    assert sum(map(len, batches)) == COUNT + 40
    assert all(len({key.startswith("en.txt") for key in keys}) == 1 for keys in batches)


@pytest.mark.parametrize("batches", [{"batch_tokens": 60}, {"batch_size": 4}])
def test_conversations_out_of_the_bounds_on_tokens_are_filtered(buckets, tmp_path, batches):
    source = conversations_of(buckets, tmp_path / "chat.jsonl")
    heard = [-(-round(1000 * (0.3 + number / 50)) // 80) for number in range(12)]
    said = [1 + number % 6 for number in range(12)]
    section = {"input_cfg": [source], **batches, "min_tpt": 0.4, "max_tpt": 0.8, "max_tokens": 10}
    expected = [
        f"c{n}"
        for n, (h, s) in enumerate(zip(heard, said, strict=True))
        if 0.4 <= s / h <= 0.8 and h + s <= 10
    ]
    found = keys_of(loader_of(tmp_path, section))
    assert sorted(itertools.chain(*found)) == sorted(expected)
    assert 0 < len(expected) < 12


def test_a_pair_has_its_languages_a_question_and_both_texts(buckets, tmp_path):
    source = {
        "type": "txt_pair",
        "source_path": f"{buckets}/en.txt",
        "target_path": f"{buckets}/pl.txt",
        "questions_path": f"{buckets}/questions.txt",
        "source_language": "en",
        "target_language": "pl",
        "questions_language": "en",
    }
    for batch in loader_of(
        tmp_path, {"input_cfg": [source], "batch_size": 8, "shard_seed": "randomized"}
    ):
        for key, extra, text, row in zip(
            batch.keys, batch.extra, batch.texts, batch.source, strict=True
        ):
            number = int(key.rpartition(":")[2]) - 1
            assert text == "bc" * (1 + number % 4)
            assert row[row != -1].tolist() == TOKENIZER.tokenize("ab" * (1 + number % 5))[1]
            languages = [extra[f"{of}_language"] for of in ("source", "target", "questions")]
            assert (languages, extra["question"][-1]) == (["en", "pl", "en"], "?")


@pytest.mark.parametrize("shard_seed", ["trng", "randomized", 7, None])
def test_shard_seed_changes_nothing_for_the_plan_decides_the_order(buckets, tmp_path, shard_seed):
    section = {**nested(buckets), "batch_size": 4, "seed": 3}
    plain = keys_of(loader_of(tmp_path, section))
    assert keys_of(loader_of(tmp_path, {**section, "shard_seed": shard_seed})) == plain
    ranks = [
        keys_of(loader_of(tmp_path, {**section, "shard_seed": shard_seed}, rank=n, world_size=2))
        for n in (0, 1)
    ]
    assert sorted(itertools.chain(*itertools.chain(*ranks))) == sorted(itertools.chain(*plain))
    in_list = {"type": "nemo", "manifest_filepath": f"{buckets}/m.json"}
    plain = keys_of(loader_of(tmp_path, {"input_cfg": [in_list], "batch_size": 4}))
    assert (
        keys_of(
            loader_of(
                tmp_path, {"input_cfg": [{**in_list, "shard_seed": shard_seed}], "batch_size": 4}
            )
        )
        == plain
    )


def duration_of(number):
    return 0.3 + number / 50


def bins_of(limits):
    """Buckets of (seconds, letters) in which each bucket has a number of letters per second."""
    return {
        "bucket_duration_bins": [[0.6, 3], [0.6, 9], [1.0, 6], [1.0, 9]],
        "bucket_batch_size": [4, 4, 2, 2],
        "max_tps": limits,
    }


@pytest.mark.parametrize("limits", [[100, 14, 8, 100], [100, 8]])
def test_tokens_per_second_are_bounded_in_each_bucket(buckets, tmp_path, limits):
    section = {"manifest_filepath": f"{buckets}/m.json", **bins_of(limits)}
    bins = section["bucket_duration_bins"]
    of_bin = limits if len(limits) == 4 else [limits[0], limits[0], limits[1], limits[1]]
    expected = []
    for number in range(COUNT):
        seconds, letters = duration_of(number), 3 * (1 + number % 3)
        end = next((end for end, _ in bins if seconds <= end + 1e-9), None)
        fitting = [n for n, (e, most) in enumerate(bins) if e == end and letters <= most]
        if fitting and letters / seconds <= of_bin[fitting[0]]:
            expected.append(f"{number:02d}")

    assert sorted(itertools.chain(*keys_of(loader_of(tmp_path, section)))) == expected
    assert 0 < len(expected) < COUNT


def joint(folder, fusion, **keys):
    """The loaders of NeMo's document that read audio and pairs of texts together."""
    audio = {
        "input_cfg": [{"type": "nemo", "manifest_filepath": f"{folder}/m.json"}],
        "batch_size": 4,
        "min_duration": 0.4,
        "max_duration": 0.7,
    }
    text = {
        "input_cfg": [
            {
                "type": "txt_pair",
                "source_path": f"{folder}/en.txt",
                "target_path": f"{folder}/pl.txt",
            }
        ],
        "batch_size": 5,
        "max_tokens": 10,
        "min_tpt": 0.5,
    }
    return {"multi_config": True, "sampler_fusion": fusion, "audio": audio, "text": text, **keys}


AUDIO_KEYS = {f"{number:02d}" for number in range(COUNT) if 0.4 <= duration_of(number) <= 0.7}


def pairs_of(counted):
    """Lines of the pairs of texts that the filters of the document's loader keep."""
    lengths = [(number, 2 * (1 + number % 5), 2 * (1 + number % 4)) for number in range(40)]
    kept = [n for n, source, target in lengths if counted(source, target) <= 10]
    return {n for n in kept if lengths[n][2] / lengths[n][1] >= 0.5}


@pytest.mark.parametrize("total", [True, False])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_filters_of_one_loader_drop_nothing_of_another(buckets, tmp_path, world_size, total):
    section = joint(buckets, "round_robin")
    section["text"]["measure_total_length"] = total
    read = set()
    for rank in range(world_size):
        loader = loader_of(tmp_path, section, rank=rank, world_size=world_size)
        for _ in range(3):  # each pass takes as many batches of each loader
            for keys in keys_of(loader):
                read |= set(keys)

    counted = (lambda source, target: source + target) if total else (lambda source, _: source)
    pairs = {int(key.rpartition(":")[2]) - 1 for key in read if ":" in key}
    assert {key for key in read if ":" not in key} == AUDIO_KEYS
    assert pairs == pairs_of(counted)


@pytest.mark.parametrize(
    ("fusion", "weights", "shares"),
    [
        ("round_robin", None, (1, 1)),
        ("randomized_round_robin", {"audio": 0.75, "text": 0.25}, (3, 1)),
        ("zip", None, (1, 1)),
    ],
)
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_batches_of_the_documents_loaders_are_shared_as_it_says(
    buckets, tmp_path, world_size, fusion, weights, shares
):
    section = joint(buckets, fusion, **({"sampler_weights": weights} if weights else {}))
    counts, orders = [0, 0], []
    for rank in range(world_size):
        loader = loader_of(tmp_path, section, rank=rank, world_size=world_size)
        kinds = [int(":" in batch.keys[0]) for batch in loader if len(batch.keys)]
        orders.append(kinds)
        counts = [counts[kind] + kinds.count(kind) for kind in (0, 1)]

    total = sum(counts)
    for count, share in zip(counts, shares, strict=True):
        assert abs(count / total - share / sum(shares)) <= 2.0 / total * world_size
    if fusion == "round_robin" and world_size == 1:
        (kinds,) = orders
        assert all(one != other for one, other in itertools.pairwise(kinds[:-2]))


def test_a_batch_of_pairs_is_measured_by_the_input_alone(buckets, tmp_path):
    source = {
        "type": "txt_pair",
        "source_path": f"{buckets}/en.txt",
        "target_path": f"{buckets}/pl.txt",
    }
    most = {}
    for total in (True, False):
        section = {"input_cfg": [source], "batch_tokens": 60, "measure_total_length": total}
        most[total] = 0
        for batch in loader_of(tmp_path, section):
            lines = [int(key.rpartition(":")[2]) - 1 for key in batch.keys]
            lengths = [2 * (1 + n % 5) + (2 * (1 + n % 4) if total else 0) for n in lines]
            assert len(lengths) * max(lengths) <= 60
            most[total] = max(most[total], len(lengths))
    assert most[False] > most[True]


@pytest.mark.parametrize("total", [True, False])
def test_a_conversation_is_measured_by_the_turns_that_a_model_reads(buckets, tmp_path, total):
    source = conversations_of(buckets, tmp_path / "chat.jsonl")
    section = {
        "input_cfg": [source],
        "batch_tokens": 60,
        "max_tokens": 9,
        "measure_total_length": total,
    }
    tokens = [
        -(-round(1000 * duration_of(n)) // 80) + (1 + n % 6 if total else 0) for n in range(12)
    ]
    expected = sorted(f"c{n}" for n, count in enumerate(tokens) if count <= 9)
    assert sorted(itertools.chain(*keys_of(loader_of(tmp_path, section)))) == expected


def test_the_seed_of_a_loader_is_that_of_its_order(buckets, tmp_path):
    section = {"manifest_filepath": f"{buckets}/m.json", "batch_size": 4}
    first = keys_of(loader_of(tmp_path, {**section, "seed": 5}, seed=1))
    assert keys_of(loader_of(tmp_path, {**section, "seed": 5}, seed=2)) == first
    assert keys_of(loader_of(tmp_path, {**section, "seed": 6}, seed=1)) != first
    assert keys_of(loader_of(tmp_path, section, seed=5)) == first
