"""Load a model of a hub."""

from __future__ import annotations

import logging
from pathlib import Path

from wenet_uio.api.load import load_model
from wenet_uio.api.recogniser import SpeechRecogniser
from wenet_uio.convert.converted import write_model
from wenet_uio.convert.layouts import LAYOUTS, convert
from wenet_uio.hub.pull import Pulled, is_hub_address, pull
from wenet_uio.run_files import FINAL_WEIGHTS, TRAIN_CONFIG

log = logging.getLogger(__name__)


def from_pretrained(
    name: str,
    *,
    revision: str | None = None,
    device: str = "auto",
    trust_code: bool = False,
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
    folder = usable_folder(pull(name, revision=revision, offline=offline))
    return load_model(folder, device=device, trust_code=trust_code)


def local_model(path: str) -> str:
    """Return the folder of `hf://org/name`, which is downloaded; other paths stay as they are.

    Raises:
        OSError, ValueError: see pull.
    """
    return str(usable_folder(pull(path))) if is_hub_address(path) else path


def usable_folder(pulled: Pulled) -> Path:
    """Return the folder of a model that load_model takes.

    A model of another package is converted once into a folder beside the cache.

    Raises:
        OSError, ValueError: the model cannot be converted.
    """
    log.info(
        "%s: licence %s, from %s at %s",
        pulled.name,
        pulled.licence or "not stated",
        pulled.source,
        pulled.commit,
    )
    if (pulled.folder / TRAIN_CONFIG).is_file():
        return pulled.folder
    if not any(layout.found_at(pulled.folder) for layout in LAYOUTS.values()):
        raise ValueError(
            f"{pulled.name}: neither {TRAIN_CONFIG} nor a model of another package that can be "
            "converted"
        )

    # The layout of the cache is HUB/models--org--name/snapshots/COMMIT.
    hub = pulled.folder.parents[2]
    folder = hub.parent / "wenet_uio" / pulled.name.replace("/", "--") / pulled.commit
    if not (folder / FINAL_WEIGHTS).is_file():
        write_model(convert(pulled.folder), folder)  # the weights are written last

    return folder
