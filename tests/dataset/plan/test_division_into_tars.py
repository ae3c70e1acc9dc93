"""What is equal between a raw list and tars of other numbers of utterances: the table of
docs/concepts/guarantees.md.
"""

import itertools
import json
from collections import Counter

import pytest

from tests.support.data.tars import wav, write_tar
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.config.filters import FilterConf
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.cursor import Cursor
from wenet_uio.dataset.open import open_corpus
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.plan import epoch_plan
from wenet_uio.dataset.plan.measure import measure_of

UTTERANCES = {"near": 2100, "far": 400}
RATE = 8000
LENGTHS = range(400, 480)
"""Samples of the audio, which repeat: headers tell lengths, and noise is slow to make."""
TARS = {"tars of 61": 61, "tars of 300": 300, "tars of 1000": 1000}
FORMS = ("raw", *TARS)
CONF = DatasetConf(
    speed_perturb=True,
    filter_conf=FilterConf(min_length=0),
    batch_conf=BatchConf(batch_type="dynamic", max_frames_in_batch=40),
)
OPTIONS = LoaderOptions(seed=3)
WHOLE = {"near": {}, "far": {"repeat": 2}}
WEIGHTED = {"near": {"weight": 0.5}, "far": {"weight": 0.5}}


def samples_of(number):
    return LENGTHS[number * 37 % len(LENGTHS)]


@pytest.fixture(scope="module")
def lists(tmp_path_factory):
    """{form: {name of a source: (type, path of its list)}}."""
    folder = tmp_path_factory.mktemp("forms")
    audio = {count: wav(count / RATE, RATE) for count in LENGTHS}
    found = {form: {} for form in FORMS}
    for name, utterances in UTTERANCES.items():
        lines = [
            {
                "key": f"{name}{number}",
                "wav": "none.wav",
                "txt": "one",
                "duration": samples_of(number) / RATE,
                "sampling_rate": RATE,
            }
            for number in range(utterances)
        ]
        raw = folder / f"{name}.raw.list"
        raw.write_text("".join(json.dumps(line) + "\n" for line in lines))
        found["raw"][name] = ("raw", str(raw))

        for form, per_tar in TARS.items():
            tars = [
                write_tar(
                    folder / f"{name}-{per_tar}-{first:06d}.tar",
                    [
                        member
                        for number in range(first, min(first + per_tar, utterances))
                        for member in (
                            (f"{name}{number}.txt", "one"),
                            (f"{name}{number}.wav", audio[samples_of(number)]),
                        )
                    ],
                )
                for first in range(0, utterances, per_tar)
            ]
            path = folder / f"{name}-{per_tar}.list"
            path.write_text("".join(f"{tar}\n" for tar in tars))
            found[form][name] = ("shard", str(path))

    return found


def mixture_of(lists_of_form, keys, tmp_path, per_pass=""):
    """Path of a mixture of both sources, each with other keys."""
    sources = [
        {"type": data_type, "data_list": path, **keys[name]}
        for name, (data_type, path) in lists_of_form.items()
    ]
    path = tmp_path / "mixture.yaml"
    path.write_text(f"sources: {json.dumps(sources)}\n{per_pass}")
    return open_corpus(str(path), "raw")


def passes_of(corpus, count=1):
    """The batches of passes: (key, speed, seed) of each sample."""
    cursor = Cursor(corpus, measure_of(CONF, training=True), OPTIONS)
    passes = []
    for number in range(count):
        cursor.set_epoch(number)
        works = [work for _, work in cursor.upcoming()]
        passes.append([batch_of(corpus, work) for work in works])
    return passes


def batch_of(corpus, work):
    keys = [
        corpus.rows(int(shard)).key(int(row))
        for shard, row in zip(work.shards, work.rows, strict=True)
    ]
    return list(zip(keys, work.speeds.tolist(), work.seeds.tolist(), strict=True))


def equal_forms(results):
    """The forms whose results are those of the raw list."""
    return [form for form in FORMS if results[form] == results["raw"]]


def test_one_list_of_up_to_262144_utterances_gives_equal_batches_for_any_tars(lists):
    batches = {form: passes_of(open_list(*reversed(lists[form]["near"])), 2) for form in FORMS}
    assert len(batches["raw"][0]) > 100
    assert equal_forms(batches) == list(FORMS)


@pytest.mark.parametrize("sources", [WHOLE, WEIGHTED], ids=["whole", "weighted"])
def test_a_mixture_gives_equal_batches_for_tars_of_1000_utterances(lists, tmp_path, sources):
    batches = {form: passes_of(mixture_of(lists[form], sources, tmp_path), 2) for form in FORMS}
    assert equal_forms(batches) == ["raw", "tars of 1000"]


def test_a_mixture_of_whole_sources_reads_the_same_utterances_from_any_tars(lists, tmp_path):
    read = {
        form: [sorted(itertools.chain(*batches)) for batches in passes_of(mixture, 2)]
        for form in FORMS
        for mixture in [mixture_of(lists[form], WHOLE, tmp_path)]
    }
    assert equal_forms(read) == list(FORMS)


@pytest.mark.parametrize("form", FORMS)
def test_a_weighted_mixture_of_any_tars_has_exact_quotas_and_reads_all_before_any_repeats(
    lists, tmp_path, form
):
    mix = mixture_of(lists[form], WEIGHTED, tmp_path, "utterances_per_epoch: 600\n")
    passes = passes_of(mix, 7)
    counts = Counter()
    for batches in passes:
        keys = [key for batch in batches for key, _, _ in batch]
        assert Counter(key.rstrip("0123456789") for key in keys) == {"near": 300, "far": 300}
        counts.update(keys)

    # 7 passes of 300: `near` once, `far` five times and a quarter of it once more
    assert Counter(counts.values()) == {1: 2100, 5: 300, 6: 100}


@pytest.mark.parametrize("sources", [WHOLE, WEIGHTED], ids=["whole", "weighted"])
def test_digests_are_equal_for_tars_of_1000_utterances(lists, tmp_path, sources):
    lists_of_form = {form: open_list(*reversed(lists[form]["near"])).digest for form in FORMS}
    mixtures = {form: mixture_of(lists[form], sources, tmp_path).digest for form in FORMS}
    assert equal_forms(lists_of_form) == equal_forms(mixtures) == ["raw", "tars of 1000"]


def test_a_list_above_262144_utterances_gives_equal_batches_for_tars_of_1000(lists, monkeypatch):
    assert epoch_plan.WHOLE_CORPUS == 262_144
    monkeypatch.setattr(epoch_plan, "WHOLE_CORPUS", 100)
    monkeypatch.setattr("wenet_uio.dataset.plan.lanes.GROUP_UTTERANCES", 400)
    monkeypatch.setattr("wenet_uio.dataset.plan.lanes.GROUP_SHARDS", 1)
    batches = {form: passes_of(open_list(*reversed(lists[form]["near"]))) for form in FORMS}
    assert equal_forms(batches) == ["raw", "tars of 1000"]

    read = {form: sorted(itertools.chain(*passes[0])) for form, passes in batches.items()}
    assert equal_forms(read) == list(FORMS)
