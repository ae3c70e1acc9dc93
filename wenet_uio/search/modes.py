"""Decode modes: what a model must have for each of them."""

from __future__ import annotations

from collections.abc import Sequence

from wenet_uio.models.asr_model import ASRModel

PARTS = {
    "attention": ("attention_weight",),
    "attention_rescoring": ("ctc_weight", "attention_weight"),
    "ctc_greedy_search": ("ctc_weight",),
    "ctc_prefix_beam_search": ("ctc_weight",),
    "joint_ctc_attention": ("ctc_weight", "attention_weight"),
    "rnnt_beam_search": ("transducer_weight",),
    "rnnt_greedy_search": ("transducer_weight",),
    "paraformer_beam_search": ("parallel_weight",),
    "paraformer_greedy_search": ("parallel_weight",),
}
"""{mode: weights of the model that must be above 0; they are keys of model_conf, except
parallel_weight}."""


def check_modes(modes: Sequence[str]) -> None:
    """Raise a ValueError with the known modes if one of `modes` is unknown, or if `modes` is
    empty.
    """
    unknown = [mode for mode in modes if mode not in PARTS]
    if unknown or not modes:
        raise ValueError(
            f"unknown decode mode {', '.join(unknown) or '(none given)'}; known: {', '.join(PARTS)}"
        )


def possible_modes(model: ASRModel) -> list[str]:
    """Decode modes that `model` is trained for: the weights of all parts that the mode needs are
    above 0.
    """
    return [
        mode for mode, parts in PARTS.items() if all(getattr(model, part) > 0.0 for part in parts)
    ]


def check_parts(model: ASRModel, modes: Sequence[str], transducer_weight: float = 1.0) -> None:
    """Raise a ValueError if `model` is not trained for one of `modes`."""
    for mode in modes:
        parts = PARTS[mode]
        if mode == "rnnt_beam_search" and transducer_weight < 1.0:
            parts = (*parts, "ctc_weight")
        for part in parts:
            if getattr(model, part) == 0.0:
                raise ValueError(
                    f"decode mode {mode}: {_lack(model, part)}; it can do "
                    f"{', '.join(possible_modes(model))}"
                )


def _lack(model: ASRModel, part: str) -> str:
    """Why `model` has no use for a mode that needs `part`."""
    if part == "parallel_weight":
        return "the model is no paraformer"
    if model.parallel_weight and part != "ctc_weight":
        return "the model is a paraformer, whose decoder scores all tokens at once"
    if part == "attention_weight" and model.decoder is None:
        return "the model has no decoder"
    return f"the model was trained with {part} 0"


def usual_mode(possible: Sequence[str], scored: bool = False) -> str:
    """The decode mode of a model that can do `possible` modes, if the user names none.

    Args:
        scored: hot words or a language model are used, which the search of a transducer does not
            know.
    """
    transducer = () if scored else ("rnnt_greedy_search",)
    wanted = ("paraformer_greedy_search", *transducer, "ctc_prefix_beam_search", *possible)
    return next((mode for mode in wanted if mode in possible), "ctc_prefix_beam_search")
