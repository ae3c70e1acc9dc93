"""Special tokens of a Whisper in a folder of Hugging Face, by all files that name them: the size of its
vocabulary does not tell them, since somebody may have added tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wenet_uio.addons.families.whisper.tokenizer import (
    NO_CAPTIONS,
    NO_SPEECH,
    SOT,
    expected_ids,
    special_token_names,
)
from wenet_uio.addons.families.whisper.tokens import (
    ENGLISH_LANGUAGES,
    ENGLISH_TEXT_TOKENS,
    LANGUAGES,
    TEXT_TOKENS,
)
from wenet_uio.addons.families.whisper.vocabulary_file import (
    EOT,
    OtherToken,
    WhisperVocabulary,
    read_vocabulary,
    write_tokenizer_json,
)
from wenet_uio.models.converted import read_json

GENERATION = "generation_config.json"
TOKENIZER = "tokenizer.json"
VOCABULARY = "vocab.json"
JSON_VOCABULARIES = (TOKENIZER, VOCABULARY)
ADDED = "added_tokens.json"
TOKENIZER_CONFIG = "tokenizer_config.json"


@dataclass(frozen=True)
class ModelTokens:
    """The tokens of a model."""

    is_multilingual: bool
    """False: the model knows English only."""
    num_languages: int
    """Languages that have a token."""
    count: int
    """Tokens with a name: byte pairs, special and added tokens."""
    tokenizer_json: str | None = None
    """Content of a vocabulary with the added tokens; None if the folder has it in one file, or
    nothing was added."""


def read_folder_tokens(folder: Path) -> ModelTokens | None:
    """Return the tokens of a model; None if no file names its special tokens.

    Raises:
        OSError: a file cannot be read.
        ValueError: the files contradict each other, or have another order than Whisper's.
    """
    tokens, file_by_token = _compare_files(folder)
    if SOT not in tokens or EOT not in tokens:
        return None

    eot = tokens[EOT].id
    if eot not in (ENGLISH_TEXT_TOKENS, TEXT_TOKENS):
        raise ValueError(
            f"{folder}: {EOT} has the id {eot} in {file_by_token[EOT]}; a Whisper has {TEXT_TOKENS}, "
            f"or {ENGLISH_TEXT_TOKENS} if it knows English only"
        )

    num_languages = _count_languages(tokens, eot)
    is_multilingual = eot == TEXT_TOKENS
    stated = _read_if_there(folder / GENERATION).get("is_multilingual")
    if stated is not None and bool(stated) != is_multilingual:
        kind = "multilingual" if is_multilingual else "English only"
        raise ValueError(
            f"{folder}: {GENERATION} has is_multilingual {str(stated).lower()}, but "
            f"{file_by_token[EOT]} has {EOT} with the id {eot}, as models that are {kind}"
        )

    by_id = dict(sorted(tokens.items(), key=lambda item: item[1]))
    expected = expected_ids(by_id, eot, num_languages)
    for name, token in by_id.items():
        if token.id != expected[name]:
            raise ValueError(
                f"{folder}: {name} has the id {token.id} in {file_by_token[name]}; in a Whisper "
                f"with {num_languages} languages it has {expected[name]}"
            )

    special = special_token_names(num_languages)
    added = {name: token for name, token in by_id.items() if name not in special}
    content = _join_files(folder, added) if added else None
    return ModelTokens(is_multilingual, num_languages, eot + len(expected), content)


def _compare_files(folder: Path) -> tuple[dict[str, OtherToken], dict[str, str]]:
    """Return {name: token} of special and added tokens, and {name: the first file that has it}.

    Raises:
        OSError: a file cannot be read.
        ValueError: two files have another id for a token.
    """
    tokens: dict[str, OtherToken] = {}
    file_by_token: dict[str, str] = {}
    for file, name, token in _tokens_by_file(folder):
        name = NO_SPEECH if name == NO_CAPTIONS else name
        if name not in tokens:
            tokens[name], file_by_token[name] = token, file
        elif token.id != tokens[name].id:
            raise ValueError(
                f"{folder}: {name} has the id {tokens[name].id} in {file_by_token[name]}, and "
                f"{token.id} in {file}; take all files from the same model"
            )
    return tokens, file_by_token


def _tokens_by_file(folder: Path) -> Iterator[tuple[str, str, OtherToken]]:
    """Yield (file, name, token) of all tokens that are no byte pairs."""
    for file in JSON_VOCABULARIES:
        if (folder / file).is_file():
            for name, token in read_vocabulary(folder / file).others.items():
                yield file, name, token

    described = _read_if_there(folder / TOKENIZER_CONFIG).get("added_tokens_decoder")
    for token_id, entry in _mapping(folder / TOKENIZER_CONFIG, described).items():
        name, is_special = entry.get("content"), bool(entry.get("special"))
        yield TOKENIZER_CONFIG, str(name), OtherToken(int(token_id), is_special)

    for name, token_id in _read_if_there(folder / ADDED).items():
        is_special = name.startswith("<|") and name.endswith("|>")
        yield ADDED, name, OtherToken(_number(folder / ADDED, token_id), is_special)

    for name, token_id in _generation_ids(folder / GENERATION).items():
        yield GENERATION, name, OtherToken(token_id, is_special=True)


def _generation_ids(path: Path) -> dict[str, int]:
    """Return the ids of special tokens in generation_config.json, by the names of the tokens."""
    values = _read_if_there(path)
    ids = dict(_mapping(path, values.get("lang_to_id")))
    for task, token_id in _mapping(path, values.get("task_to_id")).items():
        ids[f"<|{task}|>"] = token_id

    names = {"no_timestamps_token_id": "<|notimestamps|>", "prev_sot_token_id": "<|startofprev|>"}
    if not values.get("_from_model_config"):  # else these are defaults of a class
        names |= {"eos_token_id": EOT, "decoder_start_token_id": SOT}
    for key, name in names.items():
        if isinstance(values.get(key), int):
            ids[name] = values[key]

    return {name: _number(path, token_id) for name, token_id in ids.items()}


def _count_languages(tokens: Mapping[str, OtherToken], eot: int) -> int:
    """Return the number of languages that have a token: those named, else what is between the tokens
    around them.
    """
    named = [place for place, code in enumerate(LANGUAGES, 1) if f"<|{code}|>" in tokens]
    if named:
        return max(named)

    last = "<|notimestamps|>"
    if last in tokens:
        without_languages = special_token_names(0)
        return tokens[last].id - eot - without_languages.index(last)
    return ENGLISH_LANGUAGES


def _join_files(folder: Path, added: Mapping[str, OtherToken]) -> str | None:
    """Return the vocabulary of a folder with the added tokens in one content; None if one of its files
    has it so, or there is none.
    """
    path = next((folder / name for name in JSON_VOCABULARIES if (folder / name).is_file()), None)
    if path is None:
        return None

    vocabulary = read_vocabulary(path)
    if added.keys() <= vocabulary.others.keys():
        return None
    return write_tokenizer_json(WhisperVocabulary(vocabulary.ranks, dict(added)))


def _read_if_there(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _mapping(path: Path, value: object) -> dict[str, Any]:
    """Return a value of a file that is a JSON object, or missing."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected an object with names, found {type(value).__name__}")
    return value


def _number(path: Path, value: object) -> int:
    if not isinstance(value, int):
        raise ValueError(f"{path}: expected the number of a token, found {value!r}")
    return value
