import json

import numpy as np
import pytest

from tests.support.data.synthetic import IndexOnlyCorpus
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.prepare.diagnose.plan_report import report_plan, skew_of_steps

STATIC = measure_of(
    DatasetConf(batch_conf=BatchConf(batch_type="static", batch_size=2)), training=True
)


def report(corpus, world_size=2, **options):
    return report_plan(corpus, STATIC, seed=1, epoch=0, world_size=world_size, **options)


def test_five_utterances_in_batches_of_two_on_two_ranks():
    batches = []
    found = report(IndexOnlyCorpus([3, 2], shortest=1.0, longest=1.0), on_batch=batches.append)
    assert (found.utterances, found.batches, found.steps) == (5, 3, 2)
    assert (found.lost, found.duplicated, found.over_bound, found.bad) == (0, 0, 0, 0)
    assert found.padding == 0.0
    assert found.hours == round(5 / 3600, 4)
    assert found.fill == pytest.approx(100 * 5 / 6, abs=0.01)
    assert sum(found.sources.values()) == 5
    assert [batch.index for batch in batches] == [0, 1, 2]


def test_the_same_plan_has_the_same_digest_and_another_seed_another():
    first, again = (report(IndexOnlyCorpus([30, 20])) for _ in range(2))
    other = report_plan(IndexOnlyCorpus([30, 20]), STATIC, seed=2, epoch=0, world_size=2)
    assert first.digest == again.digest != other.digest


def test_an_empty_corpus_has_an_empty_plan():
    found = report(IndexOnlyCorpus([0]))
    assert (found.utterances, found.batches, found.fill, found.skew, found.same_shard) == (
        0,
        0,
        0.0,
        1.0,
        0.0,
    )


def test_the_text_has_one_figure_per_line():
    found = report(IndexOnlyCorpus([3, 2]))
    lines = dict(line.split(maxsplit=1) for line in found.lines())
    assert lines.keys() == found.as_dict().keys()
    assert lines["digest"] == found.digest
    assert json.loads(lines["sources"]) == found.sources


def test_skew_is_the_most_expensive_rank_over_the_mean():
    np.testing.assert_allclose(skew_of_steps(np.array([1, 3, 2, 2]), [], 2), [1.5, 1.0])
    assert len(skew_of_steps(np.array([0, 0]), [], 2)) == 0
