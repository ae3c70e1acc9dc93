"""Timestamps of Whisper follow OpenAI's rules and become spans of the text."""

from __future__ import annotations

import pytest
import torch

from wenet_uio.addons.families.whisper.timestamps import (
    LATEST_START,
    TimestampRules,
    move_timestamps,
)
from wenet_uio.addons.families.whisper.tokens import TIMESTAMP_STEP, WhisperTokens, special_tokens
from wenet_uio.search import Hypothesis
from wenet_uio.search.types import TimeSpan

TOKENS = WhisperTokens(special_tokens(20, 3), 3)
EOT, BEGIN = TOKENS.ids["eot"], TOKENS.ids["timestamp_begin"]
SIZE = BEGIN + 100
RULES = TimestampRules(TOKENS)


def allowed(log_probs: torch.Tensor, history: list[int]) -> torch.Tensor:
    """Bool (V,): what the rules allow after `history`, written hypothesis by hypothesis."""
    banned = torch.zeros(SIZE, dtype=torch.bool)
    banned[EOT + 1 : BEGIN] = True
    stamps = [token for token in history if token >= BEGIN]
    if not history:
        banned[:BEGIN] = True
        banned[BEGIN + round(LATEST_START / TIMESTAMP_STEP) + 1 :] = True
    elif history[-1] >= BEGIN and (len(history) < 2 or history[-2] >= BEGIN):
        banned[BEGIN:] = True
    elif history[-1] >= BEGIN:
        banned[:EOT] = True
        banned[BEGIN : stamps[-1]] = True
    elif stamps:
        banned[BEGIN : stamps[-1] + 1] = True
    left = log_probs.masked_fill(banned, -torch.inf).log_softmax(0)
    if left[BEGIN:].logsumexp(0) > left[:BEGIN].max():
        banned[:BEGIN] = True
    return ~banned


@pytest.mark.parametrize("seed", range(20))
def test_the_rules_equal_those_of_single_hypotheses(seed: int) -> None:
    torch.manual_seed(seed)
    length = seed % 6
    stamp = torch.rand(2, 3, length) < 0.5
    history = torch.where(
        stamp,
        torch.randint(BEGIN, BEGIN + 50, (2, 3, length)).sort(2)[0],
        torch.randint(0, EOT, (2, 3, length)),
    )
    log_probs = (torch.randn(2, 3, SIZE) * 3 - 4 * (torch.arange(SIZE) >= BEGIN)).log_softmax(2)
    found = RULES.apply(log_probs, history)
    for row in range(2):
        for number in range(3):
            expected = allowed(log_probs[row, number], history[row, number].tolist())
            assert torch.equal(found[row, number] > -torch.inf, expected)
            assert found[row, number].exp().sum().item() == pytest.approx(1.0, abs=1e-5)


def sampled(seed: int) -> list[int]:
    """Tokens drawn by the rules until the end, at most 60."""
    torch.manual_seed(seed)
    history: list[int] = []
    while len(history) < 60:
        log_probs = (torch.randn(1, 1, SIZE) * 2 - 3 * (torch.arange(SIZE) >= BEGIN)).log_softmax(2)
        given = torch.tensor(history, dtype=torch.int64).view(1, 1, -1)
        token = int(torch.multinomial(RULES.apply(log_probs, given)[0, 0].exp(), 1))
        if token == EOT:
            break
        history.append(token)
    return history


@pytest.mark.parametrize("seed", range(10))
def test_times_of_drawn_texts_do_not_decrease_and_every_token_has_a_span(seed: int) -> None:
    history = sampled(seed)
    hypothesis = move_timestamps(Hypothesis(tuple(history), 0.0), TOKENS)
    assert list(hypothesis.tokens) == [token for token in history if token < BEGIN]
    spans = hypothesis.spans
    assert spans is not None
    places = [place for _, _, first, last in spans for place in range(first, last)]
    assert places == list(range(len(hypothesis.tokens)))
    times = [time for start, end, _, _ in spans for time in (start, end) if time is not None]
    assert times == sorted(times)
    assert all(end is None or end > start for start, end, _, _ in spans)
    assert all(span.end is not None for span in spans[:-1])


def stamp(seconds: float) -> int:
    return BEGIN + round(seconds / TIMESTAMP_STEP)


@pytest.mark.parametrize(
    ("tokens", "spans"),
    [
        ((), ()),
        ((stamp(0),), ()),
        ((stamp(0.5), 1, 2, stamp(1.2)), (TimeSpan(0.5, 1.2, 0, 2),)),
        (
            (stamp(0), 1, stamp(0.4), stamp(0.6), 2, 3, stamp(1)),
            (TimeSpan(0, 0.4, 0, 1), TimeSpan(0.6, 1, 1, 3)),
        ),
        (
            (stamp(0), 1, stamp(0.4), stamp(0.4), 2),
            (TimeSpan(0, 0.4, 0, 1), TimeSpan(0.4, None, 1, 2)),
        ),
        ((1, 2), (TimeSpan(0, None, 0, 2),)),
        ((1, stamp(0.2)), (TimeSpan(0, 0.2, 0, 1),)),
    ],
)
def test_timestamps_become_spans(tokens: tuple[int, ...], spans: tuple[TimeSpan, ...]) -> None:
    confidences = tuple(1 / (1 + token) for token in tokens)
    given = Hypothesis(tokens, -1.0, decoder_confidences=confidences)
    found = move_timestamps(given, TOKENS)
    assert found.tokens == tuple(token for token in tokens if token < BEGIN)
    assert found.token_confidences == tuple(1 / (1 + token) for token in found.tokens)
    assert found.spans is not None
    assert [span[2:] for span in found.spans] == [span[2:] for span in spans]
    for span, expected in zip(found.spans, spans, strict=True):
        assert span[:2] == pytest.approx(expected[:2])
