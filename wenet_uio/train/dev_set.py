"""Utterances of a validation set, on which several weights of one model are decoded and scored."""

from __future__ import annotations

import hashlib
import logging
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch

from wenet_uio.config import Config
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.formats.data_list import DataType
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.types import Batch
from wenet_uio.models.build import build_with_weights
from wenet_uio.models.speech_model import SpeechModel
from wenet_uio.models.weights import fill_weights
from wenet_uio.scoring.normaliser import load_normaliser, normaliser_for
from wenet_uio.scoring.scores import score
from wenet_uio.scoring.wer import Counts
from wenet_uio.scoring.words import Unit, WordRules
from wenet_uio.search.decode import Search
from wenet_uio.search.modes import usual_mode
from wenet_uio.search.recogniser import Recogniser, resolve_dtype, use_static_batches
from wenet_uio.search.recognition import recognize
from wenet_uio.search.types import DecodeOptions
from wenet_uio.text.tokenizer import build_tokenizer

MOST_UTTERANCES = 200
"""About as many utterances are decoded at most: a minute or two of a CPU core for a small model."""
BATCH_SIZE = 8
"""Utterances of a batch."""
SEED = 1
"""Chooses the utterances of a longer list."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DevSet:
    """A validation set, and how its texts are scored."""

    data_list: str
    data_type: DataType = "raw"
    unit: Unit = "word"
    """What is counted."""
    language: str | None = None
    """ISO 639-1 code: it chooses how texts are normalised, and models that are told a language decode
    with it. None, or several codes with commas: unknown."""


class Errors(NamedTuple):
    """Errors of one model on a validation set."""

    written: Counts
    """Of the texts as they are written."""
    normalised: Counts
    """Of the texts without case, punctuation and other ways of writing."""

    @property
    def total(self) -> int:
        """Errors of both kinds together."""
        return self.written.errors + self.normalised.errors

    def __str__(self) -> str:
        return f"as written {self.written.rate_text} %, normalised {self.normalised.rate_text} %"

    def compared_with(self, start: Errors) -> str:
        """Return the error rates of the start and these, in words."""
        return (
            f"as written {start.written.rate_text} % before, {self.written.rate_text} % after, "
            f"normalised {start.normalised.rate_text} % before, {self.normalised.rate_text} % after"
        )

    def plus(self, other: Errors) -> Errors:
        """Return the errors of these and further utterances."""
        return Errors(self.written + other.written, self.normalised + other.normalised)

    def harms(self, start: Errors) -> bool:
        """Tell whether a model with these errors is worse than the start in one of the two."""
        return (
            self.written.errors > start.written.errors
            or self.normalised.errors > start.normalised.errors
        )


class DevDecoder:
    """Decodes the same utterances of a validation set with several weights of one model."""

    def __init__(self, config: Config, dev: DevSet, *, without_ctc: bool = False) -> None:
        """Choose the utterances and the decode mode.

        Args:
            config: of the run.
            without_ctc: one of the models has no CTC, so that modes with CTC do not count.

        Raises:
            OSError, ValueError: the list cannot be used, or no decode mode is left.
        """
        self.config, self.dev = use_static_batches(config, BATCH_SIZE), dev
        self.mode = _choose_mode(config, without_ctc=without_ctc)
        self.tokenizer = build_tokenizer(config)
        self.loader = build_loader(
            dev.data_list,
            dev.data_type,
            self.config,
            None,  # a search needs no labels
            training=False,
            options=LoaderOptions(rank=0, world_size=1),
        )
        self.normaliser, self.normalise = _choose_normaliser(dev.language)
        self._model: SpeechModel | None = None

    @cached_property
    def batches(self) -> list[Batch]:
        """The utterances with their features: every n-th batch of a list with more than
        MOST_UTTERANCES.
        """
        stride = max(1, math.ceil(self.loader.corpus.num_samples / MOST_UTTERANCES))
        first = random.Random(SEED).randrange(stride)
        batches = self.loader.share(first, stride)
        return [batch for batch in batches if len(batch) and not batch.text_only]

    @cached_property
    def references(self) -> dict[str, str]:
        """{key: text} of the utterances.

        Raises:
            ValueError: there are none.
        """
        texts: dict[str, str] = {}
        for batch in self.batches:
            texts.update(zip(batch.keys, batch.texts, strict=True))
        if not texts:
            raise ValueError(f"{self.dev.data_list}: not one utterance with audio could be read")
        return texts

    def describe(self) -> dict[str, Any]:
        """Return what is decoded, how it is decoded and how it is scored, for records."""
        texts = hashlib.blake2b(repr(self.references).encode(), digest_size=8)
        return {
            "list": self.dev.data_list,
            "utterances": len(self.references),
            "of": self.loader.corpus.num_samples,
            "seed": SEED,
            "texts": texts.hexdigest(),
            "mode": self.mode,
            "language": self.dev.language,
            "unit": self.dev.unit,
            "normaliser": self.normaliser,
        }

    def count_errors(
        self, weights: Mapping[str, torch.Tensor], start: Errors | None = None
    ) -> Errors:
        """Decode the utterances with these weights, and count the errors.

        Args:
            start: errors before fine-tuning. Decoding stops after the batch in which one of the two
                counts is higher: weights that a training has spoilt may repeat words without end,
                which takes long. The counts are then those until there.
        """
        if self._model is None:
            self._model = build_with_weights(self.config, weights, "average")
        else:
            fill_weights(self._model, weights, "average")

        errors = Errors(Counts(), Counts())
        for batch in self.batches:
            errors = errors.plus(self._count_errors_of(batch))
            if start is not None and errors.harms(start):
                break
        return errors

    def _count_errors_of(self, batch: Batch) -> Errors:
        """Decode a batch, and count the errors."""
        texts = self._decode(batch)
        expected = {key: self.references[key] for key in batch.keys}
        rules = WordRules(unit=self.dev.unit)
        written = score(expected, texts, rules).overall

        expected = {key: self.normalise(text) for key, text in expected.items()}
        texts = {key: self.normalise(text) for key, text in texts.items()}
        return Errors(written, score(expected, texts, rules).overall)

    def _decode(self, batch: Batch) -> dict[str, str]:
        """Return {key: recognised text}."""
        assert self._model is not None, "the weights are filled in before"
        recogniser = Recogniser(self.config, self.tokenizer, self._model)
        language = self.dev.language
        is_told_one = "language" in self.config.family.decoding.options
        options = DecodeOptions(language=language if is_told_one and _is_code(language) else None)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        search = Search([self.mode], resolve_dtype(options, self.config, device))
        recognition = recognize(recogniser, [batch], search, device=device)
        return recognition.texts[self.mode]


def _choose_mode(config: Config, *, without_ctc: bool) -> str:
    """Return the usual decode mode of a model.

    Raises:
        ValueError: it has none without CTC.
    """
    decoding = config.family.decoding
    possible: list[str] = []
    for mode in decoding.modes_of_recipes(config.model_conf):
        if not (without_ctc and "ctc_weight" in decoding.modes_by_name[mode].needs):
            possible.append(mode)

    if not possible:
        raise ValueError("no decode mode works without the CTC layer, which is new")
    return usual_mode(config.family, possible)


def _choose_normaliser(language: str | None) -> tuple[str, Callable[[str], str]]:
    """Return the normaliser of a language by name and as a function."""
    name = normaliser_for(language)
    try:
        return name, load_normaliser(name)
    except ValueError as error:  # an optional package
        log.warning("%s; texts lose case and punctuation alone", error)
        return "basic", load_normaliser("basic")


def _is_code(language: str | None) -> bool:
    """Tell whether this is the code of one language."""
    return language is not None and language.isalpha()
