"""Lengths on the CPU beside features on an accelerator.

The losses of CTC and transducer need lengths on the CPU. Those of encoder frames depend on the
lengths of the features alone, so they are computed on the CPU: a copy from the device would wait
for the encoder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from wenet_uio.models.encoder import Encoder
    from wenet_uio.models.speech_model import SpeechModel


def encoded(
    model: SpeechModel, feats: torch.Tensor, feats_lengths: torch.Tensor, chunk_size: int = -1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Features (B, T, F) -> encoder frames (B, T', D), and their lengths (B,) on the device of
    `feats_lengths` (B,).

    See Encoder.forward for `chunk_size`.
    """
    on_device = feats_lengths.to(feats.device, non_blocking=True)
    encoder_out, lengths = model.encoder(*model.inputs(feats, on_device), chunk_size)
    if feats_lengths.device != feats.device:
        seen = model.input_lengths(feats_lengths)
        lengths = encoder_lengths(model.encoder, seen, feats.size(1), encoder_out.size(1))
        if model.encoder.inter_ctc is not None:
            model.encoder.inter_ctc.use_lengths(
                model.encoder, embedded_lengths(model.encoder, seen, feats.size(1))
            )

    return encoder_out, lengths


def encoder_lengths(
    encoder: Encoder, lengths: torch.Tensor, padded: int, frames: int
) -> torch.Tensor:
    """Lengths (B,) of the encoder's input -> those of encoder frames, as `encoder` computes them.

    Args:
        padded: feature frames of the padded batch.
        frames: encoder frames of the padded batch.
    """
    return reduced(embedded_lengths(encoder, lengths, padded), encoder.reduction, frames)


def embedded_lengths(encoder: Encoder, lengths: torch.Tensor, padded: int) -> torch.Tensor:
    """Lengths (B,) of the encoder's input -> those of frames of the input layer; `padded` as in
    `encoder_lengths`.
    """
    padded = max(padded, encoder.embed.right_context + 1)
    return encoder.embed.output_lengths(lengths, padded, padded)


def reduced(lengths: torch.Tensor, factor: int, frames: int) -> torch.Tensor:
    """Return lengths (B,) at a rate that is lower by `factor`, in a batch that is padded to
    `frames` there.
    """
    return torch.div(lengths + factor - 1, factor, rounding_mode="floor").clamp(max=frames)
