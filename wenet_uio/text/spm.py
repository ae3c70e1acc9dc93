"""Train sentencepiece models."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from wenet_uio.base.files import written_aside
from wenet_uio.text.bpe import split_ideographs
from wenet_uio.text.char import is_ideograph, split_symbols

MODEL_TYPES = ("unigram", "bpe", "char", "word")
_THREADS = 8  # fixed, because the number of threads changes rounding and so the model
_TOO_LARGE = re.compile(r"Vocabulary size too high .*<= (\d+)")
_TOO_SMALL = re.compile(r"Vocabulary size is smaller than required_chars\. \d+ vs (\d+)")


@dataclass(frozen=True)
class SentencepieceOptions:
    """Options of the training of a sentencepiece model."""

    vocab_size: int
    """Number of pieces."""
    model_type: str = "unigram"
    """One of MODEL_TYPES."""
    character_coverage: float = 1.0
    """Share of the characters in the text that the model must have as pieces."""
    input_sentence_size: int = 0
    """Train on this number of texts, drawn at random; 0: on all."""
    non_lang_syms: tuple[str, ...] = ()
    """Non-language symbols, which are removed from the texts."""
    seed: int = 777


def train_sentencepiece(
    texts: Iterable[str], model_prefix: str | Path, options: SentencepieceOptions
) -> None:
    """Train on `texts` and write MODEL_PREFIX.model and MODEL_PREFIX.vocab.

    The vocab has a line `piece<tab>log-probability` for each piece.

    Chinese characters and non-language symbols are removed from the texts, because BpeSplitter
    makes them tokens without the model. The same texts, options and seed give the same model.

    Raises:
        ValueError: the texts are empty, or vocab_size is too small or too large for them.
    """
    from sentencepiece import (
        SentencePieceProcessor,
        SentencePieceTrainer,
        set_random_generator_seed,
    )

    runs: list[str] = []
    for text in texts:
        for part, is_symbol in split_symbols(text, options.non_lang_syms):
            if not is_symbol:
                between = [run for run in split_ideographs(part) if not is_ideograph(run)]
                runs += [run.strip() for run in between]

    if not runs:
        raise ValueError(
            "nothing to train a sentencepiece model on: the text is empty or all Chinese characters"
        )

    set_random_generator_seed(options.seed)
    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(runs),
            model_writer=model,
            vocab_size=options.vocab_size,
            model_type=options.model_type,
            character_coverage=options.character_coverage,
            input_sentence_size=options.input_sentence_size,
            num_threads=_THREADS,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise ValueError(_explain_failure(str(error), options.vocab_size)) from None

    trained = SentencePieceProcessor(model_proto=model.getvalue())
    with written_aside(f"{model_prefix}.vocab", "w") as file:
        for unit in range(trained.get_piece_size()):
            file.write(f"{trained.id_to_piece(unit)}\t{trained.get_score(unit):g}\n")
    with written_aside(f"{model_prefix}.model") as file:
        file.write(model.getvalue())


def _explain_failure(message: str, vocab_size: int) -> str:
    """Turn an error message of sentencepiece into advice."""
    too_large = _TOO_LARGE.search(message)
    if too_large:
        return f"vocab_size {vocab_size} is too large for this text: at most {too_large[1]}"

    too_small = _TOO_SMALL.search(message)
    if too_small:
        return (
            f"vocab_size {vocab_size} is too small: the characters of the text alone need "
            f"{too_small[1]}; raise it or lower character_coverage"
        )

    return f"sentencepiece cannot train: {' '.join(message.split())}"
