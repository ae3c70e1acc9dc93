"""Configs whose measures have every kind of batch policy, for tests of their identity."""

from __future__ import annotations

from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.plan.measure import Measure, measure_of

DYNAMIC = {"batch_type": "dynamic", "max_frames_in_batch": 3000}
SECONDS = {"batch_type": "dynamic", "batch_duration": 40.0, "quadratic_duration": 15.0}
BINS = {
    "batch_type": "bucket",
    "bucket_duration_bins": ((5.0, 20), (5.0, 60), (30.0, 60)),
    "bucket_batch_size": (16, 12, 4),
    "max_tps": (13.0, 10.0),
}
BUCKETS = {
    "batch_type": "bucket",
    "bucket_boundaries": (300, 700),
    "bucket_batch_sizes": (16, 8, 4),
}
CONFS = {
    "static": {"batch_conf": {"batch_size": 7}},
    "dynamic": {"batch_conf": DYNAMIC, "speed_perturb": True},
    "dynamic with a target": {"batch_conf": {**DYNAMIC, "batch_target": 2000}},
    "seconds": {"batch_conf": {**SECONDS, "batch_size": 9}},
    "buckets": {"batch_conf": BUCKETS},
    "bins": {"batch_conf": BINS},
    "tokens of text": {"batch_conf": {**SECONDS, "batch_tokens": 1000, "quadratic_factor": 50}},
    "two views": {"batch_conf": DYNAMIC, "views": {"number": 2}},
    "semi-sorted": {"batch_conf": {**DYNAMIC, "use_semi_sorted_batching": True}},
    "random order": {"batch_conf": {**DYNAMIC, "length_order": "random", "length_jitter": 0.5}},
    "filters": {
        "filter_conf": {"min_length": 100, "max_duration": 20.0, "min_tpt": 0.5, "max_tpt": 3.0}
    },
    "buckets of texts": {
        "batch_conf": {**BUCKETS, "token_buckets": ((14, 512), (25, 192), (36, 128))},
    },
    "audio in tokens": {
        "batch_conf": {"batch_type": "dynamic", "batch_tokens": 1000, "quadratic_factor": 50},
        "filter_conf": {"token_equivalent_duration": 0.08, "max_tokens": 500},
    },
    "mel": {
        "feats_type": "log_mel_spectrogram",
        "log_mel_spectrogram_conf": {"pad_or_trim": True},
        "resample_conf": {"resample_rate": 8000},
    },
}
ENTRIES = ({"batch_size": 7}, DYNAMIC, {**SECONDS, "batch_tokens": 1000})


def measures() -> dict[str, Measure]:
    """{name: measure}, of training, evaluation and a mixture."""
    confs = {name: DatasetConf(**conf) for name, conf in CONFS.items()}
    result = {
        name: measure_of(conf, training=True, text_length_is_tokens=True)
        for name, conf in confs.items()
    }
    result |= {
        f"{name}, evaluation": measure_of(conf, training=False) for name, conf in confs.items()
    }
    by_entry = [BatchConf(**entry) for entry in ENTRIES]
    result["mixture"] = measure_of(confs["dynamic"], training=True, by_entry=by_entry)
    return result
