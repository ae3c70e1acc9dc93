"""The units that a new CTC layer learns, if they are those of the training texts."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from wenet_uio.dataset.types import Batch
from wenet_uio.models.ctc import CTC
from wenet_uio.text.labels import Tokenizer
from wenet_uio.text.table import read_table
from wenet_uio.train.engine import Engine

NO_CTC_LOSS = "utterances without a CTC loss: a unit of their text is not in ctc_texts"
"""Says what utterances lack that `without_ctc_loss` finds."""
log = logging.getLogger(__name__)


def use_units_of(texts: str, ctc: CTC, tokenizer: Tokenizer) -> None:
    """Let a CTC layer use only the units of a file of texts (key, then text).

    A layer of a trained model may have used others.

    Raises:
        OSError, ValueError: the file cannot be read, or has no texts.
    """
    units = {unit for text in read_table(texts).values() for unit in tokenizer.tokenize(text)[1]}
    if not units:
        raise ValueError(f"ctc_texts {texts}: no texts in it")

    size, before = ctc.ctc_lo.out_features, ctc.count_used()
    new = ctc.use_only(units)
    log.info("CTC learns %d of %d units, those of %s", len(units), size, texts)
    if new:
        log.info(
            "%d of them are new to the CTC of the model, which used %d; ctc_detach_steps keeps the "
            "gradient of CTC from the encoder while they are learned",
            new,
            before,
        )


def without_ctc_loss(engine: Engine, batches: Sequence[Batch]) -> int:
    """Count the utterances with a unit that CTC does not use, after their losses."""
    if not engine.config.ctc_texts:
        return 0
    return sum(
        int(engine.model.ctc.without_loss(batch.target, batch.target_lengths).sum())
        for batch in batches
        if not batch.text_only
    )


def refuse_unused_units(ctc: CTC) -> None:
    """Raise a ValueError if a CTC layer, whose losses are to be over all units, uses some alone."""
    size, used = ctc.ctc_lo.out_features, ctc.count_used()
    if used < size - 1:  # blank
        raise ValueError(
            f"the CTC of this model learned {used} of {size} units (ctc_texts); the probability of "
            "the others is 0. Name the texts of this training, such as ctc_texts: data/train/text, "
            "or train without CTC (model_conf: {ctc_weight: 0})"
        )
