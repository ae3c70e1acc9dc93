"""Keys of a train.yaml for losses beside the usual ones, and for the running average of weights;
all off by default.

They are at the top level of the yaml, because WeNet passes every key of model_conf to its model.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from wenet_uio.config.base import Section


class ModelAvgConf(Section):
    """Running average of the weights, updated while the run trains."""

    interval: Annotated[int, Field(gt=0)] = 100
    """Optimizer steps between two updates."""
    decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The average is exponential: each update multiplies it by `decay` and adds 1 - decay of the
    weights. Null: all updates have equal weight, so that `average_model.py` can average ranges of
    epochs, by default the last five."""
    since: Annotated[int, Field(ge=0)] = 0
    """Optimizer step after which weights count."""

    @model_validator(mode="after")
    def _decay_needs_no_start(self) -> ModelAvgConf:
        if self.decay is not None and self.since:
            raise ValueError(
                "give decay or since, not both: an exponential average forgets its start"
            )
        return self


class RegularisationKeys(Section):
    """Consistency of two views (CR-CTC), label smoothing of CTC, intermediate CTC, and the running
    average.
    """

    cr_loss_scale: float = Field(default=0.0, ge=0)
    """Weight of `loss_cr` in the loss: the divergence between the CTC posteriors of two augmented
    views of each utterance (Yao et al. 2024, https://arxiv.org/abs/2410.05101). 0: one view. The
    paper has 0.2 for CTC alone, and 0.02 beside an attention decoder or a transducer with a CTC
    weight of 0.1."""
    cr_warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Optimizer steps in which the weight of `loss_cr` rises linearly to `cr_loss_scale`."""
    cr_time_mask_ratio: float = Field(default=2.5, gt=0)
    """With two views, spec_aug has this many times `num_t_mask` masks of time."""
    ctc_label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Share of the CTC loss that is the divergence of the posteriors of all frames from the uniform
    distribution (Kim et al. 2018, https://arxiv.org/abs/1711.02212)."""
    ctc_detach_steps: Annotated[int, Field(ge=0)] | None = None
    """Optimizer steps from the start of the run in which the gradient of the CTC loss does not reach
    the encoder, so that a new CTC layer cannot spoil a trained encoder. Null: 0, and all steps of a
    run that starts from a model without trained CTC."""
    ctc_texts: str | None = None
    """File of texts (key, then text): the CTC layer learns only the units of these texts, and the
    others get the probability 0. With tens of thousands of units, CTC costs most of a step
    otherwise. Null: all units."""
    interctc_layer_idx: tuple[Annotated[int, Field(gt=0)], ...] | None = None
    """Encoder blocks, from 1, that get a CTC loss of their own (Lee and Watanabe 2021,
    https://arxiv.org/abs/2102.03216), such as [6] of 12; all but the last are possible. Null:
    none."""
    interctc_weight: float = Field(default=0.3, gt=0, lt=1)
    """Share of the CTC loss that is the mean over these blocks; the last block has the rest."""
    interctc_conditioning: bool = False
    """The block after each of them also sees its CTC posteriors, in decoding too (self-conditioned
    CTC, Nozaki and Komatsu 2021, https://arxiv.org/abs/2104.02724). The weights are
    `encoder.conditioning_layer`. Such a model does not stream, and is exported to ONNX for whole
    utterances only."""
    model_avg: ModelAvgConf | None = None
    """Running average of the weights, saved as running_N.pt beside epoch_N.pt; null: none."""
