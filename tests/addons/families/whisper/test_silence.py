"""A whisper hears 30 s in the losses and in decoding; the losses compute few frames of the silence."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch
import yaml
from torch.nn.utils.rnn import pad_sequence

import wenet_uio
from tests.support.models.small_whisper import write_openai
from tests.support.models.tiny_whisper import TINY, tiny
from tests.support.models.whisper_layouts import write_full_vocabulary
from tests.support.train.training_corpus import write_corpus
from wenet_uio.addons.families.whisper.model import Whisper
from wenet_uio.addons.families.whisper.silence import (
    QUIETEST,
    ROUNDED,
    STRIDE,
    WHOLE,
    Window,
    with_silence,
)
from wenet_uio.bin import recognize, train, transcribe
from wenet_uio.config.dataset import LogMelSpectrogramConf
from wenet_uio.dataset.chain.fbank import log_mel_spectrogram
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.models.layered_encoder import LayeredEncoder
from wenet_uio.models.lengths import encoder_lengths
from wenet_uio.prepare.list_making import make_raw_list

WINDOW = Window(1500)
PADDED = LogMelSpectrogramConf(num_mel_bins=8, pad_or_trim=True)
ENCODER = {**TINY, "input_layer": "conv1d2", "pos_enc_layer_type": "abs_pos_whisper"}
END_OF_TEXT = 50257
WITHOUT = LogMelSpectrogramConf(num_mel_bins=8)


def silent_model(**mel: Any) -> Whisper:
    """A random whisper whose training utterances lack the silence behind them."""
    mel = {"num_mel_bins": 8, "pad_or_trim": True, "pad_in_training": False, **mel}
    conf = {"feats_type": "log_mel_spectrogram", "log_mel_spectrogram_conf": mel}
    return tiny(dataset_conf=conf, model_conf={"ctc_weight": 0.3})


def speech(*seconds: float) -> list[torch.Tensor]:
    """Waveforms of noise."""
    torch.manual_seed(1)
    return [3000 * torch.randn(int(16000 * length)) for length in seconds]


def losses(model: Whisper, waveforms: list[torch.Tensor], conf: LogMelSpectrogramConf) -> Any:
    feats = [log_mel_spectrogram(waveform, 16000, conf) for waveform in waveforms]
    lengths = torch.tensor([len(rows) for rows in feats])
    target = torch.tensor([[3, 4, 3]]).expand(len(feats), -1)
    prompts = model.prompts([""] * len(feats), [{"lang": "en"}] * len(feats))
    target_lengths = torch.full((len(feats),), 3)
    return model(pad_sequence(feats, batch_first=True), lengths, target, target_lengths, prompts)


def test_the_frames_that_are_kept_stand_for_all_of_the_window() -> None:
    lengths = torch.arange(1, 3300)
    speech_frames = (lengths + 1) // 2
    whole, kept = WINDOW.whole_frames(lengths), WINDOW.kept_frames(lengths)
    in_window = speech_frames <= 1500
    assert torch.equal(
        (whole + STRIDE * (kept - whole))[in_window], torch.full_like(whole, 1500)[in_window]
    )
    assert (whole >= torch.minimum(speech_frames + WHOLE, whole.new_tensor(1500))).all()
    assert (whole < speech_frames + WHOLE + STRIDE).all()
    assert torch.equal(kept[~in_window], speech_frames[~in_window])

    weights = WINDOW.log_weights(kept, 1700)
    assert weights.shape == (len(lengths), 1, 1700)
    counted = weights.double().exp().sum(dim=2)[:, 0]
    torch.testing.assert_close(counted, speech_frames.clamp(min=1500).double(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("seconds", [0.5, 2.0, 7.77, 28.9, 29.5, 30.0])
def test_few_frames_of_silence_have_the_loss_of_all(seconds: float) -> None:
    """Exactly so without positions, in which alone the frames differ, but for the edge of the window."""
    model = silent_model().eval()
    weights = model.encoder.embed.state_dict()  # shares the memory of the model
    weights["pos_enc.pe"].zero_()
    for name in ("conv.0.weight", "conv.2.weight"):
        weights[name][:, :, 2] = 0.0  # the last frame does not see the end of the window

    with torch.no_grad():
        few = losses(model, speech(seconds), WITHOUT)
        model.training_encoder = model.window = None
        all_frames = losses(model, speech(seconds), PADDED)
        without = losses(model, speech(seconds), WITHOUT)

    # The last frame of the speech sees an edge instead of the silence.
    torch.testing.assert_close(few["loss_att"], all_frames["loss_att"], rtol=2e-3, atol=0)
    if seconds < 20:
        error = abs(few["loss_att"] - all_frames["loss_att"])
        assert error < 0.1 * abs(without["loss_att"] - all_frames["loss_att"])


def test_features_of_30_seconds_are_encoded_as_the_encoder_does() -> None:
    model = silent_model().eval()
    feats = [log_mel_spectrogram(waveform, 16000, PADDED) for waveform in speech(1.0, 30.0)]
    batch, lengths = torch.stack(feats), torch.tensor([3000, 3000])
    assert model.training_encoder is not None
    with torch.no_grad():
        frames, kept = model.training_encoder(batch, lengths)
        expected, expected_lengths = model.encoder(batch, lengths)
    assert torch.equal(kept, expected_lengths)
    torch.testing.assert_close(frames[:, :1500], expected, atol=1e-4, rtol=1e-4)


def test_batch_mates_and_padding_change_no_frame() -> None:
    model = silent_model().eval()
    encode = model.training_encoder
    assert encode is not None
    seconds = (0.3, 4.0, 12.34, 29.99, 31.0)
    feats = [log_mel_spectrogram(waveform, 16000, WITHOUT) for waveform in speech(*seconds)]
    lengths = torch.tensor([len(rows) for rows in feats])
    batch = torch.nn.functional.pad(pad_sequence(feats, batch_first=True), (0, 0, 0, 37), value=9.0)
    with torch.no_grad():
        frames, kept = encode(batch, lengths)
        for number, rows in enumerate(feats):
            alone, (length,) = encode(rows[None], lengths[number : number + 1])
            assert length == kept[number]
            size = int(length)
            torch.testing.assert_close(frames[number, :size], alone[0, :size], atol=1e-4, rtol=1e-3)
            assert not frames[number, size:].any()


def test_lengths_on_the_host_are_those_of_the_encoder() -> None:
    model = silent_model().eval()
    lengths = torch.tensor([1, 40, 301, 2999, 3000, 3100])
    batch = torch.randn(len(lengths), 3100, 8)
    assert model.training_encoder is not None
    with torch.no_grad():
        frames, kept = model.training_encoder(batch, lengths)
    inputs = model.input_lengths(lengths)
    padded = max(batch.size(1), int(inputs.max()))
    assert torch.equal(encoder_lengths(model.encoder, inputs, padded, frames.size(1)), kept)
    assert frames.size(1) % ROUNDED == 0


@pytest.mark.parametrize("loudness", [0.0, 1e-3, 3000.0])
def test_the_silence_is_that_of_the_features(loudness: float) -> None:
    torch.manual_seed(0)
    waveform = loudness * torch.randn(16000)
    padded = log_mel_spectrogram(waveform, 16000, PADDED)
    feats = log_mel_spectrogram(waveform, 16000, WITHOUT)
    made = with_silence(feats[None], torch.tensor([len(feats)]), 3000, 3004)[0]
    torch.testing.assert_close(made[102:3000], padded[102:3000], atol=1e-3, rtol=0)
    assert made.min() >= QUIETEST - 1e-3
    assert not made[3000:].any()


@pytest.mark.parametrize(
    "sections",
    [
        {"store_frames": True, "freeze_modules": ["encoder"]},
        {"interctc_layer_idx": [1], "encoder_conf": {**ENCODER, "num_blocks": 2}},
        {"mask_padding": False},
    ],
    ids=["stored frames", "CTC within the encoder", "padding is seen"],
)
def test_a_training_that_needs_all_frames_pads_as_decoding_does(sections: dict[str, Any]) -> None:
    mel = {"num_mel_bins": 8, "pad_or_trim": True, "pad_in_training": False}
    conf = {"feats_type": "log_mel_spectrogram", "log_mel_spectrogram_conf": mel}
    model = tiny(dataset_conf=conf, model_conf={"ctc_weight": 0.3}, **sections)
    assert model.window is None
    assert model.training_encoder is None


@pytest.mark.parametrize("mel", [{"pad_or_trim": False}, {"pad_in_training": True}], ids=str)
def test_a_model_hears_what_its_config_says(mel: dict[str, Any]) -> None:
    assert silent_model(**mel).training_encoder is None


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small corpus, a published whisper and the yaml of a fine-tuning."""
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    write_openai(tmp_path / "published/whisper.pt")
    write_full_vocabulary(tmp_path / "published/multilingual.tiktoken")
    batches = {"batch_conf": {"batch_type": "static", "batch_size": 8}, "speed_perturb": False}
    keys = {"max_epoch": 1, "observe_interval": 0, "report": False, "dataset_conf": batches}
    (tmp_path / "finetune.yaml").write_text(yaml.safe_dump(keys))
    return tmp_path


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, int]]:
    """(in training, encoder frames) of each utterance that an encoder has seen."""
    seen: list[tuple[bool, int]] = []
    compute = LayeredEncoder._blocks

    def record(
        self: LayeredEncoder, x: Any, bias: Any, pos_emb: Any, padded: Any, between: Any
    ) -> Any:
        seen.extend((self.training, int(count)) for count in (~padded).sum(dim=(1, 2)))
        return compute(self, x, bias, pos_emb, padded, between)

    monkeypatch.setattr(LayeredEncoder, "_blocks", record)
    return seen


def find_no_words(weights: Path) -> None:
    """Let a model end each text at once: random weights find hundreds of tokens."""
    content = torch.load(weights)
    content["decoder.output_layer.bias"][END_OF_TEXT] = 1e3
    torch.save(content, weights)


def fine_tune(source: str, run: str, *changes: str) -> None:
    lists = ("--train_data", "train.list", "--cv_data", "cv.list", "--model_dir", run)
    options = ("--config", "finetune.yaml", "--from", source, "--device", "cpu")
    overrides = ("--override_config", *changes) if changes else ()
    train.main([*options, *lists, "--num_workers", "0", *overrides])


def test_all_doors_hear_30_seconds_and_training_few_frames_of_them(
    home: Path, corpora: Path, heard: list[tuple[bool, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    fine_tune("published", "exp")
    lengths = torch.tensor([int(100 * (0.5 + 0.05 * (number % 7))) for number in range(22)])
    expected = sorted(WINDOW.kept_frames(lengths).tolist())
    assert sorted(frames for training, frames in heard if training) == expected
    # The validation before the first step, and that of the epoch.
    assert [frames for training, frames in heard if not training] == [1500] * 10
    find_no_words(home / "exp/final.pt")

    heard.clear()
    model = ("--config", "exp/train.yaml", "--checkpoint", "exp/final.pt", "--result_dir", "out")
    options = ("--modes", "attention", "--beam_size", "1", "--device", "cpu")
    recognize.main([*model, "--test_data", "cv.list", *options])
    assert heard == [(False, 1500)] * 5

    heard.clear()
    spoken = [str(corpora / f"fsdd/recordings/{digit}_theo_0.wav") for digit in (6, 7)]
    transcribe.main(["--model", "exp", "--device", "cpu", *spoken])
    assert heard == [(False, 1500)] * 2

    heard.clear()
    samples, rate = soundfile.read(spoken[0], dtype="float32")
    stream = wenet_uio.load_model("exp", device="cpu").stream(sample_rate=rate)
    stream.accept(samples)
    stream.finish()
    assert set(heard) == {(False, 1500)}


def test_a_run_without_padding_stays_so_in_the_next_training(
    home: Path, heard: list[tuple[bool, int]]
) -> None:
    """Earlier configs had `pad_or_trim: false`, and their models expect it."""
    key = "dataset_conf.log_mel_spectrogram_conf.pad_or_trim=false"
    fine_tune("published", "earlier", key)
    fine_tune("earlier", "later")
    lengths = [int(100 * (0.5 + 0.05 * (number % 7)) + 1) // 2 for number in range(22)]
    of_training = [frames for training, frames in heard if training]
    assert sorted(of_training) == sorted(2 * lengths)
    assert max(frames for _, frames in heard) < 50


@pytest.mark.all
def test_a_published_whisper_before_its_training_reads_what_transcribe_of_the_source_reads(
    home: Path, corpora: Path, published_whisper: Path
) -> None:
    source = str(published_whisper)
    with open(corpora / "voices/transcripts.tsv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["lang"] == "en"]
    files = {row["key"]: corpora / "voices" / row["wav"] for row in rows[:6]}
    lines = [RawLine(row["key"], str(files[row["key"]]), row["txt"]) for row in rows[:6]]
    assert make_raw_list(lines[:3], "train.list") == []
    assert make_raw_list(lines[3:], "cv.list") == []
    fine_tune(source, "exp", "max_steps=1")

    before = yaml.safe_load((home / "exp/init.yaml").read_text())
    assert before["loss_dict"]["th_accuracy"] > 0.5
    as_published = wenet_uio.load_model("exp/from", device="cpu")
    (home / "exp/init.pt").rename(home / "exp/final.pt")
    as_before = wenet_uio.load_model("exp", device="cpu")
    for path in files.values():
        text = as_published.transcribe(path, beam_size=1).text
        assert len(text) > 10
        assert as_before.transcribe(path, beam_size=1).text == text
