"""Weights of losses that stand at the top level of the yaml, beside model_conf."""

from __future__ import annotations

from dataclasses import dataclass

from wenet_uio.config import Config


@dataclass(frozen=True)
class LossWeights:
    """Weights that every family has. WeNet has no such keys in its model_conf."""

    text: float = 1.0
    """Of the decoder's loss on text without audio."""
    views: float = 0.0
    """Of the divergence between two views, after its warm-up."""
    inter_ctc: float = 0.0
    """Share of the CTC loss of blocks in the middle of the encoder."""
    ctc_smoothing: float = 0.0
    """Share of the CTC loss that pulls the posteriors towards the uniform distribution."""

    ctc_detach_steps: int = 0
    """Steps in which the gradient of CTC does not reach the encoder."""

    @classmethod
    def of(cls, config: Config) -> LossWeights:
        """Read the weights of a config."""
        return cls(
            text=config.text_weight,
            views=config.cr_loss_scale,
            inter_ctc=config.interctc_weight if config.interctc_layer_idx else 0.0,
            ctc_smoothing=config.ctc_label_smoothing,
            ctc_detach_steps=config.ctc_detach_steps or 0,
        )
