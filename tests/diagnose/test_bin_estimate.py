import pytest

from wenet_uio.config import Config
from wenet_uio.config.dataset import BatchConf
from wenet_uio.dataset.plan.duration_bins import Bins
from wenet_uio.diagnose.bin_estimate import batch_conf_of, estimate_bins


@pytest.fixture
def config(tmp_path):
    (tmp_path / "units").write_text("<blank> 0\n<unk> 1\na 2\nb 3\nc 4\n<sos/eos> 5\n")
    return Config.model_validate({"tokenizer_conf": {"symbol_table_path": str(tmp_path / "units")}})


def test_bins_end_at_the_longest_utterance_that_the_filters_keep(config, make_lists):
    data_list = make_lists(40)["raw"]
    bins, utterances = estimate_bins(data_list, "raw", config, 3)
    assert (utterances, len(bins.ends)) == (40, 3)
    conf = config.model_dump()
    longest = bins.ends[-2]
    conf["dataset_conf"]["filter_conf"]["max_length"] = int(longest * 100)
    fewer, kept = estimate_bins(data_list, "raw", Config.model_validate(conf), 3)
    assert kept < 40
    assert fewer.ends[-1] <= longest


def test_bins_of_tokens_come_with_the_largest_rates(config, make_lists):
    bins, _ = estimate_bins(make_lists(40)["raw"], "raw", config, 2, 2)
    assert all(isinstance(end, tuple) for end in bins.ends)
    assert len(bins.max_tps) == 2


SECONDS = Bins((1.23456, 7.0))
SECONDS_AND_TOKENS = Bins(((1.23456, 5), (7.0, 9)), (3.141, 2.0))


@pytest.mark.parametrize(
    ("bins", "keys"),
    [
        (SECONDS, {"bucket_duration_bins": [1.235, 7.0]}),
        (SECONDS_AND_TOKENS, {"bucket_duration_bins": [[1.235, 5], [7.0, 9]], "max_tps": [3.15, 2.0]}),
    ],
    ids=["seconds", "seconds and tokens"],
)
def test_batch_conf_takes_the_bins(bins, keys):
    conf = batch_conf_of(bins)
    assert conf == {"batch_type": "bucket", **keys}
    BatchConf(**conf, bucket_batch_size=[4, 2])
