"""What the rest of the package may ask of an encoder."""

from __future__ import annotations

from dataclasses import dataclass

from wenet_uio.config.encoder import EncoderConf

SEES_FUTURE = "this model's convolution sees future frames; train with causal: true"


@dataclass(frozen=True)
class EncoderTraits:
    """Sizes and limits of an encoder, computed once from its config."""

    output_size: int
    """Width of the encoder frames."""
    width: int
    """Width of the layers."""
    layers: int
    """Number of layers, or of stacks of layers."""
    heads: int
    """Heads of keys and values, as caches hold them."""
    head_dim: int
    """Width of a head."""
    cnn_cache_frames: int = 0
    """A layer's convolutions keep (B, width, cnn_cache_frames) between chunks."""
    reduction: int = 1
    """Factor by which the layers lower the frame rate."""

    dynamic_chunks: bool = False
    """Trained with chunks of random size."""
    dynamic_left_chunks: bool = False
    """Trained with a random number of chunks to the left, too."""
    static_chunk_size: int = 0
    """Trained with chunks of this many frames; 0: no fixed size."""
    chunk_unit: int = 1
    """Streaming equals one pass for chunks of a multiple of this many input layer frames."""
    chunk_divisor: int = 1
    """Chunks of streams must be a multiple of this many input layer frames."""
    traced_chunk_unit: int = 1
    """Chunks of a traced graph must be a multiple of this many input layer frames: a trace cannot
    skip layers that a chunk has no frames for."""
    batches_chunks: bool = True
    """Chunks of several streams can be encoded together."""

    obstacle: str = ""
    """Why streaming differs from one pass with a chunk mask; empty: the model can stream."""
    never_streams: bool = False
    """The obstacle is in the architecture: no training removes it."""
    export_obstacle: str = ""
    """Why WeNet's runtime cannot run the encoder; empty: it can."""

    @property
    def trained_in_chunks(self) -> bool:
        """Whether the model can decode in chunks of a limited size."""
        return self.dynamic_chunks or self.static_chunk_size > 0

    @property
    def att_cache_shape(self) -> tuple[int, int]:
        """Heads, and width of keys and values side by side."""
        return self.heads, 2 * self.head_dim

    @property
    def cnn_cache_shape(self) -> tuple[int, int]:
        """Channels and frames that a layer's convolutions keep."""
        return self.width, self.cnn_cache_frames


def traits_of(conf: EncoderConf) -> EncoderTraits:
    """Return the traits of a plain stack of layers; encoders replace what differs."""
    return EncoderTraits(
        output_size=conf.output_size,
        width=conf.output_size,
        layers=conf.num_blocks,
        heads=conf.key_heads,
        head_dim=conf.head_dim or conf.output_size // conf.attention_heads,
        dynamic_chunks=conf.use_dynamic_chunk,
        dynamic_left_chunks=conf.use_dynamic_left_chunk,
        static_chunk_size=conf.static_chunk_size,
    )


def check_decoding_chunk(traits: EncoderTraits, decoding_chunk_size: int) -> None:
    """Refuse a size of the chunks for which the encoder was not trained.

    Args:
        decoding_chunk_size: encoder frames of a chunk; below 0: full context.

    Raises:
        ValueError: the size is 0, or the model was trained with full context only.
    """
    if decoding_chunk_size == 0:
        raise ValueError(
            "decoding_chunk_size 0: expected -1 (full context) or a number of encoder frames"
        )

    if decoding_chunk_size > 0 and not traits.trained_in_chunks:
        raise ValueError(
            f"decoding_chunk_size {decoding_chunk_size}: this model was trained with full "
            "context only; "
            "use -1, or train with use_dynamic_chunk"
        )
