"""Lengths of encoder frames that are computed without the encoder."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.models.test_batches import KINDS, make_features, padded_batch
from wenet_uio.models import ASRModel
from wenet_uio.models.lengths import ctc_frames, encoder_lengths


@pytest.mark.third
@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_lengths_on_the_cpu_are_those_of_the_encoder(
    kind: str, make_encoder_model: Callable[..., ASRModel]
) -> None:
    encoder = (model := make_encoder_model(*KINDS[kind])).encoder
    for masks_padding in (True, False):
        encoder.masks_padding = encoder.embed.masks_padding = masks_padding
        for utterances, more in (([3, 0, 1], 0), ([*range(5, 40)], 0), ([*range(5, 40)], 3)):
            feats, lengths = padded_batch(make_features(model, utterances), more)
            frames, expected = encoder(feats, lengths)
            assert (
                encoder_lengths(encoder, lengths, feats.size(1), frames.size(1)).tolist()
                == expected.tolist()
            )


@pytest.mark.third
@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_the_frames_of_ctc_are_those_of_an_utterance_alone(
    kind: str, make_encoder_model: Callable[..., ASRModel]
) -> None:
    model = make_encoder_model(*KINDS[kind])
    frames = ctc_frames(model)
    assert frames is not None
    for utterance in (1, 3, 6, 10, 25, 40):
        feats, lengths = padded_batch(make_features(model, [utterance]), 0)
        _, expected = model.encoder(*model.inputs(feats, lengths))
        assert frames.by_num_feats[int(lengths[0])] == int(expected[0])


def test_a_model_without_a_loss_of_ctc_has_no_limit(
    make_encoder_model: Callable[..., ASRModel],
) -> None:
    model = make_encoder_model(*next(iter(KINDS.values())))
    model.ctc_weight = 0.0
    assert ctc_frames(model) is None
