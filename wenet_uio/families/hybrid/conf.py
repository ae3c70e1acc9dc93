"""`model_conf` of a model with CTC and attention. Keys and defaults are WeNet's."""

from __future__ import annotations

from pydantic import model_validator

from wenet_uio.config.model import CtcAttentionConf


class ModelConf(CtcAttentionConf):
    """Weights of a model with CTC and attention."""

    apply_non_blank_embedding: bool = False
    """The decoder sees only encoder frames whose best CTC label is not blank, in training and
    rescoring."""

    @model_validator(mode="after")
    def _has_ctc_for_its_blanks(self) -> ModelConf:
        if self.apply_non_blank_embedding and self.ctc_weight == 0:
            raise ValueError(
                "apply_non_blank_embedding: CTC finds the blanks, so ctc_weight must be above 0"
            )
        return self

    @property
    def skips_blanks(self) -> bool:
        """Whether the decoder sees only frames without blank."""
        return self.apply_non_blank_embedding
