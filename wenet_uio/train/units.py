"""Whether the units of a model fit the texts that it is to learn, and which units CTC learns."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from wenet_uio.dataset.corpus.base import Corpus, Texts
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.types import Batch, SampleRef
from wenet_uio.models.ctc import CTC
from wenet_uio.text.aggregate import UnknownLanguageError
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer
from wenet_uio.text.table import read_table
from wenet_uio.train.engine import Engine

TEXTS = 200
"""Most samples of a list whose texts are looked at before a training."""
TOLD = 0.02
"""Share of <unk> among the tokens above which a run warns."""
MOST = 0.5
"""Share of <unk> above which units of words end the training of characters."""
SHOWN = 3
"""Tokens that are named."""
log = logging.getLogger(__name__)


def check_units(corpus: Corpus, tokenizer: Tokenizer) -> None:
    """Refuse a training list whose tokens are all <unk>, and characters of texts where the units
    are words: the model would learn nothing. Warn if many tokens are <unk>.

    Texts of remote lists are not looked at: that would fetch their audio. Those of an unknown language,
    and those of a tokenizer without <unk>, are left to the reader.

    Raises:
        ValueError: the units do not fit the texts.
    """
    if corpus.is_remote:
        return

    unknown, total = _unknown_tokens(corpus, tokenizer)
    share = unknown.total() / max(total, 1)
    named = ", ".join(token for token, _ in unknown.most_common(SHOWN))
    long_unit = _long_unit(tokenizer)
    if share > MOST and long_unit:
        raise ValueError(
            f"{corpus.data_list}: texts are cut into characters, such as {named}, but most units are "
            f"longer, such as {long_unit}: set tokenizer_conf.split_with_space if the units are "
            "words, name the tokenizer that made them, or make units of characters"
        )
    if share == 1:
        raise ValueError(
            f"{corpus.data_list}: no token of its texts is a unit of the model, such as {named}: "
            "name the units file and the tokenizer of these texts, or normalise the texts as "
            "those of the model"
        )
    if share > TOLD:
        log.warning(
            "%s: %.0f %% of the tokens are not units of the model, such as %s, and are learned as <unk>: "
            "normalise the texts as those of the model, make units of these texts, or name other units "
            "(--symbol_table, in a recipe --units) that its tokenizer cuts texts into; check_data.py "
            "--config with the train.yaml of the run names the texts",
            corpus.data_list,
            100 * share,
            named,
        )


def _unknown_tokens(corpus: Corpus, tokenizer: Tokenizer) -> tuple[Counter[str], int]:
    """Return the tokens that are <unk> in the texts that are looked at, and the number of all."""
    unknown: Counter[str] = Counter()
    total = 0
    for sample in _spread_texts(corpus):
        try:
            tokenizer_of_sample = tokenizer.of(sample.fields)
        except UnknownLanguageError:
            continue
        if tokenizer_of_sample.unknown is None:
            continue

        for text in sample.texts:
            tokens, ids = tokenizer_of_sample.tokenize(text)
            total += len(ids)
            units = zip(tokens, ids, strict=True)
            unknown.update(token for token, unit in units if unit == tokenizer_of_sample.unknown)

    return unknown, total


def _long_unit(tokenizer: Tokenizer) -> str:
    """Return a unit of several characters, if a tokenizer of characters has mostly such units."""
    splitter = getattr(tokenizer, "splitter", None)
    if not isinstance(splitter, CharSplitter) or splitter.split_with_space:
        return ""

    units = [unit for unit in tokenizer.symbols if not unit.startswith("<")]
    words = [unit for unit in units if len(unit) > 1 and unit not in splitter.non_lang_syms]
    return words[0] if 2 * len(words) > len(units) else ""


def _spread_texts(corpus: Corpus) -> Iterator[Texts]:
    """Yield the texts of TEXTS samples, spread over a list; those that cannot be read are left out."""
    ends = np.cumsum(corpus.samples)
    count = min(TEXTS, corpus.num_samples)
    for place in range(count):
        number = corpus.num_samples * place // count
        shard = int(np.searchsorted(ends, number, side="right"))
        row = number - int(ends[shard] - corpus.samples[shard])
        try:
            yield corpus.texts(SampleRef(shard, row))
        except (ListError, OSError) as error:
            log.debug("%s", error)  # a bad sample, which training counts and names


NO_CTC_LOSS = "utterances without a CTC loss: a unit of their text is not in ctc_texts"
"""Says what utterances lack that `count_without_ctc_loss` counts."""


def use_units_in(texts: str, ctc: CTC, tokenizer: Tokenizer) -> None:
    """Let a CTC layer use only the units of a file of texts (key, then text).

    A layer of a trained model may have used others.

    Raises:
        OSError, ValueError: the file cannot be read, or has no texts.
    """
    units: set[int] = set()
    for text in read_table(texts).values():
        _, ids = tokenizer.tokenize(text)
        units.update(ids)
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


def count_without_ctc_loss(engine: Engine, batches: Sequence[Batch]) -> int:
    """Count the utterances with a unit that CTC does not use, after their losses."""
    if not engine.config.ctc_texts:
        return 0

    count = 0
    for batch in batches:
        if not batch.text_only:
            lacks_loss = engine.model.ctc.lacks_loss(batch.target, batch.target_lengths)
            count += int(lacks_loss.sum())

    return count


def refuse_unused_units(ctc: CTC) -> None:
    """Raise a ValueError if a CTC layer, whose losses are to be over all units, uses some alone."""
    size, used = ctc.ctc_lo.out_features, ctc.count_used()
    if used < size - 1:  # blank
        raise ValueError(
            f"the CTC of this model learned {used} of {size} units (ctc_texts); the probability of "
            "the others is 0. Name the texts of this training, such as ctc_texts: data/train/text, "
            "or train without CTC (model_conf: {ctc_weight: 0})"
        )
