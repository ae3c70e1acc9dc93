"""Records of decode modes: the name, what a model must have for the mode, and its search.

Searches are named, not imported, so that these records load without torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from wenet_uio.config.named_code import Loaded


@dataclass(frozen=True)
class DecodeMode:
    """One way to turn encoder frames into hypotheses."""

    name: str
    """Name on the command line. The name of a mode of another package has a dot."""
    search: Loaded
    """`search(batch)` takes a wenet_uio.search.decode.Decoding and returns the NBest of each
    utterance."""
    needs: tuple[str, ...]
    """Attributes of the model that must be above 0: the weights of the losses that train the
    parts."""
    lack: str = ""
    """Why a model of another family has no such mode. Default: it was trained with a weight of
    0."""
    scored: bool = False
    """Whether the search uses hot words and language models."""


CTC_MODES = tuple(
    DecodeMode(
        name, Loaded(f"wenet_uio.search.shared_modes:{name}"), ("ctc_weight",), scored=scored
    )
    for name, scored in (("ctc_greedy_search", False), ("ctc_prefix_beam_search", True))
)
"""Modes of every model with CTC."""
ATTENTION_CTC_MODES = (
    DecodeMode(
        "attention", Loaded("wenet_uio.search.shared_modes:attention"), ("attention_weight",)
    ),
    DecodeMode(
        "attention_rescoring",
        Loaded("wenet_uio.search.shared_modes:attention_rescoring"),
        ("ctc_weight", "attention_weight"),
        scored=True,
    ),
    *CTC_MODES,
    DecodeMode(
        "joint_ctc_attention",
        Loaded("wenet_uio.search.shared_modes:joint_ctc_attention"),
        ("ctc_weight", "attention_weight"),
    ),
)
"""Modes of every model with CTC and an attention decoder."""
RECIPE_MODES = (
    "ctc_greedy_search",
    "ctc_prefix_beam_search",
    "attention",
    "attention_rescoring",
)
"""Modes of a recipe with such a model, if it names none."""
