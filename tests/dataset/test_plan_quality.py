from tests.dataset.synthetic import IndexOnlyCorpus
from wenet_uio.config.dataset import BatchConf, DatasetConf
from wenet_uio.dataset.measure import measure_of
from wenet_uio.dataset.report import report_plan


def report(counts, world_size):
    conf = DatasetConf(batch_conf=BatchConf(batch_type="dynamic", max_frames_in_batch=12000))
    return report_plan(IndexOnlyCorpus(counts), measure_of(conf, training=True), seed=1, epoch=0, world_size=world_size)


def test_dynamic_batches_of_a_planned_corpus_hardly_pad():
    whole = report([1000] * 20, world_size=8)
    assert whole.padding <= 1.6
    assert whole.fill >= 92


def test_lanes_pad_as_little_and_keep_the_ranks_even():
    lanes = report([1000] * 300, world_size=8)
    assert lanes.lanes == 8
    assert lanes.padding <= 1.6
    assert lanes.fill >= 92
    assert lanes.skew <= 1.05
    assert (lanes.lost, lanes.duplicated, lanes.over_bound) == (0, 0, 0)
