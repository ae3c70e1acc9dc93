"""The units that a new CTC layer learns, if they are those of the training texts."""

from __future__ import annotations

import logging

from wenet_uio.models.ctc import CTC
from wenet_uio.text.labels import Tokenizer
from wenet_uio.text.table import read_table

log = logging.getLogger(__name__)


def use_units_of(texts: str, ctc: CTC, tokenizer: Tokenizer) -> None:
    """Let a CTC layer use only the units of a file of texts (key, then text).

    Raises:
        OSError, ValueError: the file cannot be read, or has no texts.
    """
    units = {unit for text in read_table(texts).values() for unit in tokenizer.tokenize(text)[1]}
    if not units:
        raise ValueError(f"ctc_texts {texts}: no texts in it")

    ctc.use_only(units)
    log.info("CTC learns %d of %d units, those of %s", len(units), ctc.ctc_lo.out_features, texts)
