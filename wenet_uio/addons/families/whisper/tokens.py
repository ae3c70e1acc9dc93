"""Special tokens of Whisper: the prompt that tells its decoder the language and the task (Radford
et al. 2022).

The vocabulary is: text, eot, sot, the languages, the other special tokens, and timestamps in steps
of 0.02 s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wenet_uio.config.family import TASKS

if TYPE_CHECKING:
    from wenet_uio.config.text import TokenizerConf

_CODES = """
en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml cy
sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu am yi lo
uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue
"""
LANGUAGES = tuple(_CODES.split())
"""Codes of the languages in the order of their tokens. Models before large-v3 have all but the last
of them."""
ENGLISH_LANGUAGES = 99
"""Languages that have a token in a model that knows English only; it does not use them."""
TEXT_TOKENS, ENGLISH_TEXT_TOKENS = 50257, 50256
"""Number of tokens before eot in multilingual models, and in models that know English only."""
NEMO_TASKS = {"asr": "transcribe", "ast": "translate", "s2t_translation": "translate"}
"""{task of NeMo: task}."""
TIMESTAMP_STEP = 0.02
"""Seconds."""
TIMESTAMPS = 1501
"""Number of timestamps: 0 to 30 s."""
NAMES = (
    "eot",
    "sot",
    "translate",
    "transcribe",
    "sot_prev",
    "no_speech",
    "no_timestamps",
    "timestamp_begin",
)
"""Names in tokenizer_conf.special_tokens, as in WeNet."""


def special_tokens(text_tokens: int, num_languages: int) -> dict[str, int]:
    """Return the ids of NAMES in a vocabulary of OpenAI.

    Args:
        text_tokens: TEXT_TOKENS or ENGLISH_TEXT_TOKENS.
        num_languages: 99, or 100 since large-v3.
    """
    after_languages = text_tokens + 2 + num_languages  # eot and sot come before the languages
    return {
        "eot": text_tokens,
        "sot": text_tokens + 1,
        "translate": after_languages,
        "transcribe": after_languages + 1,
        # after_languages + 2 is <|startoflm|>, which has no name here.
        "sot_prev": after_languages + 3,
        "no_speech": after_languages + 4,
        "no_timestamps": after_languages + 5,
        "timestamp_begin": after_languages + 6,
    }


_HAN = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def text_language(text: str, languages: Sequence[str]) -> str:
    """Return the language of an utterance whose data do not name it, as WeNet finds it.

    Args:
        languages: of the corpus. One language: that of all texts. en and zh: zh for a text with
            Chinese characters. An empty text, such as that of silence, has the first language.

    Raises:
        ValueError: there are other languages to choose from.
    """
    if len(languages) == 1 or not text:
        return languages[0]

    if set(languages) != {"en", "zh"}:
        raise ValueError(
            f"an utterance has no language, and {', '.join(languages)} are possible: add the field "
            "`lang` to the data list, or name one language in "
            "dataset_conf.language_conf.limited_langs"
        )

    return "zh" if _HAN.search(text) else "en"


def requested_prompt(fields: Mapping[str, Any], languages: Sequence[str]) -> tuple[str | None, str]:
    """Return the language and task that the fields of an utterance ask for; None if they state no
    language of the model.

    NeMo's fields are read too: `source_lang`, and `task` as its prompt formats canary and canary2
    spell it. Without a task, another `target_lang` than `source_lang` asks for a translation.

    Args:
        languages: of the model. `lang` need not be one of them, so that a wrong one is noticed.
    """
    source = fields.get("source_lang")
    language = fields.get("lang")
    if not language:
        others = (source, fields.get("language"))
        language = next((str(code) for code in others if str(code) in languages), None)

    task = fields.get("task")
    if not task:
        target = fields.get("target_lang")
        has_two_languages = source and target and source != target
        task = "translate" if has_two_languages else "transcribe"

    return language, NEMO_TASKS.get(task, task)


@dataclass(frozen=True)
class WhisperTokens:
    """The special tokens of one model.

    Raises:
        ValueError: `ids` lacks a name, or the languages do not fit between sot and the other
            tokens.
    """

    ids: Mapping[str, int]
    """Ids of NAMES, as tokenizer_conf.special_tokens has them."""
    num_languages: int
    """The first languages of LANGUAGES that have tokens, from sot + 1 on."""
    multilingual: bool = True
    """False: the model knows English only, and its prompt has neither language nor task."""

    def __post_init__(self) -> None:
        missing = [name for name in NAMES if name not in self.ids]
        if missing:
            raise ValueError(
                f"tokenizer_conf.special_tokens: model whisper needs {', '.join(missing)}; take "
                "tokenizer whisper, or a vocabulary that has them (without --symbol_table, --units)"
            )

        if self.multilingual and not 1 <= self.num_languages <= len(LANGUAGES):
            raise ValueError(
                f"tokenizer_conf.num_languages {self.num_languages}: expected 1 to {len(LANGUAGES)}"
            )

    @classmethod
    def of(cls, conf: TokenizerConf) -> WhisperTokens:
        """Return the special tokens of a config: `special_tokens`, or without this key those of
        OpenAI's vocabulary.

        Raises:
            ValueError: special_tokens lacks a name, or num_languages is impossible.
        """
        if conf.special_tokens is not None:
            return cls(conf.special_tokens, conf.num_languages, conf.is_multilingual)
        if conf.is_multilingual:
            ids = special_tokens(TEXT_TOKENS, conf.num_languages)
            return cls(ids, conf.num_languages)

        ids = special_tokens(ENGLISH_TEXT_TOKENS, ENGLISH_LANGUAGES)
        return cls(ids, ENGLISH_LANGUAGES, multilingual=False)

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes of the languages that the model knows."""
        return LANGUAGES[: self.num_languages] if self.multilingual else ("en",)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks that the model knows."""
        return TASKS if self.multilingual else TASKS[:1]

    @property
    def language_ids(self) -> range:
        """Ids of the languages, in the order of `languages`."""
        first = self.ids["sot"] + 1
        return range(first, first + self.num_languages)

    def prompt(
        self, language: str, task: str = "transcribe", *, timestamps: bool = False
    ) -> tuple[int, ...]:
        """Return the tokens before the text: sot, language, task, no_timestamps.

        Args:
            timestamps: the text has timestamps, so no_timestamps is left out.

        Raises:
            ValueError: the model does not know the language or the task.
        """
        if language not in self.languages:
            raise ValueError(f"language {language!r}: this model knows {', '.join(self.languages)}")
        if task not in self.tasks:
            known = ", ".join(TASKS) if self.multilingual else "transcribe (English only)"
            raise ValueError(f"task {task!r}: this model knows {known}")

        tokens = [self.ids["sot"]]
        if self.multilingual:
            language_id = self.language_ids[self.languages.index(language)]
            tokens += [language_id, self.ids[task]]
        if not timestamps:
            tokens.append(self.ids["no_timestamps"])
        return tuple(tokens)
