"""The switch between exact batches and WeNet's: `mask_padding` of the yaml.

By default the frames of an utterance do not depend on its batch. WeNet lets some layers see the
padding; with `mask_padding: false` they see it here too, for comparisons with its numbers. Layers
that differ have an attribute `masks_padding`.
"""

from __future__ import annotations

from torch import nn


def see_padding(model: nn.Module) -> None:
    """Let all layers of a model see the padding, as WeNet's do."""
    for part in model.modules():
        if "masks_padding" in vars(part):
            vars(part)["masks_padding"] = False
