"""Choose what a model tells people who do not know what to say, from its development set."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from wenet_uio.addons.listen.examples import MOST_SENTENCES, MOST_WORDS, Examples
from wenet_uio.base.run_files import read_starts
from wenet_uio.config.trust import Trust
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.formats.data_list import DataType
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.scoring.words import WordRules
from wenet_uio.search.decode import Search
from wenet_uio.search.modes import possible_modes, usual_mode
from wenet_uio.search.recogniser import (
    Recogniser,
    load_recogniser,
    resolve_dtype,
    use_static_batches,
)
from wenet_uio.search.recognition import recognize
from wenet_uio.search.types import DecodeOptions
from wenet_uio.text.table import read_table
from wenet_uio.train.distributed import World

BATCH, SHARE = 8, 4
"""Utterances of a batch, and batches of a share of the development set, spread over it."""
MOST_SHARES = 4
"""Shares that are recognised, until there are enough sentences."""
FEWEST_GOOD = 3
"""Sentences; with fewer, less usual ones are taken, too."""
USUAL_WORDS = range(3, 11)
"""Words of a sentence that is easily said."""
COMMON = 3
"""A word that occurs so often is no name of a person that a stranger would stumble at."""
MOST_CHARACTERS = 60
"""Characters of a sentence."""
MOST_COUNTED = 100_000
"""Texts of the training whose words are counted."""
MARKS = frozenset("'’-,?!.，。？！、")
"""Marks of plain sentences."""

_words_of = WordRules("auto")


def choose_examples(
    run: str | Path,
    dev: str | Path,
    *,
    data_type: DataType = "raw",
    languages: Sequence[str] = (),
    device: str = "auto",
    trust_code: Trust = False,
) -> Examples:
    """Choose what the model of a run says of itself.

    Args:
        run: its folder.
        dev: folder with `text` and `data.list` of the development set.
        data_type: of the data list.
        languages: codes of the languages of the model.
        device: auto (a GPU if there is one), cpu, cuda.

    Raises:
        OSError: a file is missing.
        ValueError: the run or a list cannot be used.
    """
    texts = read_table(Path(dev, "text"))
    recogniser = load_recogniser(run, trust_code=trust_code)
    language = languages[0] if len(languages) == 1 else None
    learned = _training_texts(run)
    counted = Counter[str]()
    for text in (*texts.values(), *islice(_lines_of(learned), MOST_COUNTED)):
        counted.update(_words_of(text))

    heard: dict[str, str] = {}
    sentences: list[str] = []
    for share in hear_shares(recogniser, Path(dev, "data.list"), data_type, language, device):
        heard |= share
        right = [
            text
            for key, text in texts.items()
            if key in heard and _words_of(heard[key]) == _words_of(text)
        ]
        sentences = choose_sentences(right, counted)
        if len(sentences) == MOST_SENTENCES:
            break

    return Examples(
        sentences=tuple(sentences),
        words=tuple(few_words(_lines_of(learned))),
        languages=tuple(languages),
    )


def hear_shares(
    recogniser: Recogniser, data_list: Path, data_type: DataType, language: str | None, device: str
) -> Iterator[dict[str, str]]:
    """Recognise a list share by share, and yield {key: text} of each; a share is spread over the
    list.
    """
    loader = build_loader(
        data_list,
        data_type,
        use_static_batches(recogniser.config, BATCH),
        None,
        training=False,
        options=LoaderOptions(rank=0, world_size=1, num_workers=0),
    )
    batches = math.ceil(loader.corpus.num_samples / BATCH)
    shares = max(1, math.ceil(batches / SHARE))

    model, world = recogniser.model, World.from_environment(device)
    mode = usual_mode(model.family, possible_modes(model))
    has_language = "language" in model.family.decoding.options
    options = DecodeOptions(language=language if has_language else None)
    options = resolve_dtype(options, recogniser.config, world.device)
    search = Search([mode], options, [])
    for first in range(min(shares, MOST_SHARES)):
        batches_of_share = loader.share(first, shares)
        recognition = recognize(recogniser, batches_of_share, search, device=world.device)
        yield recognition.texts[mode]


def _training_texts(run: str | Path) -> Path | None:
    """Return the file `text` beside the training list, as recipes have it; None if there is none, or
    if the model knows more words from a training before this one.
    """
    starts = read_starts(run)
    if not starts or any(start.get("from") for start in starts):
        return None

    text = Path(str(starts[-1].get("train_data", {}).get("list", ""))).parent / "text"
    return text if text.is_file() else None


def _lines_of(text: Path | None) -> Iterable[str]:
    """Yield the texts of lines `key text`; none without a file."""
    if text is None:
        return
    with text.open(encoding="utf-8") as lines:
        for line in lines:
            yield from line.split(maxsplit=1)[1:]


def choose_sentences(right: Sequence[str], counted: Counter[str]) -> list[str]:
    """Choose sentences to try, of texts that a model reads right, in the order of the set.

    Args:
        counted: how often each word occurs.
    """
    plain = [text for text in dict.fromkeys(right) if text and is_plain(text)]
    usual = [text for text in plain if len(_words_of(text)) in USUAL_WORDS]
    common = [text for text in usual if all(counted[word] >= COMMON for word in _words_of(text))]
    for texts in (common, usual, plain):
        if len(texts) >= FEWEST_GOOD or texts is plain:
            return _spread(texts)
    return []


def _spread(texts: Sequence[str]) -> list[str]:
    """Choose at most MOST_SENTENCES texts, as far from each other as they can be."""
    count = min(MOST_SENTENCES, len(texts))
    return [texts[(2 * place + 1) * len(texts) // (2 * count)] for place in range(count)]


def is_plain(text: str) -> bool:
    """Tell whether a text is a short sentence of letters, digits and usual marks: no tag, no name of
    a file, no abbreviation.
    """
    letters = text.rstrip(" .").replace(" ", "")
    return (
        len(text) <= MOST_CHARACTERS
        and "." not in letters
        and all(mark in MARKS or unicodedata.category(mark)[0] in "LMN" for mark in letters)
    )


def few_words(texts: Iterable[str]) -> list[str]:
    """Return all words of texts in their order; none if there are more than MOST_WORDS."""
    words: set[str] = set()
    for text in texts:
        words.update(filter(is_plain, text.split()))
        if len(words) > MOST_WORDS:
            return []
    return sorted(words)
