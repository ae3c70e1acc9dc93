"""Load a model of a hub."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from wenet_uio.addons.publish.pull import Pulled, pull
from wenet_uio.base.hub_address import hub_address
from wenet_uio.base.run_files import FINAL_WEIGHTS, TRAIN_CONFIG
from wenet_uio.config.trust import Trust
from wenet_uio.models.converted import write_model
from wenet_uio.train.trained_model import convert_model, layouts

if TYPE_CHECKING:
    from wenet_uio.addons.listen.recogniser import SpeechRecogniser

log = logging.getLogger(__name__)


def from_pretrained(
    name: str,
    *,
    revision: str | None = None,
    device: str = "auto",
    trust_code: Trust = False,
    offline: bool = False,
) -> SpeechRecogniser:
    """Download a model, unless the cache has it, and load it.

        recogniser = wenet_uio.from_pretrained("org/name")

    Args:
        name: `org/name` on the hub.
        revision: branch, tag or commit; default: the main branch.
        device: see load_model.
        trust_code: run the operators that the train.yaml names, which can be any code.
        offline: ask no server; the cache must have the model.

    Raises:
        OSError, ValueError: see pull and load_model.
    """
    from wenet_uio.addons.listen.load import load_model

    folder = usable_folder(pull(name, revision=revision, offline=offline))
    return load_model(folder, device=device, trust_code=trust_code)


def downloaded(address: str) -> Path:
    """Return the folder of `hf://org/name`, as load_model takes it.

    Raises:
        OSError, ValueError: see pull.
    """
    return usable_folder(pull(address))


def model_to_train(address: str, commit: str | None = None) -> Pulled:
    """Download the model that a training starts from.

    Args:
        address: `hf://org/name`, with or without `@revision`.
        commit: what another rank took for the revision.

    Raises:
        OSError, ValueError: see pull.
    """
    hub = hub_address(address)
    pulled = pull(hub.name, revision=commit or hub.revision)
    _log_licence(pulled)
    return pulled


def usable_folder(pulled: Pulled) -> Path:
    """Return the folder of a model that load_model takes.

    A model of another package is converted once into a folder beside the cache.

    Raises:
        OSError, ValueError: the model cannot be converted.
    """
    _log_licence(pulled)
    if (pulled.folder / TRAIN_CONFIG).is_file():
        return pulled.folder
    if not any(layout.found_at(pulled.folder) for layout in layouts().values()):
        raise ValueError(
            f"{pulled.name}: neither {TRAIN_CONFIG} nor a model of another package that can be "
            "converted"
        )

    folder = pulled.aside / pulled.commit
    if not (folder / FINAL_WEIGHTS).is_file():
        write_model(convert_model(pulled.folder), folder)  # the weights are written last

    return folder


def _log_licence(pulled: Pulled) -> None:
    licence = pulled.licence or "not stated"
    log.info("%s: licence %s, from %s at %s", pulled.name, licence, pulled.source, pulled.commit)
