"""OpenAI's rules for the transcripts of a Whisper: no speech, improbable and repetitive texts."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import pytest
import torch

from tests.support.models.tiny_whisper import tiny
from wenet_uio.addons.families.whisper import transcript_rules
from wenet_uio.addons.families.whisper.model import Whisper
from wenet_uio.addons.families.whisper.transcript_rules import (
    TEMPERATURES,
    check_transcripts,
    draw_texts,
    is_improbable,
    is_repetitive,
    no_speech_probability,
)
from wenet_uio.search import DecodeOptions, Hypothesis
from wenet_uio.search.types import NBest

Encoded = tuple[torch.Tensor, torch.Tensor]
WORDS = ("you", "are", "all", "here", "now", "and", "then", "some", "more", "time")
OPTIONS = DecodeOptions(language="en")


@pytest.fixture(autouse=True)
def without_gradients() -> object:
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def model() -> Whisper:
    return tiny()


@pytest.fixture(scope="module")
def encoded(model: Whisper) -> Encoded:
    """Encoder frames of two segments and their lengths."""
    torch.manual_seed(1)
    with torch.no_grad():
        return model.encode(torch.randn(2, 60, 8), torch.tensor([60, 44]))


def text_of(tokens: Sequence[int]) -> str:
    return " ".join(WORDS[token % len(WORDS)] for token in tokens)


def said(confidence: float, tokens: Sequence[int] = (1, 2, 3)) -> NBest:
    """A text to which the decoder gives this confidence."""
    return [Hypothesis(tuple(tokens), -1.0, decoder_confidence=confidence)]


def scores(model: Whisper, encoded: Encoded, row: int, tokens: Sequence[int]) -> torch.Tensor:
    """Log-probabilities (U, V) after each of the tokens, computed for all of them at once."""
    memory = encoded[0][row : row + 1, : encoded[1][row]]
    given = torch.tensor([tokens])
    found, _ = model.forward_attention_decoder(given, torch.tensor([len(tokens)]), memory)
    return found[0]


def one(encoded: Encoded, row: int) -> Encoded:
    return encoded[0][row : row + 1], encoded[1][row : row + 1]


def says_no_speech(model: Whisper, monkeypatch: pytest.MonkeyPatch, probability: float) -> None:
    """Let the decoder give no_speech this probability after sot."""
    bias = model.decoder.output_layer.bias
    changed = bias.detach().clone()
    unit = model.tokens.ids["no_speech"]
    changed[unit] = 0.0
    monkeypatch.setattr(bias, "data", changed)
    # The same odds for both segments need no more than a large or a small bias.
    bias.data[unit] = 50.0 if probability > 0.5 else -50.0


def test_the_probability_of_no_speech_is_that_of_its_token_after_sot(
    model: Whisper, encoded: Encoded
) -> None:
    for row in range(2):
        expected = scores(model, encoded, row, [model.sos])[0, model.tokens.ids["no_speech"]]
        assert no_speech_probability(model, *one(encoded, row)) == pytest.approx(
            expected.exp().item(), rel=1e-4
        )


@pytest.mark.parametrize("confidence", [0.99, 0.2])
@pytest.mark.parametrize("no_speech", [0.9, 0.1])
def test_a_segment_has_no_words_if_nobody_speaks_and_the_text_is_improbable(
    model: Whisper,
    encoded: Encoded,
    monkeypatch: pytest.MonkeyPatch,
    confidence: float,
    no_speech: float,
) -> None:
    says_no_speech(model, monkeypatch, no_speech)
    nbests = [said(confidence), said(0.99)]
    found = check_transcripts(model, encoded, OPTIONS, nbests, text_of)
    assert (found[0] is None) == (confidence < 0.3 and no_speech > 0.6)
    assert found[1] == nbests[1]


def test_limits_are_those_of_openai() -> None:
    assert not is_improbable(said(math.exp(-0.99))[0])
    assert is_improbable(said(math.exp(-1.01))[0])
    assert not is_improbable(Hypothesis((), -9.0))
    varied = " ".join(WORDS)
    for text in ("", "you", varied, *("you " * count for count in range(2, 40)), varied * 3):
        content = text.encode()
        assert is_repetitive(text) == (len(content) / len(zlib.compress(content)) > 2.4)
    assert is_repetitive("thank you " * 20)
    assert not is_repetitive(varied)


def test_texts_of_other_modes_are_kept(model: Whisper, encoded: Encoded) -> None:
    nbests = [[Hypothesis((1,) * 90, -900.0)], [Hypothesis((), 0.0)]]
    assert check_transcripts(model, encoded, OPTIONS, nbests, text_of) == nbests


@pytest.mark.parametrize("timestamps", [False, True])
def test_drawn_texts_have_the_probabilities_of_the_decoder_and_no_special_tokens(
    model: Whisper, encoded: Encoded, timestamps: bool
) -> None:
    options = DecodeOptions(language="zh", timestamps=timestamps)
    drawn = list(draw_texts(model, one(encoded, 1), options))
    assert len(drawn) == len(TEMPERATURES)
    assert len({text.tokens for text in drawn}) > 1
    prompt = model.tokens.prompt("zh", timestamps=timestamps)
    for text in drawn:
        assert all(token < model.eos for token in text.tokens)
        assert text.language == "zh"
        assert (text.spans is not None) == timestamps
        if not timestamps and len(text.tokens) < 10:  # it ended before the limit
            given = [*prompt, *text.tokens]
            found = scores(model, encoded, 1, given)[len(prompt) - 1 :]
            chosen = found[torch.arange(len(text.tokens) + 1), [*text.tokens, model.eos]]
            assert text.decoder_confidence == pytest.approx(chosen.mean().exp().item(), rel=1e-3)
            assert text.decoder_confidences == pytest.approx(chosen[:-1].exp().tolist(), rel=1e-3)


def test_what_is_drawn_for_a_segment_depends_on_nothing_but_the_segment(
    model: Whisper, encoded: Encoded
) -> None:
    together = check_transcripts(model, encoded, OPTIONS, [said(0.2), said(0.2)], text_of)
    for row in range(2):
        segment = one(encoded, row)
        for _ in range(2):
            assert check_transcripts(model, segment, OPTIONS, [said(0.2)], text_of) == [
                together[row]
            ]


def test_a_repetitive_text_is_replaced_by_the_first_drawn_text_that_passes(
    model: Whisper, encoded: Encoded, monkeypatch: pytest.MonkeyPatch
) -> None:
    repetitive = said(0.9, [1] * 60)
    assert is_repetitive(text_of(repetitive[0].tokens))
    texts = [said(0.1, [2, 3])[0], said(0.9, [4] * 60)[0], said(0.8, [5, 6])[0], said(0.9, [7])[0]]
    monkeypatch.setattr(transcript_rules, "draw_texts", lambda *_: iter(texts))
    segment = one(encoded, 0)
    assert check_transcripts(model, segment, OPTIONS, [repetitive], text_of) == [[texts[2]]]

    # Without a text that passes: the first one that does not repeat itself.
    monkeypatch.setattr(transcript_rules, "draw_texts", lambda *_: iter(texts[:2]))
    assert check_transcripts(model, segment, OPTIONS, [repetitive], text_of) == [[texts[0]]]
    improbable = said(0.2)
    assert check_transcripts(model, segment, OPTIONS, [improbable], text_of) == [improbable]
    monkeypatch.setattr(transcript_rules, "draw_texts", lambda *_: iter(texts[1:2]))
    assert check_transcripts(model, segment, OPTIONS, [repetitive], text_of) == [repetitive]
