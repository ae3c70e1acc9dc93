"""Tokenizer: a splitter (text <-> tokens) and a symbol table (tokens <-> ids)."""

from __future__ import annotations

import hashlib
import operator
import re
import reprlib
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from random import Random
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from wenet_uio.text.sampling import Sampling
from wenet_uio.text.symbols import BLANK, SOS_EOS, UNKNOWN

_NO_ID = -1
"""Stands for the id of a token outside a symbol table that has no <unk>."""
MOST_BYTES = 4
"""Bytes of a character in UTF-8."""
Role = Literal["text", "source"]
"""Which text of a pair: the second, or the first. A sample with one text has the role `text`."""
_UNSPACED = (
    "\u3005-\u3007\u3040-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\uff66-\uff9f"  # kana, zhuyin
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # ideographs
    "\ua000-\ua48c"  # Yi
    "\u0e01-\u0eff"  # Thai, Lao
    "\u0f00-\u0fff"  # Tibetan
    "\u1000-\u109f\ua9e0-\ua9fe\uaa60-\uaa7f"  # Burmese, Shan, Karen
    "\u1780-\u17f9"  # Khmer
    "\u1950-\u19df\u1a20-\u1aad\uaa80-\uaadf"  # scripts of the Tai languages
    "\u1b00-\u1b7f\ua980-\ua9df"  # Balinese, Javanese
)
_HAS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_CONTINUES = re.compile(
    "[ぁぃぅぇぉっゃゅょゎゕゖゝゞァィゥェォッャュョヮヵヶㇰ-ㇿーヽヾｧ-ｰﾞﾟ"
    "ะาำๅๆฯະາຳຽໆຯ\u19b0-\u19b4\u19b8-\u19b9\u19bb-\u19c0\u19c8-\u19c9]"
)
"""Letters that belong to the letter before: small kana and long vowels; vowels that Thai, Lao and
Tai Lue write after their consonant; signs of repetition."""
_JOINS_NEXT = re.compile("[เแโใไເແໂໃໄ\u19b5-\u19b7\u19ba\uaab5\uaab6\uaab9\uaabb\uaabc]")
"""Vowels that are written before their consonant."""
_STACKS_NEXT = frozenset("\u17d2\u1039\u1a60\ua9c0\u1b44\u200d")
"""Signs that put the next consonant below the one before: coeng, virama, and the joiner."""


class OwnUnits(ABC):
    """A splitter whose file has a symbol table too, so that it needs no units file."""

    path_key: ClassVar[str] = "model_path"
    """Key of tokenizer_conf with the path of the file."""
    exact_length = False
    path: str

    @property
    @abstractmethod
    def symbols(self) -> dict[str, int]:
        """{token: id} of the whole vocabulary."""

    @abstractmethod
    def __call__(self, text: str) -> list[str]:
        """Cut a text into tokens."""

    @abstractmethod
    def starts_word(self, previous: str, token: str) -> bool:
        """Tell whether `token` starts a new word after `previous`."""

    @abstractmethod
    def join(self, tokens: Sequence[str]) -> str:
        """Return the text of the tokens."""

    @abstractmethod
    def identity(self) -> bytes:
        """Return bytes that differ between splitters that may cut a text differently."""


class Splitter(Protocol):
    """Cuts text into tokens and joins tokens to text."""

    @property
    def exact_length(self) -> bool:
        """Whether every text has as many tokens as `text.strip()` has characters."""
        ...

    def __call__(self, text: str) -> list[str]:
        """Cut a text into tokens."""
        ...

    def starts_word(self, previous: str, token: str) -> bool:
        """Tell whether `token` starts a new word after `previous`, a token or the word so far."""
        ...

    def join(self, tokens: Sequence[str]) -> str:
        """Return the text of the tokens."""
        ...

    def identity(self) -> bytes:
        """Return bytes that differ between splitters that may cut a text differently."""
        ...


@runtime_checkable
class Samples(Protocol):
    """A splitter whose pieces can be drawn at random."""

    sampling: Sampling | None

    def sampled(self, text: str, random: Random) -> list[str]:
        """Cut a text into tokens, with pieces that are drawn."""
        ...


class Tokenizer:
    """Converts text to label ids, and label ids to text."""

    def __init__(self, splitter: Splitter, symbols: dict[str, int], unknown: str = UNKNOWN) -> None:
        self.splitter = splitter
        self.symbols = symbols
        self.vocab_size = max(symbols.values()) + 1
        self._unknown = symbols.get(unknown, _NO_ID)
        self._symbol_of = {unit: symbol for symbol, unit in symbols.items()}
        # A vocabulary that was not made for CTC has no blank.
        lacks_blank = isinstance(splitter, OwnUnits) and BLANK not in symbols
        names = (BLANK, SOS_EOS) if lacks_blank else ()
        self.added = {name: unit for unit, name in enumerate(names, self.vocab_size)}
        """Ids that a model adds after the tokens. They have no text, yet a decoder can say them."""
        self._symbol_of |= {unit: name for name, unit in self.added.items()}

    @property
    def unknown(self) -> int | None:
        """The id of <unk>; None if there is none."""
        return None if self._unknown == _NO_ID else self._unknown

    @property
    def exact_length(self) -> bool:
        """Whether every text has as many tokens as `text.strip()` has characters."""
        return self.splitter.exact_length

    @cached_property
    def digest(self) -> str:
        """Digest of the splitter.

        It changes when texts may be cut differently, but not with the units file.
        """
        return hashlib.blake2b(self.identity(), digest_size=8).hexdigest()

    def identity(self) -> bytes:
        """Return bytes that differ between tokenizers that may cut a text differently."""
        return self.splitter.identity()

    def of(self, fields: Mapping[str, Any], role: Role = "text") -> Tokenizer:
        """Return the tokenizer for a text of a sample with these fields: this one."""
        return self

    def with_tags(self, tags: Mapping[str, Any]) -> Tokenizer:
        """Return the tokenizer for samples on which a source sets these fields: this one."""
        return self

    @cached_property
    def samples(self) -> bool:
        """Whether `tokenize` draws pieces if it is given a generator.

        Then texts have no fixed number of tokens.
        """
        return isinstance(self.splitter, Samples) and self.splitter.sampling is not None

    def tokenize(self, text: str, random: Random | None = None) -> tuple[list[str], list[int]]:
        """Cut `text` into tokens and look up their ids.

        Args:
            random: draws the pieces of a tokenizer with `sample_alpha`; None: the best pieces, as
                in evaluation.

        Raises:
            ValueError: the symbol table has neither a token nor <unk>.
        """
        splitter = self.splitter
        if random is not None and isinstance(splitter, Samples) and splitter.sampling is not None:
            tokens = splitter.sampled(text, random)
        else:
            tokens = splitter(text)

        ids = [self.symbols.get(token, self._unknown) for token in tokens]
        if _NO_ID in ids:
            token = tokens[ids.index(_NO_ID)]
            raise ValueError(
                f"{token!r} of text {text!r} is not a unit, and the units file has no {UNKNOWN}"
            )

        return tokens, ids

    def spellings(self, phrase: str) -> list[list[str]]:
        """Return the tokens of a phrase at the start of a text and, if they differ, after a space.

        They can differ in published vocabularies alone.
        """
        at_start = self.splitter(phrase)
        if not isinstance(self.splitter, OwnUnits):
            return [at_start]

        after_space = self.splitter(f"a {phrase}")[len(self.splitter("a")) :]
        return [at_start] if after_space == at_start else [at_start, after_space]

    def detokenize(self, ids: Iterable[int]) -> str:
        """Return the text of label ids.

        Raises:
            ValueError: an id is not in the symbol table.
        """
        return self._join_tokens([self.symbol(unit) for unit in ids])

    def _join_tokens(self, tokens: Sequence[str]) -> str:
        """Return the text of tokens, without those that the model added."""
        return self.splitter.join([token for token in tokens if token not in self.added])

    def symbol(self, unit: int) -> str:
        """Return the token of a label id.

        Raises:
            ValueError: the id is not in the symbol table.
        """
        try:
            return self._symbol_of[unit]
        except KeyError:
            raise ValueError(
                f"id {unit} has no symbol; the largest id is {self.vocab_size - 1}"
            ) from None

    def words(self, ids: Sequence[int]) -> list[tuple[str, int, int]]:
        """Group label ids into words: (text, index of the first id, index after the last id).

        Spaces are no words. Where a script writes no spaces, each character is one, or each token
        of several characters.
        """
        tokens = [self.symbol(unit) for unit in ids]
        starts: list[int] = []
        word = ""

        for index, token in enumerate(tokens):
            if index == 0 or self.splitter.starts_word(word, token):
                starts.append(index)
                word = ""
            word += token

        words: list[tuple[str, int, int]] = []
        for first, last in pairwise([*starts, len(tokens)]):
            word = self._join_tokens(tokens[first:last])
            if has_unspaced(word):
                words += self._cut_at_characters(word, tokens, first, last)
            elif word:
                words.append((word, first, last))

        return words

    def _cut_at_characters(
        self, word: str, tokens: Sequence[str], first: int, last: int
    ) -> list[tuple[str, int, int]]:
        """Cut a word, tokens `first` up to `last`, between characters.

        Returns:
            (text, index of its first token, index after its last token) of each part.
        """
        starts = [first]
        texts = [""]
        for index in range(first, last):
            texts[-1] = self._join_tokens(tokens[starts[-1] : index + 1])
            # A token of bytes may end within a character, which has MOST_BYTES at most.
            is_whole = "\ufffd" not in texts[-1] or index + 1 - starts[-1] >= MOST_BYTES
            if is_whole and index + 1 < last:
                starts.append(index + 1)
                texts.append("")

        if "".join(texts) != word:  # the text of a token depends on its neighbours
            return [(word, first, last)]

        cuts = [*starts_of_characters(texts), len(texts)]
        edges = [*starts, last]
        parts: list[tuple[str, int, int]] = []
        for begin, end in pairwise(cuts):
            parts.append(("".join(texts[begin:end]), edges[begin], edges[end]))
        return parts


class CallableTokenizer:
    """A function from a text to label ids in the place of a Tokenizer, for loops of other packages."""

    exact_length = False
    samples = False

    def __init__(self, function: Callable[[str], Iterable[int]]) -> None:
        self.function = function

    @property
    def digest(self) -> str:
        """A function has no digest, so counts of its tokens cannot be kept.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "dataset_conf counts tokens before planning (batch_tokens, max_tps or min_tps), which "
            "needs a Tokenizer of wenet_uio.text; give build_tokenizer(config), or remove these "
            "keys"
        )

    def of(self, fields: Mapping[str, Any], role: Role = "text") -> CallableTokenizer:
        """Return the tokenizer for a text of a sample with these fields: this one."""
        return self

    def with_tags(self, tags: Mapping[str, Any]) -> CallableTokenizer:
        """Return the tokenizer for samples on which a source sets these fields: this one."""
        return self

    def tokenize(self, text: str, random: Random | None = None) -> tuple[list[str], list[int]]:
        """Return no tokens, and the ids of a text.

        Raises:
            ValueError: the function returns something else than whole numbers.
        """
        labels = self.function(text)
        try:
            return [], [operator.index(unit) for unit in labels]
        except TypeError:
            raise ValueError(
                f"the tokenizer function returns {reprlib.repr(labels)} for {reprlib.repr(text)}: "
                "expected label ids, whole numbers. For a tokenizer of transformers: lambda text: "
                "tokenizer(text).input_ids"
            ) from None


AnyTokenizer = Tokenizer | CallableTokenizer


def has_unspaced(text: str) -> bool:
    """Tell whether a text has a letter of a script that writes no space between words."""
    return not text.isascii() and _HAS_UNSPACED.search(text) is not None


def starts_character(before: str, after: str) -> bool:
    """Tell whether a text may be cut between two neighbouring parts.

    It may beside a letter of an unspaced script, unless the part after begins with a mark, a
    small letter or a punctuation mark that belongs to the part before.
    """
    last, first = before[-1:], after[:1]
    if not (has_unspaced(_last_letter(before)) or has_unspaced(first)):
        return False

    category = unicodedata.category(first)
    if category in ("Ps", "Pi"):  # an opening bracket or quotation mark
        return True
    is_letter_number_or_symbol = category[0] in "LNS"
    if not is_letter_number_or_symbol or _CONTINUES.match(first):
        return False

    opens = unicodedata.category(last) in ("Ps", "Pi")
    return not (opens or last in _STACKS_NEXT or _JOINS_NEXT.match(last))


def starts_of_characters(parts: Sequence[str]) -> list[int]:
    """Return the indexes of the parts of a text at which a character begins.

    The first part begins one. Parts may be empty, such as that of a token without text.
    """
    starts: list[int] = []
    previous = ""  # the last part that is not empty
    for index, part in enumerate(parts):
        if index == 0 or (previous and part and starts_character(previous, part)):
            starts.append(index)
        previous = part or previous

    return starts


def _last_letter(text: str) -> str:
    """Return the last letter of a text, without the marks and punctuation after it."""
    return next((char for char in reversed(text) if unicodedata.category(char)[0] in "LN"), "")
