"""Download a model of a hub into the cache of huggingface_hub, and check its files.

The environment variables of huggingface_hub hold: HF_ENDPOINT (a mirror), HF_HOME and HF_HUB_CACHE
(the cache), HF_TOKEN (private models), HF_HUB_OFFLINE.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from wenet_uio.base.files import written_aside
from wenet_uio.base.hub_address import HubAddress, hub_address
from wenet_uio.base.imports import need_extra
from wenet_uio.base.run_files import MODEL_CARD

WEIGHTS = (".pt", ".pth", ".bin", ".safetensors", ".zip", ".onnx")
"""Endings of files that can have weights."""
NOT_PULLED = ("*.msgpack", "*.h5", "*.tflite")
"""Weights of frameworks that are not read here."""
FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)\r?\n---\s", re.DOTALL)
SHA256_DIGITS = 64
SHA1_DIGITS = 40
BLOCK_BYTES = 1 << 20

log = logging.getLogger(__name__)


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
    aside: Path
    """Folder beside the cache for what is made of the model."""


def pull(
    address: str, *, revision: str | None = None, offline: bool = False, compare_all: bool = False
) -> Pulled:
    """Download a model, unless the cache has it; files that are complete stay after an error.

    Args:
        address: `org/name` or `hf://org/name`, each with or without `@revision`.
        revision: branch, tag or commit; default: that of the address, or the main branch. No server
            is asked for a commit that the cache has.
        offline: ask no server; the cache must have the model.
        compare_all: compare all files with their digests. False: those that are new or have changed
            since they were compared.

    Raises:
        OSError: the server cannot be reached, has no such model, or refuses it; or the cache lacks
            the model.
        ValueError: the address has a wrong form, the repository has no weights, a file is not what
            its digest says, or huggingface_hub is missing.
    """
    wanted = hub_address(address, revision)

    need_extra("hub", ("huggingface_hub",))
    # needs the package of this extra
    from huggingface_hub import constants

    log_no_requests()
    folder = _download_snapshot(wanted, offline or constants.HF_HUB_OFFLINE)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    _require_weights(wanted.name, [path.name for path in files])
    hub = folder.parents[2]  # HUB/models--org--name/snapshots/COMMIT
    aside = hub.parent / "wenet_uio" / wanted.name.replace("/", "--")
    check_digests(files, aside / "checked.json", compare_all=compare_all)

    card = folder / MODEL_CARD
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    return Pulled(
        name=wanted.name,
        folder=folder,
        commit=folder.name,
        licence=stated_licence(text),
        source=f"{constants.ENDPOINT}/{wanted.name}",
        aside=aside,
    )


def log_no_requests() -> None:
    """Let the HTTP library of huggingface_hub log no line for each request."""
    for name in ("httpx", "httpx2"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _download_snapshot(wanted: HubAddress, offline: bool) -> Path:
    """Return the folder of a model in the cache, which is named by its commit.

    Raises:
        OSError, ValueError: see pull.
    """
    from huggingface_hub import HfApi, constants, snapshot_download

    try:
        if not (offline or wanted.is_commit):
            info = HfApi().model_info(wanted.name, revision=wanted.revision)
            _require_weights(wanted.name, [entry.rfilename for entry in info.siblings or ()])

        snapshot = snapshot_download(
            wanted.name,
            # The branch keeps its name in the cache, so that it is found offline.
            revision=wanted.revision,
            local_files_only=offline,
            ignore_patterns=list(NOT_PULLED),
        )
    except ValueError:
        raise
    except Exception as error:  # huggingface_hub and its HTTP library have errors of many types
        raise OSError(_why_not_pulled(wanted, offline, constants.ENDPOINT, error)) from None

    return Path(snapshot)


def _require_weights(name: str, files: Iterable[str]) -> None:
    if not any(file.endswith(WEIGHTS) for file in files):
        raise ValueError(f"{name}: the repository has no weights ({', '.join(WEIGHTS)})")


def _why_not_pulled(wanted: HubAddress, offline: bool, endpoint: str, error: Exception) -> str:
    """Return one line that says why a model could not be pulled, and what to do."""
    from huggingface_hub import errors

    name = wanted.name
    if offline:
        return f"{wanted}: not complete in the cache; pull it once while online"
    if isinstance(error, errors.GatedRepoError):
        return f"{name}: its owner grants access on {endpoint}; ask there, then set HF_TOKEN"
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"{name}: no such model on {endpoint}, or it is private and HF_TOKEN is not its token"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{name}: no revision {wanted.revision}"

    reason = " ".join(str(error).split()) or type(error).__name__
    return f"{name}: the download from {endpoint} failed ({reason}); run the same command again"


def stated_licence(card: str) -> str | None:
    """Return the licence that the text of a model card states; None if it states none."""
    return stated_in(card, "license")


def stated_in(card: str, key: str) -> str | None:
    """Return the value of a key of the front matter of a model card; None if it has none."""
    block = FRONT_MATTER.match(card)
    try:
        values: Any = yaml.safe_load(block[1]) if block else None
    except yaml.YAMLError:
        return None

    value = values.get(key) if isinstance(values, dict) else None
    return str(value) if value else None


def check_digests(paths: Iterable[Path], notes: Path, *, compare_all: bool) -> None:
    """Compare files of a snapshot with their digests.

    Args:
        paths: links to blobs.
        notes: json file with {digest: [bytes, time of change, time of the inode's change]} of the
            blobs that were right; it is written anew.
        compare_all: compare blobs of the notes as well.

    Raises:
        ValueError: a file has another digest, and is deleted, so that it is downloaded again; or
            the hub gave no digest.
    """
    noted = {} if compare_all else _read_notes(notes)
    right = dict(noted)

    try:
        for path in paths:
            # HUB/models--org--name/blobs/DIGEST; it can be a link again, to a file with the name of
            # another digest that models share.
            blob = path.parent / path.readlink() if path.is_symlink() else path
            status = blob.stat()
            # A copy can keep the time of change, but not that of the inode.
            state = [status.st_size, status.st_mtime_ns, status.st_ctime_ns]
            if noted.get(blob.name) != state:
                right.pop(blob.name, None)
                _compare_digest(path, blob)
                right[blob.name] = state
    finally:
        if right != noted:
            _write_notes(notes, right)


def _read_notes(notes: Path) -> dict[str, Any]:
    """Return the notes on files that were compared before; empty if they cannot be read."""
    try:
        values = json.loads(notes.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        log.warning("%s cannot be read (%s): all digests are compared", notes, error)
        return {}

    return values if isinstance(values, dict) else {}


def _write_notes(notes: Path, right: dict[str, Any]) -> None:
    try:
        with written_aside(notes, "w") as file:
            json.dump(right, file, indent=0, sort_keys=True)
    except OSError as error:
        reason = error.strerror or error
        log.warning("%s: %s: the digests are compared again at the next start", notes, reason)


def _compare_digest(path: Path, blob: Path) -> None:
    """Compare a file with its digest, which is the name of its blob.

    Raises:
        ValueError: see check_digests.
    """
    expected = blob.name
    if re.fullmatch(rf"[0-9a-f]{{{SHA256_DIGITS}}}", expected):
        digest = hashlib.sha256()
    elif re.fullmatch(rf"[0-9a-f]{{{SHA1_DIGITS}}}", expected):
        start = f"blob {blob.stat().st_size}\0".encode()
        digest = hashlib.sha1(start, usedforsecurity=False)  # that of git
    else:
        raise ValueError(f"{path}: the hub gave no digest of this file, so it cannot be checked")

    with open(blob, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)

    if digest.hexdigest() != expected:
        for damaged in (blob.resolve(), blob, path):
            damaged.unlink(missing_ok=True)
        raise ValueError(f"{path.name}: wrong digest; the file is deleted, pull the model again")
