"""Lengths on the CPU beside features on an accelerator.

The losses of CTC and transducer need lengths on the CPU. Those of encoder frames depend on the
lengths of the features alone, so they are computed on the CPU: a copy from the device would wait
for the encoder.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from wenet_uio.dataset.chain.tokens import CtcFrames
from wenet_uio.models.ctc import Intermediate
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.layered_encoder import LayeredEncoder
from wenet_uio.models.masks import reduced_lengths
from wenet_uio.models.speech_model import SpeechModel

LONGEST_TO_CHECK = 60_000
"""Feature frames, ten minutes. A longer utterance is taken to have a path of CTC."""


class Encoded(NamedTuple):
    """Encoder frames of a training batch."""

    frames: torch.Tensor
    """(B, T', D)."""
    lengths: torch.Tensor
    """(B,), on the device of the lengths of the features."""
    between: list[Intermediate]
    """Frames after the blocks of `inter_ctc`; empty without it."""


def encode_for_training(
    model: SpeechModel, feats: torch.Tensor, feats_lengths: torch.Tensor, chunk_size: int = -1
) -> Encoded:
    """Encode features (B, T, F) of lengths (B,) for training; see Encoder.forward for `chunk_size`."""
    encoder = model.encoder
    on_device = feats_lengths.to(feats.device, non_blocking=True)
    inputs = model.inputs(feats, on_device)
    between: list[Intermediate] = []
    if isinstance(encoder, LayeredEncoder) and encoder.inter_ctc is not None:
        frames, lengths, between = encoder.encode_between(*inputs, chunk_size)
    else:
        encode = model.training_encoder or encoder
        frames, lengths = encode(*inputs, chunk_size)

    if feats_lengths.device != feats.device:
        # The losses need lengths on the host, which waits for no accelerator if it computes them.
        input_lengths = model.input_lengths(feats_lengths)
        padded = max(feats.size(1), int(input_lengths.max()))
        lengths = encoder_lengths(encoder, input_lengths, padded, frames.size(1))
        if isinstance(encoder, LayeredEncoder):
            embedded = embedded_lengths(encoder, input_lengths, padded)
            between = lengths_between(encoder, between, embedded)

    return Encoded(frames, lengths, between)


def lengths_between(
    encoder: LayeredEncoder, between: list[Intermediate], lengths: torch.Tensor
) -> list[Intermediate]:
    """Return what the blocks gave, with the lengths that follow from those of the input layer (B,)."""
    blocks = encoder.inter_ctc.blocks if encoder.inter_ctc is not None else ()
    outputs: list[Intermediate] = []
    for output, block in zip(between, blocks, strict=True):
        reduction = encoder.reductions[block - 1]  # blocks count from 1
        reduced = _reduce_lengths(lengths, reduction, output.frames.size(1))
        outputs.append(output._replace(lengths=reduced))

    return outputs


def encoder_lengths(
    encoder: Encoder, lengths: torch.Tensor, padded: int, frames: int
) -> torch.Tensor:
    """Convert lengths (B,) of the encoder's input to those of encoder frames, as `encoder` computes
    them.

    Args:
        padded: feature frames of the padded batch.
        frames: encoder frames of the padded batch.
    """
    embedded = embedded_lengths(encoder, lengths, padded)
    return _reduce_lengths(embedded, encoder.traits.reduction, frames)


def embedded_lengths(encoder: Encoder, lengths: torch.Tensor, padded: int) -> torch.Tensor:
    """Convert lengths (B,) of the encoder's input to those of frames of the input layer; `padded`
    as in `encoder_lengths`.
    """
    padded = max(padded, encoder.embed.right_context + 1)
    return encoder.embed.output_lengths(lengths, padded, padded)


def _reduce_lengths(lengths: torch.Tensor, factor: int, frames: int) -> torch.Tensor:
    """Return lengths at a rate that is lower by `factor`, in a batch of `frames` frames there."""
    return reduced_lengths(lengths, factor).clamp(max=frames)


def ctc_frames(model: SpeechModel) -> CtcFrames | None:
    """Return the frames of CTC for each length of features; None for a model without CTC's loss.

    The weights of the model may be on the meta device.
    """
    if not model.ctc_weight:
        return None

    # An odd padding, in which conv1d2 rounds up where it does not mask the padding.
    longest = LONGEST_TO_CHECK + 1 - LONGEST_TO_CHECK % 2
    lengths = model.input_lengths(torch.arange(longest, device="cpu"))
    padded = int(lengths[-1])
    frames = encoder_lengths(model.encoder, lengths, padded, frames=padded)
    return CtcFrames(frames.int().numpy())
