import json

import pytest

from wenet_uio.config import parse_config
from wenet_uio.config.batch import BatchConf
from wenet_uio.prepare.diagnose.bin_estimate import BinEstimate, estimate_bins


def config_of(folder, filters):
    """A config with the units file in `folder` and this `filter_conf`."""
    tokenizer = {"symbol_table_path": str(folder / "units")}
    values = {"tokenizer_conf": tokenizer, "dataset_conf": {"filter_conf": filters}}
    return parse_config(values, "test")


@pytest.fixture
def config(tmp_path):
    (tmp_path / "units").write_text("<blank> 0\n<unk> 1\na 2\nb 3\nc 4\n<sos/eos> 5\n")
    return config_of(tmp_path, {})


def test_bins_end_at_the_longest_utterance_that_the_filters_keep(config, make_lists, tmp_path):
    data_list = make_lists(40)["raw"]
    found = estimate_bins(data_list, "raw", config, 3)
    assert (found.utterances, found.outliers, len(found.ends), found.max_tps) == (40, 0, 3, [])
    filters = {"max_length": int(found.ends[-2] * 100)}
    fewer = estimate_bins(data_list, "raw", config_of(tmp_path, filters), 3)
    assert fewer.utterances < 40
    assert fewer.ends[-1] <= found.ends[-2]


def test_bins_end_at_begun_milliseconds_so_that_the_longest_utterance_fits(config, tmp_path):
    lines = [
        {"key": f"u{n}", "wav": f"{n}.wav", "txt": "a", "duration": 1 + n / 16000}
        for n in range(40)
    ]
    (tmp_path / "data.list").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = estimate_bins(str(tmp_path / "data.list"), "raw", config, 40)
    assert found.ends == [1.001, 1.002, 1.003]
    BatchConf(**found.batch_conf(), bucket_batch_size=[4, 2, 1])


def test_bins_of_tokens_come_with_the_largest_rates(config, make_lists):
    found = estimate_bins(make_lists(40)["raw"], "raw", config, 2, 2)
    assert {len(end) for end in found.ends} == {2}
    assert len(found.max_tps) == 2


def test_a_batch_conf_takes_the_bins():
    keys = {"batch_type": "bucket", "bucket_duration_bins": [1.2, 7.0]}
    assert BinEstimate([1.2, 7.0], [], 9, 0).batch_conf() == keys
    with_tokens = BinEstimate([[1.2, 5], [7.0, 9]], [3.2, 2.0], 9, 0).batch_conf()
    assert with_tokens == {
        **keys,
        "bucket_duration_bins": [[1.2, 5], [7.0, 9]],
        "max_tps": [3.2, 2.0],
    }
    for conf in (keys, with_tokens):
        BatchConf(**conf, bucket_batch_size=[4, 2])
