"""Upload a model to a hub as one commit, so that no reader gets half of it.

The token is that of huggingface_hub: HF_TOKEN, or what `hf auth login` has stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wenet_uio.addons.publish.pull import log_no_requests
from wenet_uio.addons.publish.stage import LOADED, Staged
from wenet_uio.base.hub_address import HubAddress
from wenet_uio.base.imports import need_extra

if TYPE_CHECKING:
    from huggingface_hub import HfApi, ModelInfo

MAIN = "main"


@dataclass(frozen=True)
class Pushed:
    """A model on a hub."""

    source: str
    """Its address there."""
    commit: str
    deleted: tuple[str, ...]
    """Weights and exports of an earlier model that were there."""


def push(
    staged: Staged, address: HubAddress, *, private: bool = False, replace: bool = False
) -> Pushed:
    """Upload a model. Large files that are there with the same digest are not sent again.

    Files that this model does not have stay. Those that load_model would take in its place must be
    deleted.

    Args:
        address: the model, and the branch (default: the main branch); both are made if they are
            missing.
        private: only its owners can read the model.
        replace: delete weights and exports that this model does not have.

    Raises:
        OSError: the server cannot be reached or refuses the upload.
        ValueError: there is no token, the address has a commit, the model is public already, it
            has other weights or exports, or huggingface_hub is missing.
    """
    if address.is_commit:
        raise ValueError(f"{address}: a commit cannot be changed; give a branch")

    need_extra("hub", ("huggingface_hub",))
    # needs the package of this extra
    from huggingface_hub import constants, get_token

    log_no_requests()
    if constants.HF_HUB_OFFLINE:
        raise OSError(f"{address.name}: HF_HUB_OFFLINE is set, so nothing can be uploaded")
    if get_token() is None:
        raise ValueError(
            f"{address.name}: no token: set HF_TOKEN, or call `hf auth login`, with a token that may "
            f"write {address.name}"
        )

    try:
        return _upload_files(staged, address, private, replace)
    except _RefusedError as error:
        raise ValueError(str(error)) from None
    except Exception as error:  # huggingface_hub and its HTTP library have errors of many types
        raise OSError(_why_not_uploaded(address, constants.ENDPOINT, error)) from None


class _RefusedError(Exception):
    """The model on the hub does not allow this upload; the message says why."""


def _upload_files(staged: Staged, address: HubAddress, private: bool, replace: bool) -> Pushed:
    """Upload the staged files in one commit, which also deletes files of another model if
    `replace`.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    api = HfApi()
    before = _open_branch(api, address, private)
    # Files that load_model could take and that are not of this model.
    of_others = [file for file in _file_names(before) if file not in staged.files]
    deleted = tuple(file for file in of_others if file in LOADED)
    if deleted and not replace:
        raise _RefusedError(
            f"{address}: {', '.join(deleted)}: of another model, which could be loaded in place of this "
            "one: --replace deletes them, or give another branch by --revision"
        )

    additions = [CommitOperationAdd(file, str(staged.folder / file)) for file in staged.files]
    deletions = [CommitOperationDelete(file) for file in deleted]
    commit = api.create_commit(
        address.name,
        [*additions, *deletions],
        commit_message="Upload a model of wenet_uio",
        revision=address.revision or MAIN,
        parent_commit=before.sha,
    )

    after = _file_names(api.model_info(address.name, revision=commit.oid))
    missing = [file for file in staged.files if file not in after]
    if missing:
        raise _RefusedError(f"{address}: not uploaded: {', '.join(missing)}; see its .gitignore")

    return Pushed(f"{api.endpoint}/{address.name}", commit.oid, deleted)


def _open_branch(api: HfApi, address: HubAddress, private: bool) -> ModelInfo:
    """Make the model and its branch if they are missing, and return what the branch has."""
    name, branch = address.name, address.revision or MAIN
    api.create_repo(name, private=private or None, exist_ok=True)
    if private and not api.model_info(name).private:
        raise _RefusedError(f"{name}: it is public already; make it private on {api.endpoint}")
    if branch != MAIN:
        api.create_branch(name, branch=branch, exist_ok=True)

    return api.model_info(name, revision=branch)


def _file_names(info: ModelInfo) -> list[str]:
    return [entry.rfilename for entry in info.siblings or ()]


def _why_not_uploaded(address: HubAddress, endpoint: str, error: Exception) -> str:
    """Return one line that says why a model could not be uploaded, and what to do."""
    from huggingface_hub import errors

    name = address.name
    response = getattr(error, "response", None)  # errors of HTTP have one
    status = getattr(response, "status_code", None)
    if status == 401 or isinstance(error, errors.RepositoryNotFoundError):
        return f"{name}: {endpoint} does not accept the token; set HF_TOKEN to a valid one"
    if status == 403:
        return f"{name}: the token may not write this model; use one with the right to write"
    if status == 412:
        return f"{address}: another upload has changed it meanwhile; run the same command again"

    cause = error.__cause__ if isinstance(error, RuntimeError) else None
    reason = " ".join(f"{error} {cause or ''}".split()) or type(error).__name__
    return (
        f"{name}: the upload to {endpoint} failed ({reason}); run the same command again: files that "
        "are there are not sent again"
    )
