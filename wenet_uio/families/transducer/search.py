"""Decode modes of a transducer."""

from __future__ import annotations

from collections.abc import Sequence

from wenet_uio.families.transducer.model import Transducer
from wenet_uio.families.transducer.rnnt_beam import rnnt_beam_search
from wenet_uio.families.transducer.rnnt_greedy import rnnt_greedy_search
from wenet_uio.search.decoding import Decoding
from wenet_uio.search.modes import refuse_mode
from wenet_uio.search.types import DecodeOptions, NBest


def greedy(batch: Decoding[Transducer]) -> list[NBest]:
    """Decode in the mode rnnt_greedy_search."""
    return rnnt_greedy_search(batch.model, batch.encoder_out, batch.lengths)


def beam(batch: Decoding[Transducer]) -> list[NBest]:
    """Decode in the mode rnnt_beam_search; CTC helps with a transducer_weight below 1."""
    options = batch.options
    log_probs = batch.ctc_log_probs if options.transducer_weight < 1 else None
    return rnnt_beam_search(
        batch.model,
        batch.encoder_out,
        batch.lengths,
        options.beam_size,
        log_probs,
        options.transducer_weight,
        batch.scorers,
    )


def check_search(model: Transducer, modes: Sequence[str], options: DecodeOptions) -> None:
    """Refuse to share the beam search with a CTC that was not trained.

    Raises:
        ValueError: transducer_weight is below 1, and the model was trained with ctc_weight 0.
    """
    if "rnnt_beam_search" in modes and options.transducer_weight < 1 and model.ctc_weight == 0:
        refuse_mode(model, "rnnt_beam_search", "ctc_weight")
