"""Encode streams chunk by chunk: one stream alone, or the next chunks of several streams
together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol, cast

import torch

from wenet_uio.base.messages import warn_once
from wenet_uio.models.caches import Caches
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.encoder_traits import EncoderTraits


class Ending(Protocol):
    """An encoder whose input layer has an `optional_context`."""

    def forward_end(
        self, xs: torch.Tensor, chunk_size: int, required_cache_size: int, caches: Caches
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Encode the last features of an utterance, fewer than those of a whole chunk; see
        Encoder.forward_chunk.
        """
        ...


class ChunkEncoder:
    """Encodes the features of one utterance chunk by chunk, as they arrive."""

    def __init__(self, encoder: Encoder, chunk_size: int, num_left_chunks: int) -> None:
        """Start an utterance.

        Args:
            chunk_size: frames of the input layer in a chunk.
            num_left_chunks: chunks seen before the current chunk; negative: all.

        Raises:
            ValueError: a chunk does not end with a frame of the encoder's lowest rate.
        """
        _check_unit(encoder.traits, chunk_size)
        self.encoder = encoder
        embed = encoder.embed
        self._chunk_size = chunk_size
        self._chunk_shift = chunk_size * embed.subsampling_rate
        """Features from the beginning of a chunk to that of the next."""
        last_frame = self._chunk_shift - embed.subsampling_rate
        self._chunk_feats = last_frame + embed.right_context + 1
        """Features of a chunk: up to the end of the window of its last frame."""
        self._least_feats = embed.right_context + 1 - embed.optional_context
        """Features that one frame needs at least: the last chunk of an utterance has as many."""
        self.required_cache_size = chunk_size * num_left_chunks
        self._feats: torch.Tensor | None = None
        """(1, T, F) from the beginning of the next chunk on."""
        self._ended = False
        self.restart()

    def restart(self) -> None:
        """Start another utterance with the next chunk; features that wait belong to it."""
        empty = next(self.encoder.parameters()).new_zeros(0, 0, 0, 0)
        self.caches: Caches = (empty, empty)
        self.offset = 0

    def put(self, feats: torch.Tensor) -> None:
        """Add features (1, T, F)."""
        self._feats = feats if self._feats is None else torch.cat((self._feats, feats), dim=1)

    def end(self) -> None:
        """Say that no features follow: the frames that remain after the last whole chunk make a
        shorter one.
        """
        self._ended = True

    @property
    def missing(self) -> int:
        """Feature frames that the next chunk needs and that are not there yet; 0: `encode_chunks`
        can encode it.
        """
        needed = self._least_feats if self._ended else self._chunk_feats
        waiting = 0 if self._feats is None else self._feats.size(1)
        return max(0, needed - waiting)

    def next_chunk(self) -> torch.Tensor:
        """Return features (1, T, F) of the next chunk."""
        assert self._feats is not None, "the caller looks at `missing`"
        return self._feats[:, : self._chunk_feats]

    def move_on(self, frames: int, caches: Caches) -> None:
        """Move on by a chunk, which was encoded to `frames` encoder frames."""
        assert self._feats is not None, "next_chunk was called"
        self._feats = self._feats[:, self._chunk_shift :]
        self.caches = caches
        self.offset += frames

    def encode(self) -> torch.Tensor:
        """Encode the next chunk -> (1, T', D)."""
        feats = self.next_chunk()
        is_short = feats.size(1) < self._chunk_feats
        if is_short and self.encoder.embed.optional_context > 0:
            # The last chunk of an utterance: the encoder puts zeros in place of the frames to come.
            ending = cast("Ending", self.encoder)
            frames, att_cache, cnn_cache = ending.forward_end(
                feats, self._chunk_size, self.required_cache_size, self.caches
            )
        else:
            att_cache, cnn_cache = self.caches
            frames, att_cache, cnn_cache = self.encoder.forward_chunk(
                feats, self.offset, self.required_cache_size, att_cache, cnn_cache
            )

        self.move_on(frames.size(1), (att_cache, cnn_cache))
        return frames

    def accept(self, feats: torch.Tensor, *, last: bool) -> torch.Tensor:
        """Add features (1, T, F), and encode the chunks that are complete -> (1, T', D).

        With `last` the utterance ends: the frames that remain are encoded as a shorter chunk.
        """
        self.put(feats)
        if last:
            self.end()

        outputs: list[torch.Tensor] = []
        while self.missing == 0:
            outputs.append(self.encode())

        if not outputs:
            return feats.new_zeros(1, 0, self.encoder.traits.output_size)
        return torch.cat(outputs, dim=1)


def encode_chunk_by_chunk(
    encoder: Encoder, feats: torch.Tensor, chunk_size: int, num_left_chunks: int
) -> torch.Tensor:
    """Encode one utterance (1, T, F) as a stream of chunks -> (1, T', D).

    The result equals that of Encoder.forward with the same chunks, unless the encoder has an
    `obstacle`.
    """
    stream = ChunkEncoder(encoder, chunk_size, num_left_chunks)
    return stream.accept(feats, last=True)


def fitting_chunk(traits: EncoderTraits, size: int) -> int:
    """Return the chunk size with which the encoder was trained; if it was trained with any, the
    smallest of at least `size` frames in which streaming equals one pass.
    """
    if traits.static_chunk_size:
        return traits.static_chunk_size

    units = -(-size // traits.chunk_unit)  # rounded up
    return units * traits.chunk_unit


def _check_unit(traits: EncoderTraits, chunk_size: int) -> None:
    """Refuse chunk sizes that give more encoder frames when streaming than in one pass, and warn of
    those that give other values.
    """
    unit, divisor = traits.chunk_unit, traits.chunk_divisor
    if chunk_size % divisor:
        raise ValueError(
            f"decoding_chunk_size {chunk_size} is not a multiple of {divisor}, by which the layers "
            f"of this encoder divide the frame rate: use a multiple of {unit}"
        )

    if chunk_size % unit:
        warn_once(
            f"decoding_chunk_size {chunk_size} is not a multiple of {unit}: the attention of this "
            "encoder joins frames across chunks, so streaming gives other values than one pass "
            "with a chunk mask"
        )


def encode_chunks(streams: Sequence[ChunkEncoder]) -> list[torch.Tensor]:
    """Encode the next chunk of each stream -> (1, T', D) each. Chunks of one length run as a batch.

    The frames of a batch differ from those of a stream alone by rounding only.
    """
    # Streams with equal keys run as a batch: those of one encoder, with chunks of one length.
    keys: list[Hashable] = []
    for number, stream in enumerate(streams):
        if stream.encoder.traits.batches_chunks:
            keys.append((id(stream.encoder), stream.next_chunk().size(1)))
        else:
            keys.append(number)  # runs alone

    outputs = [torch.empty(0)] * len(streams)
    for numbers in places_of_equal(keys):
        group_outputs = _encode_group([streams[number] for number in numbers])
        for number, output in zip(numbers, group_outputs, strict=True):
            outputs[number] = output

    return outputs


def places_of_equal(keys: Iterable[Hashable]) -> list[list[int]]:
    """Return, for each key, the places in `keys` that have it: what can run as a batch."""
    places: defaultdict[Hashable, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        places[key].append(place)
    return list(places.values())


def _encode_group(streams: Sequence[ChunkEncoder]) -> list[torch.Tensor]:
    """Encode the next chunk of each stream -> (1, T', D) each; all have one encoder, and chunks of one
    length.
    """
    if len(streams) == 1:
        return [streams[0].encode()]

    frames, caches_of_streams = streams[0].encoder.forward_chunks(
        torch.cat([stream.next_chunk() for stream in streams]),
        [stream.offset for stream in streams],
        [stream.caches for stream in streams],
        [stream.required_cache_size for stream in streams],
    )  # (B, T', D)
    for stream, caches in zip(streams, caches_of_streams, strict=True):
        stream.move_on(frames.size(1), caches)

    # Copies, because a part of the batch would keep the whole batch in memory.
    return [part.clone() for part in frames.split(1)]
