"""Which chunks a model can decode in: a limit of its training, for a checkpoint and its exports."""

from __future__ import annotations

from wenet_uio.models.encoder_traits import EncoderTraits


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
