from dataclasses import replace

import pytest
import torch

from wenet_uio.config.dataset import DatasetConf, SpecTrimConf
from wenet_uio.dataset.chain.padding import pad
from wenet_uio.dataset.dataset import build_chain
from wenet_uio.dataset.types import Example, SkipSample

AUGMENTED = {"spec_sub": True, "spec_trim": True, "spec_aug_conf": {"max_t": 10, "max_f": 5}}
FEATURES = {
    "fbank": {"fbank_conf": {"num_mel_bins": 40, "dither": 1.0}},
    "fbank at the edges": {"fbank_conf": {"num_mel_bins": 40, "snip_edges": False}},
    "fbank of 12.5 ms": {"fbank_conf": {"frame_shift": 12.5, "dither": 0.5}},
    "frames apart": {"fbank_conf": {"frame_shift": 30}},
    "frames apart, at the edges": {"fbank_conf": {"frame_shift": 30, "snip_edges": False}},
    "mfcc": {"feats_type": "mfcc", "mfcc_conf": {"num_ceps": 13, "dither": 1.0}},
    "whisper's": {"feats_type": "log_mel_spectrogram"},
    "whisper's, padded": {
        "feats_type": "log_mel_spectrogram",
        "log_mel_spectrogram_conf": {"padding": 1000},
    },
    "whisper's, of one length": {
        "feats_type": "log_mel_spectrogram",
        "log_mel_spectrogram_conf": {"pad_or_trim": True, "max_duration": 1},
    },
    "whisper's, of one length in evaluation": {
        "feats_type": "log_mel_spectrogram",
        "log_mel_spectrogram_conf": {
            "pad_or_trim": True,
            "pad_in_training": False,
            "max_duration": 1,
        },
    },
}


def examples(lengths, dtype=torch.int16):
    generator = torch.Generator().manual_seed(0)
    for number, length in enumerate(lengths):
        # Rising loudness, so that errors at the edges are visible
        loudness = torch.linspace(50, 4000, length)
        waveform = torch.randn(length, generator=generator) * loudness + 30
        yield Example(
            f"{number}", "", waveform.to(dtype), 16000, random=(number + 1) << 55, labels=(1,)
        )


def batch(conf, given, training=True, **options):
    chain = build_chain(conf, None, training=training, **options)
    made = []
    for example in given:
        for operator in chain:
            example = operator(example)
        made.append(example)
    return pad(made, conf.feature_dim)


def workers(given):
    return [replace(example, waveform=example.waveform.float()) for example in given]


@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize("training", [True, False])
def test_features_on_the_device_equal_those_of_the_workers(name, training):
    conf = DatasetConf(**FEATURES[name], **AUGMENTED)
    given = list(examples([16000, 5001, 23999, 800, 12345]))
    expected = batch(conf, workers(given), training)
    deferred = batch(conf, given, training, defer_features=True)
    assert deferred.deferred.waveforms.dtype == torch.int16
    assert deferred.feats.shape == (*expected.feats.shape[:2], 0)
    found = deferred.to("cpu")
    assert found.deferred is None
    assert found.keys == expected.keys
    assert torch.equal(found.feats_lengths, expected.feats_lengths)
    torch.testing.assert_close(found.feats, expected.feats, atol=1e-3, rtol=0)


def test_masks_equal_those_of_the_workers():
    conf = DatasetConf(**AUGMENTED, fbank_conf={"num_mel_bins": 40})
    given = list(examples(range(8000, 24000, 1000)))
    expected = batch(conf, workers(given)).feats
    found = batch(conf, given, defer_features=True).to("cpu").feats
    assert torch.equal(found == 0, expected == 0)
    plain = DatasetConf(**{**AUGMENTED, "spec_aug": False}, fbank_conf={"num_mel_bins": 40})
    assert not torch.equal(expected == 0, batch(plain, workers(given)).feats == 0)


def test_a_batch_with_float_waveforms_is_sent_as_float32():
    conf = DatasetConf(fbank_conf={"num_mel_bins": 40})
    given = [*examples([16000]), *examples([9000], torch.float32)]
    deferred = batch(conf, given, defer_features=True)
    assert deferred.deferred.waveforms.dtype == torch.float32
    torch.testing.assert_close(
        deferred.to("cpu").feats, batch(conf, workers(given)).feats, atol=1e-3, rtol=0
    )


def test_audio_without_a_frame_is_left_out_in_both_modes():
    for options in ({}, {"defer_features": True}):
        with pytest.raises(SkipSample, match="too_short: 399 samples"):
            batch(DatasetConf(), workers(examples([399])), **options)


def test_features_do_not_depend_on_the_other_utterances_of_the_batch():
    conf = DatasetConf(fbank_conf={"num_mel_bins": 40, "dither": 1.0}, **AUGMENTED)
    given = list(examples([16000, 5001, 23999]))
    together = batch(conf, given, defer_features=True).to("cpu")
    for example in given:
        alone = batch(conf, [example], defer_features=True).to("cpu")
        row = together.keys.index(example.key)
        length = int(alone.feats_lengths)
        torch.testing.assert_close(together.feats[row, :length], alone.feats[0], atol=1e-3, rtol=0)


def test_an_emptied_batch_has_features_of_the_right_width():
    conf = DatasetConf(fbank_conf={"num_mel_bins": 40})
    whole = batch(conf, examples([16000]), defer_features=True)
    emptied = replace(whole, keys=(), feats=whole.feats[:0], feats_lengths=whole.feats_lengths[:0])
    assert emptied.to("cpu").feats.shape == (0, 0, 40)


def test_spec_trim_cuts_the_same_frames_as_in_the_workers():
    conf = DatasetConf(spec_aug=False, spec_trim=True, spec_trim_conf=SpecTrimConf(max_t=30))
    given = list(examples(range(8000, 24000, 1000)))
    lengths = batch(conf, workers(given)).feats_lengths
    assert torch.equal(batch(conf, given, defer_features=True).feats_lengths, lengths)
    assert lengths.sum() < batch(DatasetConf(spec_aug=False), workers(given)).feats_lengths.sum()


def test_rows_of_a_batch_have_their_own_features():
    whole = batch(
        DatasetConf(fbank_conf={"num_mel_bins": 40}),
        examples([16000, 5001, 23999]),
        defer_features=True,
    )
    expected, found = whole.to("cpu"), whole.rows(slice(1, None)).to("cpu")
    assert found.keys == expected.keys[1:]
    assert found.feats.size(1) == found.feats_lengths.max() < expected.feats.size(1)
    torch.testing.assert_close(found.feats, expected.feats[1:, : found.feats.size(1)])
