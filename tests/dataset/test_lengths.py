import numpy as np
import pytest
import torch

from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.chain.features import feature_operators
from wenet_uio.dataset.lengths import frame_count, resampled_length
from wenet_uio.dataset.types import Example

FEATURES = [
    {"fbank_conf": {"num_mel_bins": 40}},
    {"fbank_conf": {"snip_edges": False, "frame_shift": 12.5}},
    {"feats_type": "mfcc", "mfcc_conf": {"num_ceps": 13, "frame_length": 20}},
    {"feats_type": "log_mel_spectrogram", "log_mel_spectrogram_conf": {"padding": 300}},
    {"feats_type": "log_mel_spectrogram", "log_mel_spectrogram_conf": {"num_mel_bins": 128}},
    {
        "feats_type": "log_mel_spectrogram",
        "log_mel_spectrogram_conf": {"pad_or_trim": True, "max_duration": 1},
    },
    {
        "feats_type": "log_mel_spectrogram",
        "log_mel_spectrogram_conf": {
            "pad_or_trim": True,
            "pad_in_training": False,
            "max_duration": 1,
        },
    },
]


@pytest.mark.parametrize("conf", FEATURES)
@pytest.mark.parametrize("training", [False, True])
def test_frames_are_counted_as_the_features_have_them(conf, training):
    conf = DatasetConf(**conf)
    lengths = np.array([640, 799, 800, 15999, 16001, 40000])
    *_, compute = feature_operators(conf, training=training)
    examples = [Example("a", "", torch.ones(int(length)), 16000, random=0) for length in lengths]
    count = frame_count(conf, training=training)
    assert count(lengths).tolist() == [len(compute(example).feats) for example in examples]
    assert [int(count(int(length))) for length in lengths] == count(lengths).tolist()


@pytest.mark.parametrize(("pads_in_training", "expected"), [(True, 3000), (False, 200)])
def test_training_keeps_the_lengths_that_evaluation_pads_if_the_config_says_so(
    pads_in_training, expected
):
    mel = {"pad_or_trim": True, "pad_in_training": pads_in_training}
    conf = DatasetConf(feats_type="log_mel_spectrogram", log_mel_spectrogram_conf=mel)
    assert int(frame_count(conf, training=True)(32000)) == expected
    assert int(frame_count(conf)(32000)) == 3000


def test_a_waveform_shorter_than_a_window_has_no_frame():
    count = frame_count(DatasetConf())
    assert count(np.array([0, 399, 400])).tolist() == [0, 0, 1]


def test_resampled_lengths_are_rounded_up():
    assert resampled_length(np.array([0, 1, 3, 4]), np.array([32000] * 4), 16000).tolist() == [
        0,
        1,
        2,
        2,
    ]
