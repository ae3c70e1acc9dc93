"""The files that a train.yaml names: where they are, and copies of them beside the train.yaml of a
run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wenet_uio.base.files import written_aside
from wenet_uio.config.text import TOKENIZERS, LanguageTokenizerConf

if TYPE_CHECKING:
    from wenet_uio.config.config import Config

NAMED_FILES = {
    ("tokenizer_conf", "symbol_table_path"): "units.txt",
    ("tokenizer_conf", "bpe_path"): "bpe.model",
    ("tokenizer_conf", "seg_dict_path"): "seg_dict",
    ("tokenizer_conf", "model_path"): "tokenizer.json",
    ("tokenizer_conf", "non_lang_syms_path"): "non_lang_syms.txt",
    ("cmvn_conf", "cmvn_file"): "global_cmvn",
}
"""{(section, key) whose value is a path: name of the copy in the folder of a run}; WeNet's models
use these names."""

log = logging.getLogger(__name__)


def locate_files(values: dict[str, Any], yaml_path: Path, *, of_model: bool) -> None:
    """Replace the paths in the values of a yaml by paths that exist; a path that leads nowhere
    stays.

    A path is first looked for relative to the folder of the yaml. Of a model, which may have been
    moved, it is then looked for relative to each folder above, by its name in the folder, and as it
    is. Of a training it is looked for as it is (relative to the working directory), and by its name
    in the folder. The log says which file is taken if the file is neither relative to the yaml nor
    as it is.

    Args:
        values: content of the yaml, changed in place.
        of_model: whether the yaml belongs to a trained model.
    """
    if of_model and values.get("tokenizer") != "aggregate":
        _name_units(values, yaml_path.parent)

    for conf, key, where, usual_name in _names_in(values):
        name = conf[key]
        for place in _candidate_places(name, usual_name, yaml_path.parent, of_model):
            # A tokenizer of Hugging Face may be named by its folder
            if place.is_file() or (place / usual_name).is_file():
                is_as_named = Path(name).exists() and place.samefile(name)
                if place != yaml_path.parent / name and not is_as_named:
                    log.warning("%s: %s.%s %s: %s is taken", yaml_path, where, key, name, place)
                conf[key] = str(place)
                break


class _NamedFile(NamedTuple):
    """A key of a yaml whose value is the name of a file."""

    conf: dict[str, Any]
    """The section, which may be changed in place."""
    key: str
    where: str
    """Path of the section in the yaml."""
    usual_name: str
    """Name of a copy of the file."""


def _names_in(values: dict[str, Any]) -> Iterator[_NamedFile]:
    """Yield the keys of a yaml that name a file."""
    # (where, section, name of its tokenizer, beginning of the names of copies)
    sections = [
        (name, values.get(name), values.get("tokenizer"), "")
        for name in ("tokenizer_conf", "cmvn_conf")
    ]
    for language, conf in _language_sections(values).items():
        tokenizer = conf.get("tokenizer", "sentencepiece") if isinstance(conf, dict) else None
        where = f"tokenizer_conf.languages.{language}"
        sections.append((where, conf, tokenizer, f"{language}."))

    for where, conf, tokenizer, prefix in sections:
        for section, key in NAMED_FILES:
            if not isinstance(conf, dict) or not where.startswith(section):
                continue

            if isinstance(conf.get(key), str) and conf[key]:
                usual_name = prefix + _usual_name(tokenizer, section, key)
                yield _NamedFile(conf, key, where, usual_name)


def _language_sections(values: dict[str, Any]) -> dict[str, Any]:
    conf = values.get("tokenizer_conf")
    languages = conf.get("languages") if isinstance(conf, dict) else None
    return languages if isinstance(languages, dict) else {}


def _name_units(values: dict[str, Any], folder: Path) -> None:
    """Name `units.txt` beside the yaml, in place, if the yaml names no units file, as WeNet's of
    2021 to 2023.
    """
    tokenizer = values.setdefault("tokenizer_conf", {})
    if isinstance(tokenizer, dict) and tokenizer.get("symbol_table_path") is None:
        units = folder / NAMED_FILES["tokenizer_conf", "symbol_table_path"]
        tokenizer["symbol_table_path"] = units.name if units.is_file() else None


def _usual_name(tokenizer: Any, section: str, key: str) -> str:
    """Return the name of the copy of a file; some tokenizers have names of their own."""
    record = TOKENIZERS.get(tokenizer) if isinstance(tokenizer, str) else None
    names = record.copies if record else {}
    return names.get(key, NAMED_FILES[section, key])


def _candidate_places(name: str, usual_name: str, folder: Path, of_model: bool) -> Iterator[Path]:
    """Yield where a file may be that a yaml in `folder` names, the likeliest place first."""
    as_it_is = Path(name)
    yield folder / name
    if of_model:
        yield from (above / name for above in folder.resolve().parents)
    else:
        yield as_it_is

    yield folder / as_it_is.name
    yield folder / usual_name
    yield as_it_is


def copy_files(config: Config, folder: Path) -> Config:
    """Copy the files that the config names into the folder of a run.

    Returns:
        The config with the names of the copies, relative to the folder. The path of a missing file
        stays.

    Raises:
        OSError: a file cannot be copied.
    """
    changes: dict[str, dict[str, Any]] = {}
    for section, key in NAMED_FILES:
        name = _usual_name(config.tokenizer, section, key)
        if _copy_file(getattr(getattr(config, section), key), folder / name):
            changes.setdefault(section, {})[key] = name

    if languages := config.tokenizer_conf.languages:
        copies = {
            language: _copy_language_files(language, conf, folder)
            for language, conf in languages.items()
        }
        changes.setdefault("tokenizer_conf", {})["languages"] = copies

    sections = {
        section: getattr(config, section).model_copy(update=keys)
        for section, keys in changes.items()
    }
    return config.model_copy(update=sections)


def _copy_language_files(
    language: str, conf: LanguageTokenizerConf, folder: Path
) -> LanguageTokenizerConf:
    """Return the section of one language of an aggregate, with the names of the copies."""
    copies: dict[str, str] = {}
    for section, key in NAMED_FILES:
        name = f"{language}.{_usual_name(conf.tokenizer, section, key)}"
        if section == "tokenizer_conf" and _copy_file(getattr(conf, key), folder / name):
            copies[key] = name

    return conf.model_copy(update=copies)


def _copy_file(path: str | None, copy: Path) -> bool:
    """Copy a file, unless it is missing or the copy is the same; whether there is a copy.

    A copy with other contents is kept under another name: weights may belong to it.
    """
    if not path or not Path(path).is_file():
        return False

    content = Path(path).read_bytes()
    if not copy.is_file() or copy.read_bytes() != content:
        if copy.is_file():
            numbered = (copy.with_suffix(f"{copy.suffix}.former-{number}") for number in count(1))
            former = next(name for name in numbered if not name.exists())
            copy.rename(former)
            log.warning("%s has other contents than %s; it is kept as %s", copy, path, former.name)
        with written_aside(copy) as file:
            file.write(content)

    return True


def with_names_of(values: dict[str, Any], former: dict[str, Any]) -> dict[str, Any]:
    """Return a dumped config in which the files that `former` names too have the names there."""
    values = deepcopy(values)
    names = {(named.where, named.key): named.conf[named.key] for named in _names_in(former)}
    for named in _names_in(values):
        named.conf[named.key] = names.get((named.where, named.key), named.conf[named.key])
    return values


def changed_files(config: Config, folder: Path) -> list[str]:
    """Return the files that the config names whose copies in the folder of a run have other
    contents.
    """
    path_by_copy = {
        _usual_name(config.tokenizer, section, key): getattr(getattr(config, section), key)
        for section, key in NAMED_FILES
    }
    for language, conf in (config.tokenizer_conf.languages or {}).items():
        for section, key in NAMED_FILES:
            if section == "tokenizer_conf":
                name = f"{language}.{_usual_name(conf.tokenizer, section, key)}"
                path_by_copy[name] = getattr(conf, key)

    return [
        path
        for name, path in path_by_copy.items()
        if path and Path(path).is_file() and (folder / name).is_file()
        if Path(path).read_bytes() != (folder / name).read_bytes()
    ]
