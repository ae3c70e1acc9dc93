"""Encode a recording of any length in one pass: encoder frames as features arrive, in memory that
does not grow.

Only encoders with two limits of `att_context_size` can do this: a frame depends on its neighbours
alone.
"""

from __future__ import annotations

from typing import cast

import torch

from wenet_uio.models.encoder import Encoder
from wenet_uio.models.layered_encoder import LayeredEncoder, LocalLayer

PIECE = 512
"""Encoder frames that are computed at once."""


def one_pass_obstacle(encoder: Encoder) -> str:
    """Return the reason why an encoder cannot encode a recording of any length in one pass; empty
    if it can.
    """
    layers = encoder.encoders if isinstance(encoder, LayeredEncoder) else []
    local_layers = [layer for layer in layers if isinstance(layer, LocalLayer)]
    if not local_layers or len(local_layers) < len(layers):
        return "its encoder is not a transformer or conformer"

    if any(layer.reach() is None for layer in local_layers):
        return (
            "its frames see the whole audio; train with two limits of encoder_conf.att_context_size"
        )

    return encoder.embed.obstacle


class _LayerPass:
    """A layer of the encoder, with the inputs that outputs to come depend on: an output depends on
    `_left` inputs before it and `_right` inputs after it.
    """

    def __init__(self, encoder: LayeredEncoder, place: int) -> None:
        self._encoder, self._place = encoder, place
        reach = cast("LocalLayer", encoder.encoders[place]).reach()
        assert reach is not None, "one_pass_obstacle looks at each layer"
        self._left, self._right = reach
        self._inputs: torch.Tensor | None = None
        self._first = 0
        """Number of the first of the kept inputs."""
        self._returned = 0
        """Kept inputs whose outputs were returned."""

    def accept(self, x: torch.Tensor, *, last: bool) -> torch.Tensor:
        """Add inputs (1, T, D), and return the outputs that no later input can change; with `last`,
        all.
        """
        inputs = x if self._inputs is None else torch.cat((self._inputs, x), dim=1)
        count = inputs.size(1)
        ready = count if last else count - self._right  # inputs whose outputs are final
        if ready <= self._returned:
            self._inputs = inputs
            return x[:, :0]

        # All kept inputs are computed again: the first ones are the context of the new outputs.
        positions = self._encoder.embed.position_encoding(self._first, count, inputs)
        no_padding = torch.zeros(1, count, 1, dtype=torch.bool, device=x.device)
        outputs = self._encoder._block(self._place, inputs, None, positions, no_padding)
        new_outputs = outputs[:, self._returned : ready]

        # The next output depends on `_left` inputs before it: those before them are not needed.
        forgotten = max(0, ready - self._left)
        self._inputs = inputs[:, forgotten:].clone()  # a view would keep all inputs in memory
        self._first += forgotten
        self._returned = ready - forgotten

        return new_outputs


class RecordingEncoder:
    """Encodes one recording as its features arrive. The frames are those of `Encoder.forward`, up
    to rounding.

    Each layer keeps the inputs that outputs to come depend on, and computes those again in the next
    piece: work grows by (left + right context) / PIECE.
    """

    def __init__(self, encoder: Encoder) -> None:
        """Begin a recording.

        Raises:
            ValueError: the encoder has a `one_pass_obstacle`.
        """
        if obstacle := one_pass_obstacle(encoder):
            raise ValueError(f"the model cannot encode a recording in one pass: {obstacle}")

        assert isinstance(encoder, LayeredEncoder), "one_pass_obstacle looks at its layers"
        self._encoder = encoder
        self._layers = [_LayerPass(encoder, place) for place in range(len(encoder.encoders))]
        self._feats: torch.Tensor | None = None
        self._offset = 0
        """Frames of the input layer so far."""

    def accept(self, feats: torch.Tensor, *, last: bool) -> torch.Tensor:
        """Add features (1, T, F), and return the encoder frames (1, T', D) that no later feature
        can change.

        With `last` the recording ends: the remaining frames are returned.
        """
        embed = self._encoder.embed
        feats = feats if self._feats is None else torch.cat((self._feats, feats), dim=1)

        # Frames of the input layer whose windows are complete; whole pieces of them, except the last.
        frames = (feats.size(1) - embed.right_context - 1) // embed.subsampling_rate + 1
        if not last:
            frames = frames // PIECE * PIECE

        outputs = [
            self._encode_piece(feats, start, min(PIECE, frames - start))
            for start in range(0, frames, PIECE)
        ]
        encoded_feats = max(0, frames) * embed.subsampling_rate
        self._feats = feats[:, encoded_feats:].clone()  # a view would keep all in memory

        traits = self._encoder.traits
        if last:  # no frames follow: the layers give what they held back
            no_frames = feats.new_zeros(1, 0, traits.width)
            outputs.append(self._apply_layers(no_frames, last=True))
        if not outputs:
            return feats.new_zeros(1, 0, traits.output_size)

        return torch.cat(outputs, dim=1)

    def _encode_piece(self, feats: torch.Tensor, start: int, frames: int) -> torch.Tensor:
        """Encode a piece of features (1, T, F) -> (1, T', D): `frames` frames of the input layer, of
        which there is one every `subsampling_rate` features, from number `start` on.
        """
        encoder, embed = self._encoder, self._encoder.embed
        # A frame of the input layer is computed from its feature and `right_context` more.
        first_feature = start * embed.subsampling_rate
        last_feature = (start + frames - 1) * embed.subsampling_rate + embed.right_context
        piece = feats[:, first_feature : last_feature + 1]
        if encoder.global_cmvn is not None:
            piece = encoder.global_cmvn(piece)

        x, _ = embed(piece, self._offset)
        self._offset += frames
        return self._apply_layers(x, last=False)

    def _apply_layers(self, x: torch.Tensor, *, last: bool) -> torch.Tensor:
        """Add frames x (1, T, D) to the input of the layers, and return the encoder frames (1, T', D)
        that no later frame can change; with `last`, all.
        """
        for layer in self._layers:
            x = layer.accept(x, last=last)
        return self._encoder.after_norm(x) if self._encoder.normalize_before else x
