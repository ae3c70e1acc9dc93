import numpy as np
import pytest
import soundfile
import torch

from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.read import read_audio
from wenet_uio.base.executor import Executor
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.chain.fbank import fbank
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.prepare.cmvn_stats import cmvn_statistics


def test_sums_are_those_of_the_training_features_with_any_number_of_processes(make_utterances):
    conf = DatasetConf(fbank_conf={"num_mel_bins": 20, "frame_shift": 20, "dither": 1.0})
    lines = make_utterances(70)
    audio = (read_audio(line.wav) for line in lines)
    feats = torch.cat(
        [fbank(torch.from_numpy(samples), rate, conf.fbank_conf) for samples, rate in audio]
    ).double()
    for processes in (1, 2):
        found = cmvn_statistics(lines, conf, Executor(processes))
        assert found["frame_num"] == len(feats)
        np.testing.assert_allclose(found["mean_stat"], feats.sum(0), rtol=1e-9)
        np.testing.assert_allclose(found["var_stat"], feats.square().sum(0), rtol=1e-9)


def test_every_utterance_without_features_is_named(make_utterances, tmp_path):
    lines = [
        *make_utterances(2),
        RawLine("gone", "/gone.wav", ""),
        RawLine("lost", "/lost.wav", ""),
    ]
    with pytest.raises(
        AudioError, match=r"(?s)2 of 4 utterances have no features.*gone /gone.wav.*lost /lost.wav"
    ):
        cmvn_statistics(lines, DatasetConf(), Executor())


def test_utterances_without_features_may_be_left_out(make_utterances, capsys):
    good = make_utterances(3)
    conf = DatasetConf()
    found = cmvn_statistics(
        [*good, RawLine("gone", "/gone.wav", "")], conf, Executor(), allow_bad=True
    )
    assert found == cmvn_statistics(good, conf, Executor())
    assert "1 of 4 utterances have no features:\n  gone /gone.wav: " in capsys.readouterr().err
    with pytest.raises(AudioError, match="1 of 1 utterances"):
        cmvn_statistics([RawLine("gone", "/gone.wav", "")], conf, Executor(), allow_bad=True)


def test_only_the_named_part_of_a_recording_is_summed(make_utterances):
    (line,) = make_utterances(1, rate=16000)
    samples, rate = read_audio(line.wav, 0.1, 0.3)
    feats = fbank(torch.from_numpy(samples), rate, DatasetConf().fbank_conf).double()
    found = cmvn_statistics([RawLine("part", line.wav, "", 0.1, 0.3)], DatasetConf(), Executor())
    assert found["frame_num"] == len(feats)
    np.testing.assert_allclose(found["mean_stat"], feats.sum(0), rtol=1e-9)


def test_the_channel_of_a_line_is_summed(make_utterances, tmp_path):
    (line,) = make_utterances(1)
    samples, rate = soundfile.read(line.wav, dtype="int16")
    soundfile.write(tmp_path / "call.wav", np.stack((0 * samples, samples), axis=1), rate)
    call = RawLine(line.key, str(tmp_path / "call.wav"), "", extra={"channel": 1})
    alone, in_call = (cmvn_statistics([one], DatasetConf(), Executor(1)) for one in (line, call))
    assert alone == in_call
