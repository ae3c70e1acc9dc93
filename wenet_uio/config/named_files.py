"""The files that a train.yaml names: where they are, and copies of them beside the train.yaml of a
run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from copy import deepcopy
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

    for entry in _file_entries(values):
        name = entry.conf[entry.key]
        for place in _candidate_places(name, entry.usual_name, yaml_path.parent, of_model):
            # A tokenizer of Hugging Face may be named by its folder.
            is_there = place.is_file() or (place / entry.usual_name).is_file()
            if not is_there:
                continue

            is_beside_yaml = place == yaml_path.parent / name
            is_as_named = Path(name).exists() and place.samefile(name)
            if not is_beside_yaml and not is_as_named:
                key = f"{entry.where}.{entry.key}"
                log.warning("%s: %s %s: %s is taken", yaml_path, key, name, place)
            entry.conf[entry.key] = str(place)
            break


class _FileEntry(NamedTuple):
    """A key of a yaml whose value is the name of a file."""

    conf: dict[str, Any]
    """The section, which may be changed in place."""
    key: str
    where: str
    """Path of the section in the yaml."""
    usual_name: str
    """Name of a copy of the file."""


def _file_entries(values: dict[str, Any]) -> Iterator[_FileEntry]:
    """Yield the keys of a yaml that name a file."""
    tokenizer = values.get("tokenizer")
    tokenizer_conf = values.get("tokenizer_conf")
    yield from _section_entries(tokenizer_conf, "tokenizer_conf", tokenizer)
    yield from _section_entries(values.get("cmvn_conf"), "cmvn_conf", tokenizer)

    # An aggregate has a tokenizer for each language; the names of its copies begin with the language.
    languages = tokenizer_conf.get("languages") if isinstance(tokenizer_conf, dict) else None
    if isinstance(languages, dict):
        for language, conf in languages.items():
            kind = conf.get("tokenizer", "sentencepiece") if isinstance(conf, dict) else None
            where = f"tokenizer_conf.languages.{language}"
            yield from _section_entries(conf, where, kind, prefix=f"{language}.")


def _section_entries(
    conf: Any, where: str, tokenizer: Any, *, prefix: str = ""
) -> Iterator[_FileEntry]:
    """Yield the keys of one section that name a file; none if `conf` is no section.

    Args:
        where: path of the section in the yaml.
        tokenizer: name of the tokenizer that the section belongs to.
        prefix: beginning of the names of copies.
    """
    if not isinstance(conf, dict):
        return

    for section, key in NAMED_FILES:
        is_named = isinstance(conf.get(key), str) and conf[key] != ""
        if where.startswith(section) and is_named:
            yield _FileEntry(conf, key, where, prefix + _usual_name(tokenizer, section, key))


def _name_units(values: dict[str, Any], folder: Path) -> None:
    """Name `units.txt` of the yaml's folder in the values of the yaml, in place, if they name no
    units file. The yaml files of WeNet from 2021 to 2023 name none.
    """
    tokenizer = values.setdefault("tokenizer_conf", {})
    if isinstance(tokenizer, dict) and tokenizer.get("symbol_table_path") is None:
        units = folder / NAMED_FILES["tokenizer_conf", "symbol_table_path"]
        tokenizer["symbol_table_path"] = units.name if units.is_file() else None


def _usual_name(tokenizer: Any, section: str, key: str) -> str:
    """Return the name of the copy of a file in the folder of a run; some tokenizers have names of
    their own.
    """
    usual_name = NAMED_FILES[section, key]
    if isinstance(tokenizer, str) and tokenizer in TOKENIZERS:
        return TOKENIZERS[tokenizer].copies.get(key, usual_name)
    return usual_name


def _candidate_places(name: str, usual_name: str, folder: Path, of_model: bool) -> Iterator[Path]:
    """Yield where a file may be that a yaml in `folder` names, the likeliest place first."""
    as_it_is = Path(name)
    yield folder / name
    if of_model:
        for folder_above in folder.resolve().parents:
            yield folder_above / name
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
    changes: dict[str, dict[str, Any]] = {"tokenizer_conf": {}, "cmvn_conf": {}}
    for section, key in NAMED_FILES:
        path = getattr(getattr(config, section), key)
        name = _usual_name(config.tokenizer, section, key)
        if _copy_file(path, folder / name):
            changes[section][key] = name

    languages = config.tokenizer_conf.languages or {}
    if languages:
        changes["tokenizer_conf"]["languages"] = {
            language: _copy_language_files(language, conf, folder)
            for language, conf in languages.items()
        }

    return config.model_copy(
        update={
            "tokenizer_conf": config.tokenizer_conf.model_copy(update=changes["tokenizer_conf"]),
            "cmvn_conf": config.cmvn_conf.model_copy(update=changes["cmvn_conf"]),
        }
    )


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
    """Copy a file to `copy`, unless it is missing or the copy is the same; tell whether there is a
    copy.

    A former copy with other contents is kept under another name: weights may belong to it.
    """
    if not path or not Path(path).is_file():
        return False

    content = Path(path).read_bytes()
    if copy.is_file():
        if copy.read_bytes() == content:
            return True

        number = 1
        while (former := copy.with_suffix(f"{copy.suffix}.former-{number}")).exists():
            number += 1
        copy.rename(former)
        log.warning("%s has other contents than %s; it is kept as %s", copy, path, former.name)

    with written_aside(copy) as file:
        file.write(content)
    return True


def with_names_of(values: dict[str, Any], former: dict[str, Any]) -> dict[str, Any]:
    """Return the dumped config `values`, in which each key that names a file has the value that it
    has in the dumped config `former`, if that names a file too.
    """
    former_names: dict[tuple[str, str], str] = {}
    for entry in _file_entries(former):
        former_names[entry.where, entry.key] = entry.conf[entry.key]

    renamed = deepcopy(values)
    for entry in _file_entries(renamed):
        former_name = former_names.get((entry.where, entry.key))
        if former_name is not None:
            entry.conf[entry.key] = former_name

    return renamed


def changed_files(config: Config, folder: Path) -> list[str]:
    """Return the files that the config names whose copies in the folder of a run have other
    contents.
    """
    languages = config.tokenizer_conf.languages or {}
    path_by_copy: dict[str, str | None] = {}
    for section, key in NAMED_FILES:
        name = _usual_name(config.tokenizer, section, key)
        path_by_copy[name] = getattr(getattr(config, section), key)

    for language, conf in languages.items():
        for section, key in NAMED_FILES:
            if section == "tokenizer_conf":
                name = f"{language}.{_usual_name(conf.tokenizer, section, key)}"
                path_by_copy[name] = getattr(conf, key)

    changed: list[str] = []
    for name, path in path_by_copy.items():
        copy = folder / name
        if not path or not Path(path).is_file() or not copy.is_file():
            continue
        if Path(path).read_bytes() != copy.read_bytes():
            changed.append(path)

    return changed
