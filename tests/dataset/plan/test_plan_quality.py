from random import Random

import numpy as np
import pytest

from tests.dataset.support.synthetic import IndexOnlyCorpus
from wenet_uio.config.dataset import BatchConf, DatasetConf
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.diagnose.plan_report import report_plan


def report(counts, world_size):
    conf = DatasetConf(batch_conf=BatchConf(batch_type="dynamic", max_frames_in_batch=12000))
    return report_plan(IndexOnlyCorpus(counts), measure_of(conf, training=True), seed=1, epoch=0, world_size=world_size)


def test_dynamic_batches_of_a_small_corpus_pad_at_most_1_6_percent():
    whole = report([1000] * 20, world_size=8)
    assert whole.padding <= 1.6
    assert whole.fill >= 92


def test_batches_of_lanes_pad_as_little_and_ranks_are_balanced():
    lanes = report([1000] * 300, world_size=8)
    assert lanes.lanes == 8
    assert lanes.padding <= 1.6
    assert lanes.fill >= 92
    assert lanes.skew <= 1.05
    assert (lanes.lost, lanes.duplicated, lanes.over_bound) == (0, 0, 0)


def shuffle_buffer(shards, per_shard, size, seed):
    """The order of WebDataset: shuffled shards, and samples drawn from a buffer of `size`."""
    random = Random(seed)
    order, buffer = list(range(shards)), []
    random.shuffle(order)
    for shard in order:
        for row in range(per_shard):
            buffer.append((shard, row))
            if len(buffer) >= size:
                chosen = random.randrange(len(buffer))
                buffer[chosen], buffer[-1] = buffer[-1], buffer[chosen]
                yield buffer.pop()
    random.shuffle(buffer)
    yield from buffer


@pytest.mark.parametrize("shards", [20, 300])
def test_batches_mix_shards_and_epochs_as_well_as_a_shuffle_buffer_of_10000(shards):
    planned = report([1000] * shards, world_size=8)
    epochs = [list(shuffle_buffer(shards, 1000, 10000, seed)) for seed in (0, 1)]
    chances = []
    for first in range(0, len(epochs[0]) - 20, 20):
        counts = np.bincount([shard for shard, _ in epochs[0][first : first + 20]])
        chances.append((counts * (counts - 1)).sum() / (20 * 19))
    assert planned.same_shard <= np.mean(chances) * 1.02
    assert abs(planned.order_correlation) < 0.05
