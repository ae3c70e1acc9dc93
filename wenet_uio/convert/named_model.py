"""The model that a command names: a path, or hf://org/name, which an add-on downloads."""

from __future__ import annotations

from wenet_uio.base.hub_address import is_hub_address, named_model, require_no_name
from wenet_uio.config.named_code import Loaded

DOWNLOAD = Loaded("wenet_uio.addons.publish.load:downloaded")
"""`DOWNLOAD(address)` returns the folder of a model of a hub, as load_model takes it."""


def local_model(path: str, revision: str | None = None) -> str:
    """Return the folder of `hf://org/name`, which is downloaded; other paths stay as they are.

    Raises:
        OSError, ValueError: see named_model and require_no_name, or the model cannot be downloaded.
    """
    named = named_model(path, revision)
    if is_hub_address(named):
        return str(DOWNLOAD(named))

    require_no_name(named)
    return named
