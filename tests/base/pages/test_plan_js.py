"""The rule by which the page of a plan deals batches to ranks is that of the planner."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.dataset.plan.test_epoch_plan import POLICIES, measure
from tests.dataset.plan.test_joined_entries import joined
from tests.support.data.synthetic import IndexOnlyCorpus
from wenet_uio.base import pages
from wenet_uio.dataset.corpus.mixture import Passes
from wenet_uio.dataset.plan.epoch_plan import EpochPlan, divide
from wenet_uio.dataset.types import SampleRef
from wenet_uio.prepare.diagnose import plan_page
from wenet_uio.prepare.diagnose.plan_page import CellCollector

SCRIPT = Path(pages.__file__).with_name("plan.js")
WORLD_SIZES = (1, 2, 3, 4, 8, 61)
DEAL = """
const { Plan } = await import(process.argv[1]);
let text = "";
for await (const part of process.stdin) text += part;
const { data, worldSizes } = JSON.parse(text);
const plan = new Plan(data);
console.log(JSON.stringify(worldSizes.map((ranks) =>
  Array.from({ length: plan.steps(ranks) }, (_, step) =>
    Array.from({ length: ranks }, (_, rank) => plan.cell(step, rank, ranks))))));
"""


@pytest.fixture(scope="module")
def node():
    """Skip the test where there is no Node.js; the page is tested with Chromium as well."""
    path = shutil.which("node")
    if path is None:
        pytest.skip("no Node.js is installed: apt-get install nodejs")
    return path


def cells_of(plan, ranks):
    collector = CellCollector(plan.corpus, plan.measure, ranks)
    for index in range(plan.num_batches):
        collector(plan.batch(index))
    return collector.data()


def dealt_by_page(node, data, world_sizes=WORLD_SIZES):
    """The cells of the page: (world sizes, steps, ranks)."""
    done = subprocess.run(
        [node, "--input-type=module", "-e", DEAL, str(SCRIPT)],
        input=json.dumps({"data": data, "worldSizes": world_sizes}),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def planned(plan, position, ranks, rank):
    """What the planner gives to a rank, in the form of a cell of the page."""
    batch = plan.step(position, ranks, rank)
    keys = [
        [
            plan.corpus.key(SampleRef(int(shard), int(row)))
            for shard, row in zip(piece.shards, piece.rows, strict=True)
        ]
        for piece in batch.pieces
    ]
    return {
        "batch": batch.index,
        "isShare": position + ranks > plan.num_batches,
        "keys": keys,
        "utterances": len(batch),
        "frames": sum(int(piece.frames.sum()) for piece in batch.pieces),
        "padded": sum(piece.padded_frames for piece in batch.pieces),
        "cost": batch.cost,
    }


def check_same(node, plan, ranks_of_division):
    data = cells_of(plan, ranks_of_division)
    for ranks, steps in zip(WORLD_SIZES, dealt_by_page(node, data), strict=True):
        assert len(steps) == plan.steps_from(0, ranks)
        for step, cells in enumerate(steps):
            for rank, cell in enumerate(cells):
                pieces = cell.pop("pieces")
                if pieces is not None:
                    cell["keys"] = [[data["keys"][sample] for sample in piece] for piece in pieces]
                expected = planned(plan, step * ranks, ranks, rank)
                if pieces is None:
                    assert cell["batch"] >= data["head"]
                    expected.pop("keys")
                assert cell == expected


SLOW = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SLOW
@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    policy=st.sampled_from(POLICIES),
    ranks=st.integers(1, 9),
    epoch=st.integers(0, 2),
    named=st.sampled_from([0, 50, 10_000]),
)
def test_the_page_deals_the_batches_of_the_planner(node, sizes, policy, ranks, epoch, named):
    corpus = IndexOnlyCorpus(sizes)
    plan = EpochPlan(corpus, measure(policy), seed=1, epoch=epoch, division=divide(corpus, ranks))
    with patch.object(plan_page, "MOST_UTTERANCES", named):
        check_same(node, plan, ranks)


@pytest.mark.all
@SLOW
@given(
    confs=st.sampled_from([("static", "text"), ("dynamic", "static text"), ("buckets", "static")]),
    size=st.integers(40, 200),
    ranks=st.sampled_from([1, 2, 5]),
)
def test_the_page_deals_joined_batches_of_a_mixture_too(node, confs, size, ranks):
    mixture, rule = joined(confs, [size] * 2, per_pass=2 * size)
    corpus = Passes(mixture).corpus_of(0)
    plan = EpochPlan(corpus, rule, seed=1, epoch=0, division=divide(corpus, ranks))
    check_same(node, plan, ranks)


def test_an_epoch_without_batches_has_no_steps(node):
    corpus = IndexOnlyCorpus([0])
    plan = EpochPlan(corpus, measure(POLICIES[0]), seed=1, epoch=0, division=divide(corpus, 1))
    assert dealt_by_page(node, cells_of(plan, 1)) == [[]] * len(WORLD_SIZES)


def test_a_page_that_does_not_hold_all_batches_shows_complete_steps_only(node):
    corpus = IndexOnlyCorpus([200])
    plan = EpochPlan(corpus, measure(POLICIES[0]), seed=1, epoch=0, division=divide(corpus, 1))
    with patch.object(plan_page, "MOST_BATCHES", 10):
        data = cells_of(plan, 1)
    assert (data["total"], len(data["cost"])) == (plan.num_batches, 10)
    steps_of_three = dealt_by_page(node, data, [3])[0]
    assert [[cell["batch"] for cell in step] for step in steps_of_three] == [
        [0, 1, 2], [3, 4, 5], [6, 7, 8],
    ]  # fmt: skip
