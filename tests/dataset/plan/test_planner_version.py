"""Plans are those of the version of the planner that the states of runs name."""

import hashlib
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from tests.dataset.plan.test_epoch_plan import small_scales
from tests.support.data.synthetic import IndexOnlyCorpus
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.corpus.mixture import Mixture, Passes, WeightedCorpus
from wenet_uio.dataset.plan import groups
from wenet_uio.dataset.plan.epoch_plan import EpochPlan, divide
from wenet_uio.dataset.plan.lanes import PLANNERS
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.dataset.randomness import draw

small_scales = pytest.fixture(autouse=True, scope="module")(small_scales)

DYNAMIC = {"batch_type": "dynamic", "max_frames_in_batch": 3000}
CASES = {
    "static": {"batch_conf": {"batch_size": 7}, "shuffle": True},
    "dynamic": {
        "batch_conf": DYNAMIC,
        "speed_perturb": True,
        "filter_conf": {"min_length": 100, "max_length": 2500},
    },
    "dynamic, no jitter": {"batch_conf": {**DYNAMIC, "length_jitter": 0.0}},
    "dynamic, quadratic": {
        "batch_conf": {
            "batch_type": "dynamic",
            "batch_duration": 40.0,
            "quadratic_duration": 15.0,
            "batch_size": 9,
        }
    },
    "bucket": {
        "batch_conf": {
            "batch_type": "bucket",
            "bucket_boundaries": (300, 700),
            "bucket_batch_sizes": (16, 8, 4),
        }
    },
    "bins": {
        "batch_conf": {
            "batch_type": "bucket",
            "bucket_duration_bins": ((5.0, 20), (5.0, 60), (30.0, 30), (30.0, 60)),
            "bucket_batch_size": (16, 12, 8, 4),
        }
    },
    "semi-sorted": {"batch_conf": {**DYNAMIC, "use_semi_sorted_batching": True}},
    "random order": {"batch_conf": {**DYNAMIC, "length_order": "random"}},
    "rising order": {"batch_conf": {**DYNAMIC, "length_order": "rising"}},
}
PLANS = {2: "bd15026798a0e8a6", 3: "e839cd174414996b", 4: "906cc1c545f186cd"}
"""Digest of all plans below by version of the planner."""


class WholeNumbers(IndexOnlyCorpus):
    """A corpus of whole random numbers, which are the same on every machine and with every
    numpy.
    """

    def drawn(self, total, seed):
        numbers = np.arange(total, dtype=np.uint64)
        lengths, texts, keys = (draw(1000 * seed + purpose, numbers) for purpose in range(3))
        return 8000 + lengths % np.uint64(300_000), 1 + texts % np.uint64(60), keys


def by_row(corpus, world_size):
    """The division that version 2 of the planner knows."""
    division = divide(corpus, world_size)
    return replace(division, synced=min(division.lanes, world_size))


def by_step(corpus, world_size):
    """A division for more ranks than there are lanes."""
    division = divide(corpus, 6 * world_size)
    assert division.by_step
    return replace(division, turns_by_step=False)


def turns_by_step(corpus, world_size):
    """A division by step whose sources take turns by step."""
    return replace(by_step(corpus, world_size), turns_by_step=True)


def plans(corpus, conf, divided, seed=1):
    """A line for each batch of some passes."""
    measure = measure_of(DatasetConf(**conf), training=True, text_length_is_tokens=True)
    for data_pass, world_size in ((0, 1), (3, 4)):
        one_pass = Passes(corpus).corpus_of(data_pass)
        plan = EpochPlan(
            one_pass, measure, seed=seed, epoch=data_pass, division=divided(one_pass, world_size)
        )
        for index in range(plan.num_batches):
            for piece in plan.batch(index).pieces:
                shards, rows = one_pass.origin(piece.shards, piece.rows)
                samples = zip(shards, rows, (100 * piece.speeds).round(), piece.seeds, strict=True)
                yield " ".join(
                    f"{shard}.{row}.{speed:.0f}.{seed % 1000}"
                    for shard, row, speed, seed in samples
                )
            yield "end"


def mixture(per_batch):
    corpora = [
        WholeNumbers(counts, seed=seed) for seed, counts in enumerate(((40,) * 4, (60,), (25,) * 3))
    ]
    for number, corpus in enumerate(corpora):
        corpus.digest = f"{number:032x}"
    return Mixture(
        "mixture",
        [
            WeightedCorpus(corpus, share)
            for corpus, share in zip(corpora, (0.3, 0.5, 0.2), strict=True)
        ],
        190,
        per_batch,
    )


DIVIDED = (by_row, by_step, turns_by_step)


@pytest.mark.parametrize(("version", "divided"), list(zip(PLANNERS, DIVIDED, strict=True)))
def test_a_change_of_the_plans_raises_the_version_of_the_planner(version, divided):
    digest = hashlib.sha256()
    shards = 40 if divided is by_row else 10
    corpora = {"small": WholeNumbers([30, 50, 70]), "lanes": WholeNumbers([25] * shards)}
    for name, conf in CASES.items():
        for size, corpus in corpora.items():
            digest.update("\n".join([name, size, *plans(corpus, conf, divided)]).encode())
    with patch.object(groups, "SMALL_GROUP", 1):
        digest.update("\n".join(plans(corpora["small"], CASES["dynamic"], divided)).encode())
    for per_batch in (False, True, "weighted", "round_robin"):
        digest.update(
            "\n".join(plans(mixture(per_batch), {"batch_conf": DYNAMIC}, divided)).encode()
        )
    assert PLANS.get(version) == digest.hexdigest()[:16], (
        "plans have changed: raise PLANNERS, and add the new digest"
    )
