"""Tell which decode modes a model can do, and why it cannot do another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from wenet_uio.config.decode_modes import ATTENTION_CTC_MODES, DecodeMode
from wenet_uio.config.family import PROMPT_OPTIONS, Family, families
from wenet_uio.models.interfaces import DecodingModel
from wenet_uio.search.types import DecodeOptions

MODES = tuple(mode.name for mode in ATTENTION_CTC_MODES)
"""Names of the modes of models with CTC and an attention decoder."""


def known_modes() -> dict[str, DecodeMode]:
    """Return {name: mode} of all families of this package."""
    return {mode.name: mode for family in families() for mode in family.decoding.modes}


def scored_modes() -> list[str]:
    """Return the modes of this package that use hot words and language models."""
    return [mode.name for mode in known_modes().values() if mode.scored]


def check_modes(modes: Sequence[str], family: Family | None = None) -> None:
    """Check that there are modes, and that all are known.

    Args:
        family: of the model. Without it, names with a dot pass: they are modes of other packages.
    """
    known = known_modes()
    if family is not None:
        known |= family.decoding.modes_by_name

    unknown = [mode for mode in modes if mode not in known]
    if family is None:
        unknown = [mode for mode in unknown if "." not in mode]
    if unknown or not modes:
        raise ValueError(
            f"unknown decode mode {', '.join(unknown) or '(none given)'}; known: {', '.join(known)}"
        )


def possible_modes(model: DecodingModel) -> list[str]:
    """Return the decode modes that `model` is trained for.

    The weights in the loss of all parts that such a mode needs are above 0.
    """
    modes = model.family.decoding.modes
    return [mode.name for mode in modes if not _untrained_weights(model, mode)]


def _untrained_weights(model: DecodingModel, mode: DecodeMode) -> list[str]:
    """Return the weights that the mode needs and that are 0."""
    return [weight for weight in mode.needs if getattr(model, weight, 0.0) == 0.0]


def check_parts(model: DecodingModel, modes: Sequence[str]) -> None:
    """Raise a ValueError if `model` is not trained for one of `modes`."""
    check_family(model, modes)
    for name in modes:
        untrained = _untrained_weights(model, model.family.decoding.modes_by_name[name])
        if untrained:
            refuse_mode(model, name, untrained[0])


def check_family(model: DecodingModel, modes: Sequence[str]) -> None:
    """Raise a ValueError if one of `modes` is no mode of the family of `model`."""
    check_modes(modes, model.family)
    for name in modes:
        if name not in model.family.decoding.modes_by_name:
            mode = known_modes()[name]
            # The reason is what the model does not have at all. Other families have CTC, too.
            lacking = [name for name in _untrained_weights(model, mode) if name != "ctc_weight"]
            refuse_mode(model, mode.name, lacking[0] if lacking else mode.needs[0])


def refuse_mode(model: DecodingModel, mode: str, weight: str) -> NoReturn:
    """Say why `model` cannot decode in `mode`.

    Args:
        weight: the weight that the mode needs and that is 0.

    Raises:
        ValueError: always.
    """
    rules = model.family.decoding
    reason = rules.lacks.get(weight, "")
    if mode not in rules.modes_by_name:
        reason = reason or known_modes()[mode].lack

    raise ValueError(
        f"decode mode {mode}: {reason or f'the model was trained with {weight} 0'}; it can do "
        f"{', '.join(possible_modes(model))}"
    )


def check_options(family: Family, options: DecodeOptions) -> None:
    """Refuse PROMPT_OPTIONS that models of this family do not have.

    Raises:
        ValueError: an option is set that only another family has. The message names that family, and
            all its options that this family lacks.
    """
    default = DecodeOptions()
    set_options = set()
    for name in PROMPT_OPTIONS:
        if getattr(options, name) not in (None, "", False, getattr(default, name)):
            set_options.add(name)

    # If several other families have an option, the first of them is named.
    known_options = set(family.decoding.options)
    for other_family in families():
        lacking = [name for name in other_family.decoding.options if name not in known_options]
        if set_options.intersection(lacking):
            *first, last = lacking
            are_options = (
                f"{', '.join(first)} and {last} are options" if first else f"{last} is an option"
            )
            raise ValueError(f"{are_options} of models {other_family.name}; this model is another")
        known_options.update(lacking)


def usual_mode(family: Family, possible: Sequence[str], scored: bool = False) -> str:
    """Return the decode mode of a model that can do `possible` modes, if the user names none.

    Args:
        scored: hot words or a language model are used, which some searches do not know.
    """
    usual = family.decoding.usual_scored_mode if scored else family.decoding.usual_mode
    if usual in possible:
        return usual
    if "ctc_prefix_beam_search" in possible or not possible:
        return "ctc_prefix_beam_search"
    return possible[0]
