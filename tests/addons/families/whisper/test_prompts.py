"""Whisper decodes with languages that are given or detected, tasks and timestamps."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.models.tiny_whisper import tiny
from wenet_uio.addons.families.whisper.model import Whisper
from wenet_uio.addons.families.whisper.prompts import decoder_prompts as prompts_of
from wenet_uio.addons.families.whisper.prompts import detect_languages
from wenet_uio.base.messages import said_once
from wenet_uio.config import load_config
from wenet_uio.models import build_model
from wenet_uio.search import MODES, DecodeOptions, decode


@pytest.fixture(scope="module")
def model() -> Whisper:
    return tiny()


def batch(*frames: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise of these lengths, padded with zeros."""
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randn(length, 8, generator=generator) for length in frames]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor(frames)


def tokens_of(model: Whisper, feats: Sequence[torch.Tensor], **options: Any) -> list[Any]:
    found = decode(model, feats[0], feats[1], ["attention"], DecodeOptions(beam_size=3, **options))
    return [nbest[0] for nbest in found["attention"]]


def test_the_vocabulary_follows_from_the_special_tokens(model: Whisper) -> None:
    assert model.vocab_size == 29 + 1501
    assert (model.sos, model.eos, model.blank) == (21, 20, 27)


@torch.no_grad()
def test_the_detected_language_is_the_most_probable_language_token(model: Whisper) -> None:
    feats = batch(60, 44, 31)
    encoder_out, lengths = model.encode(*feats)
    found = detect_languages(model, encoder_out, lengths)
    for row, language in enumerate(found):
        memory = encoder_out[row : row + 1, : lengths[row]]
        scores, _ = model.forward_attention_decoder(torch.tensor([[21]]), torch.tensor([1]), memory)
        assert language == ("en", "zh")[int(scores[0, 0, 22:24].argmax())]
    assert [each.language for each in tokens_of(model, feats)] == found


def test_a_given_language_is_taken_and_only_the_others_are_detected(model: Whisper) -> None:
    feats = batch(60, 44, 31)
    detected = [each.language for each in tokens_of(model, feats)]
    assert [each.language for each in tokens_of(model, feats, language="zh")] == ["zh"] * 3
    mixed = tokens_of(model, feats, language=("zh", None, "en"))
    assert [each.language for each in mixed] == ["zh", detected[1], "en"]


def test_utterances_that_are_searched_in_groups_keep_their_languages(
    model: Whisper, monkeypatch: pytest.MonkeyPatch
) -> None:
    feats, modes = batch(60, 44, 31), ["attention", "ctc_greedy_search"]
    options = DecodeOptions(beam_size=3, language=("zh", None, "en"))
    whole = decode(model, *feats, modes, options)
    monkeypatch.setattr(sys.modules[decode.__module__], "SCORES_TOGETHER", 1)
    grouped = decode(model, *feats, modes, options)
    for mode in modes:
        assert [(nbest[0].language, nbest[0].tokens) for nbest in grouped[mode]] == [
            (nbest[0].language, nbest[0].tokens) for nbest in whole[mode]
        ]
    assert [nbest[0].language for nbest in grouped["attention"]][::2] == ["zh", "en"]


@torch.no_grad()
def test_the_prompt_has_the_task_of_the_options(model: Whisper) -> None:
    encoder_out, lengths = model.encode(*batch(60, 44))
    for options, end in (
        (DecodeOptions(language="zh", task="translate"), [23, 24, 28]),
        (DecodeOptions(language="zh", timestamps=True), [23, 25]),
    ):
        prompts = prompts_of(model, encoder_out, lengths, options)
        assert prompts.tokens.tolist() == [[21, *end]] * 2


@pytest.mark.parametrize("timestamps", [False, True])
def test_an_utterance_alone_has_the_hypotheses_that_it_has_in_a_batch(
    model: Whisper, timestamps: bool
) -> None:
    feats, lengths = batch(300, 61, 30, 9)
    modes = ["attention"] if timestamps else list(MODES)
    options = DecodeOptions(beam_size=3, timestamps=timestamps)
    together = decode(model, feats, lengths, modes, options)
    with torch.no_grad():
        frames, frame_lengths = model.encode(feats, lengths)
        for row, length in enumerate(lengths.tolist()):
            alone, (count,) = model.encode(feats[row : row + 1, :length], lengths[row : row + 1])
            assert count == frame_lengths[row]
            torch.testing.assert_close(alone[0], frames[row, :count], atol=1e-5, rtol=1e-5)
    for row, length in enumerate(lengths.tolist()):
        alone = decode(model, feats[row : row + 1, :length], lengths[row : row + 1], modes, options)
        for mode in modes:
            (nbest,) = alone[mode]
            assert [each.tokens for each in nbest] == [
                each.tokens for each in together[mode][row]
            ], mode
            for one, other in zip(nbest, together[mode][row], strict=True):
                assert one.score == pytest.approx(other.score, abs=1e-4, rel=1e-5)
                assert (one.frames, one.spans, one.language) == (
                    other.frames,
                    other.spans,
                    other.language,
                )


def test_with_timestamps_every_text_has_a_span_and_no_special_token(model: Whisper) -> None:
    for hypothesis in tokens_of(model, batch(300, 61), timestamps=True):
        assert all(token < 20 for token in hypothesis.tokens)
        assert hypothesis.spans is not None
        assert sum(last - first for _, _, first, last in hypothesis.spans) == len(hypothesis.tokens)


def test_the_decoder_ends_where_its_positions_end() -> None:
    model = tiny()
    with torch.no_grad():
        model.decoder.output_layer.bias[model.eos] = -1e4  # never ends
    (found,) = tokens_of(model, batch(1200), language="en")
    assert len(found.tokens) == 448 - 3


def test_no_frames_give_no_tokens(model: Whisper) -> None:
    feats = torch.zeros(2, 40, 8), torch.tensor([40, 0])
    assert tokens_of(model, feats)[1].tokens == ()


@pytest.mark.parametrize(
    ("options", "modes", "message"),
    [
        ({"language": "xx"}, ["attention"], "^language 'xx': this model knows en, zh$"),
        (
            {"task": "sing", "language": "en"},
            ["attention"],
            "^task 'sing': this model knows transcribe, translate$",
        ),
        (
            {"timestamps": True},
            ["attention_rescoring"],
            "^timestamps: only the mode attention has them, found",
        ),
    ],
)
def test_wrong_options_are_one_line(
    model: Whisper, options: dict[str, Any], modes: list[str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        decode(model, *batch(40), modes, DecodeOptions(**options))


def test_other_models_refuse_the_options_of_whisper(golden2: Path) -> None:
    other = build_model(load_config(golden2 / "conformer_nobias/train.yaml", of_model=True))
    for options in ({"language": "en"}, {"task": "translate"}, {"timestamps": True}):
        with pytest.raises(
            ValueError, match=r"^language, task and timestamps are options of models whisper"
        ):
            decode(
                other,
                torch.zeros(1, 40, 80),
                torch.tensor([40]),
                ["attention"],
                DecodeOptions(**options),
            )


def test_whisper_cannot_stream_and_says_so(model: Whisper) -> None:
    with pytest.raises(
        ValueError, match=r"^decoding_chunk_size 8: this model was trained with full context only"
    ):
        model.encode(*batch(40), decoding_chunk_size=8)


def test_a_whisper_without_its_special_tokens_or_with_two_decoders_is_refused() -> None:
    with pytest.raises(ValueError, match=r"special_tokens: model whisper needs eot, sot"):
        tiny(tokenizer_conf={"special_tokens": {"<sos>": 1}})
    with pytest.raises(
        ValueError, match=r"model whisper needs decoder transformer, found bitransformer"
    ):
        tiny(decoder="bitransformer", decoder_conf={"attention_heads": 2})


def test_an_english_model_needs_no_language() -> None:
    model = tiny(
        tokenizer_conf={"special_tokens": None, "is_multilingual": False},
        ctc_conf={"ctc_blank_id": 50361},
    )
    assert model.vocab_size == 51864
    (found,) = tokens_of(model, batch(40))
    assert found.language == "en"
    assert model.prompts(["x"], [{}]).tolist() == [[50257, 50362]]


def test_a_guessed_language_is_said_once_and_a_bad_one_names_its_utterance(
    model: Whisper, caplog: pytest.LogCaptureFixture
) -> None:
    said_once.clear()
    model.prompts(["", "x"], [{}, {"lang": "en"}])
    assert not caplog.messages
    for _ in range(2):
        assert model.prompts(["x", "中"], [{}, {}])[:, 1].tolist() == [22, 23]
    (said,) = caplog.messages
    assert said.startswith(
        "utterances without a field `lang` are learned as zh if their text has Chinese characters, "
    )
    assert "\n" not in said
    with pytest.raises(ValueError, match="^b: language 'xx': this model knows en, zh"):
        model.prompts(["x", "y"], [{"lang": "en"}, {"lang": "xx"}], ["a", "b"])


def test_a_text_without_position_in_the_decoder_names_the_key_that_leaves_it_out(
    model: Whisper,
) -> None:
    assert model.most_labels == 444  # training and validation leave out longer texts
    feats, lengths = batch(40)
    target = torch.full((1, 445), 3)
    with pytest.raises(
        ValueError,
        match=r"^449 tokens with the prompt, but the decoder has 448 positions: lower data",
    ):
        model(feats, lengths, target, torch.tensor([445]), model.prompts(["x"], [{"lang": "en"}]))
    assert torch.isfinite(model(feats, lengths, target[:, :444], torch.tensor([444]))["loss"])
