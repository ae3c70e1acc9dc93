"""Which parts a model has: those that only its family has, their defaults, and parts that it
cannot have.
"""

from __future__ import annotations

from typing import Any

from wenet_uio.config.base import ConfigError
from wenet_uio.config.config import Config
from wenet_uio.config.family import FAMILIES, Family, families, family_of
from wenet_uio.config.model import DECODER_CONFS
from wenet_uio.config.named_code import is_third_party


def with_own_parts(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Add the default predictor and joint of families that have them; refuse these keys for other
    families.

    Raises:
        ConfigError: a part is one of another family.
    """
    family = _named_family(values.get("model"))
    defaults = {} if family is None else family.parts.defaults

    for key in ("predictor", "joint"):
        if key not in defaults:
            _refuse_part(values, key, where)

    stated = {
        key: value for key, value in values.items() if value is not None or key not in defaults
    }
    return {**defaults, **stated}


def _refuse_part(values: dict[str, Any], key: str, where: str) -> None:
    """Raise a ConfigError if the yaml has a part that only other families have."""
    for name in (key, f"{key}_conf"):
        if values.get(name) is not None:
            owners = [family.name for family in families() if key in family.parts.own]
            if not owners:
                raise ConfigError(f"{where}: {name}: no model of this installation has this key")
            raise ConfigError(
                f"{where}: {name}: only a {' or '.join(owners)} has this key; add `model: "
                f"{owners[0]}` or remove it"
            )


def _named_family(name: object) -> Family | None:
    """Return the family that the yaml names; None for an unknown one, which is reported with the
    other problems.
    """
    name = Config.model_fields["model"].default if name is None else name
    known = isinstance(name, str) and (name in FAMILIES or is_third_party(name))
    return family_of(str(name)) if known else None


def check_parts(config: Config, where: str) -> None:
    """Refuse parts that do not work together.

    Raises:
        ConfigError: one line with the part and the possible ones.
    """
    allowed = config.family.parts.allowed
    for key, names in allowed.items():
        if getattr(config, key) not in names:
            known = " or ".join(str(name or "null") for name in names)
            raise ConfigError(
                f"{where}: {key}: {getattr(config, key)}: model {config.model} needs {key}: {known}"
            )

    if config.decoder is None and None not in allowed.get("decoder", ()):
        raise ConfigError(f"{where}: decoder: null: model {config.model} needs a decoder")

    # Looking for the owner loads every family, so a decoder that this one can have is not looked up.
    if config.decoder in (None, *DECODER_CONFS, *config.family.parts.own.get("decoder", {})):
        return

    for other in families():
        if config.decoder in other.parts.own.get("decoder", {}):
            raise ConfigError(
                f"{where}: decoder: {config.decoder}: only model {other.name} has this decoder"
            )
