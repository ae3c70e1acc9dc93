import numpy as np
import pytest
import torch

from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.audio import AudioError, read_audio
from wenet_uio.dataset.cmvn_stats import cmvn_statistics
from wenet_uio.dataset.fbank import fbank
from wenet_uio.executor import Executor


def test_sums_are_those_of_the_training_features_with_any_number_of_processes(make_utterances):
    conf = DatasetConf(fbank_conf={"num_mel_bins": 20, "frame_shift": 20, "dither": 1.0})
    wavs = [(line.key, line.wav) for line in make_utterances(70)]
    audio = (read_audio(path) for _, path in wavs)
    feats = torch.cat([fbank(torch.from_numpy(samples), rate, conf.fbank_conf) for samples, rate in audio]).double()
    for processes in (1, 2):
        found = cmvn_statistics(wavs, conf, Executor(processes))
        assert found["frame_num"] == len(feats)
        np.testing.assert_allclose(found["mean_stat"], feats.sum(0), rtol=1e-9)
        np.testing.assert_allclose(found["var_stat"], feats.square().sum(0), rtol=1e-9)


def test_every_file_without_features_is_named(make_utterances, tmp_path):
    wavs = [(line.key, line.wav) for line in make_utterances(2)] + [("gone", "/gone.wav"), ("lost", "/lost.wav")]
    with pytest.raises(AudioError, match=r"(?s)2 of 4 files have no features.*gone /gone.wav.*lost /lost.wav"):
        cmvn_statistics(wavs, DatasetConf(), Executor())


def test_files_without_features_may_be_left_out(make_utterances, capsys):
    good = [(line.key, line.wav) for line in make_utterances(3)]
    conf = DatasetConf()
    found = cmvn_statistics([*good, ("gone", "/gone.wav")], conf, Executor(), allow_bad=True)
    assert found == cmvn_statistics(good, conf, Executor())
    assert "1 of 4 files have no features:\n  gone /gone.wav: " in capsys.readouterr().err
    with pytest.raises(AudioError, match="1 of 1 files"):
        cmvn_statistics([("gone", "/gone.wav")], conf, Executor(), allow_bad=True)
