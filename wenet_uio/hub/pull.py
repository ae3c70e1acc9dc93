"""Download a model of a hub into the cache of huggingface_hub, and check its files.

The environment variables of huggingface_hub hold: HF_ENDPOINT (a mirror), HF_HOME and HF_HUB_CACHE
(the cache), HF_TOKEN (private models), HF_HUB_OFFLINE.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from wenet_uio.extras import need_extra

SCHEME = "hf://"
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
WEIGHTS = (".pt", ".pth", ".bin", ".safetensors", ".zip", ".onnx")
"""Endings of files that can have weights."""
NOT_PULLED = ("*.msgpack", "*.h5", "*.tflite")
"""Weights of frameworks that are not read here."""
FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)\r?\n---\s", re.DOTALL)
SHA256_DIGITS = 64
SHA1_DIGITS = 40
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Pulled:
    """A model in the cache."""

    name: str
    folder: Path
    commit: str
    licence: str | None
    """Of the front matter of the model card; None: not stated."""
    source: str
    """Address of the model on its hub."""


def is_hub_address(path: object) -> bool:
    """Tell whether a path is `hf://org/name`."""
    return str(path).startswith(SCHEME)


def pull(address: str, *, revision: str | None = None, offline: bool = False) -> Pulled:
    """Download a model, unless the cache has it; files that are complete stay after an error.

    Args:
        address: `org/name`, or `hf://org/name`.
        revision: branch, tag or commit; default: the main branch.
        offline: ask no server; the cache must have the model.

    Raises:
        OSError: the server cannot be reached, has no such model, or refuses it; or the cache lacks
            the model.
        ValueError: the name has a wrong form, the repository has no weights, a file is not what
            its digest says, or huggingface_hub is missing.
    """
    name = address.removeprefix(SCHEME)
    if not NAME.fullmatch(name):
        raise ValueError(f"{address}: expected a model of the form org/name")

    need_extra("hub", ("huggingface_hub",))
    # needs the package of this extra
    from huggingface_hub import constants

    folder = _download(name, revision, offline or constants.HF_HUB_OFFLINE)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    _require_weights(name, [path.name for path in files])
    for path in files:
        _check_digest(path)

    return Pulled(name, folder, folder.name, _licence(folder), f"{constants.ENDPOINT}/{name}")


def _download(name: str, revision: str | None, offline: bool) -> Path:
    """Return the folder of a model in the cache, which is named by its commit.

    Raises:
        OSError, ValueError: see pull.
    """
    from huggingface_hub import HfApi, constants, snapshot_download

    try:
        if not offline:
            info = HfApi().model_info(name, revision=revision)
            _require_weights(name, [entry.rfilename for entry in info.siblings or ()])
        snapshot = snapshot_download(
            name,
            # The branch keeps its name in the cache, so that it is found offline.
            revision=revision,
            local_files_only=offline,
            ignore_patterns=list(NOT_PULLED),
        )
    except ValueError:
        raise
    except Exception as error:  # huggingface_hub and its HTTP library have errors of many types
        raise OSError(_explained(name, revision, offline, constants.ENDPOINT, error)) from None

    return Path(snapshot)


def _require_weights(name: str, files: Iterable[str]) -> None:
    if not any(file.endswith(WEIGHTS) for file in files):
        raise ValueError(f"{name}: the repository has no weights ({', '.join(WEIGHTS)})")


def _explained(
    name: str, revision: str | None, offline: bool, endpoint: str, error: Exception
) -> str:
    """Return one line that says why a model could not be pulled, and what to do."""
    from huggingface_hub import errors

    version = f" at {revision}" if revision else ""
    if offline:
        return f"{name}{version}: not complete in the cache; pull it once while online"
    if isinstance(error, errors.GatedRepoError):
        return f"{name}: its owner grants access on {endpoint}; ask there, then set HF_TOKEN"
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"{name}: no such model on {endpoint}, or it is private and HF_TOKEN is not its token"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{name}: no revision {revision}"

    reason = " ".join(str(error).split()) or type(error).__name__
    return f"{name}: the download from {endpoint} failed ({reason}); run the same command again"


def _check_digest(path: Path) -> None:
    """Compare a file with its digest, which is the name of the file in the cache that it links to.

    Raises:
        ValueError: the file has another digest; it is deleted, so that it is downloaded again.
    """
    blob = path.resolve()
    expected = blob.name
    size = blob.stat().st_size

    if re.fullmatch(rf"[0-9a-f]{{{SHA256_DIGITS}}}", expected):
        digest = hashlib.sha256()
    elif re.fullmatch(rf"[0-9a-f]{{{SHA1_DIGITS}}}", expected):
        digest = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)  # that of git
    else:
        raise ValueError(f"{path}: the hub gave no digest of this file, so it cannot be checked")

    with open(blob, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)

    if digest.hexdigest() != expected:
        path.unlink()
        blob.unlink(missing_ok=True)
        raise ValueError(f"{path.name}: wrong digest; the file is deleted, pull the model again")


def _licence(folder: Path) -> str | None:
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    block = FRONT_MATTER.match(text)
    try:
        values: Any = yaml.safe_load(block[1]) if block else None
    except yaml.YAMLError:
        return None

    licence = values.get("license") if isinstance(values, dict) else None
    return str(licence) if licence else None
