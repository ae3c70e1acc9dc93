"""`predictor_conf`, `joint_conf`, and `model_conf` of a transducer. Keys and defaults are
WeNet's.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from wenet_uio.config import Config
from wenet_uio.config.base import NotNegative, Positive, Probability, Section
from wenet_uio.config.encoder import Activation, DropoutRate
from wenet_uio.config.model import HybridConf


class PredictorConf(Section):
    """Keys of every predictor."""

    embed_size: Positive = 256
    """Width of a token's embedding."""
    output_size: Positive = 256
    embed_dropout: DropoutRate = 0.1


class RnnPredictorConf(PredictorConf):
    """A recurrent network over all tokens so far (Graves 2012)."""

    hidden_size: Positive = 256
    num_layers: Positive = 2
    bias: bool = True
    rnn_type: Literal["lstm"] = "lstm"
    """WeNet also accepts the names gru and rnn, but fails on them."""
    dropout: DropoutRate = 0.1
    """Between the layers."""


class WindowPredictorConf(PredictorConf):
    """A predictor that sees only the last few tokens."""

    history_size: NotNegative = 2
    """Number of tokens before the newest token."""
    bias: bool = False
    layer_norm_epsilon: float = Field(default=1e-5, gt=0)

    @model_validator(mode="after")
    def _embedding_has_the_width_of_the_output(self) -> WindowPredictorConf:
        if self.embed_size != self.output_size:
            raise ValueError(
                f"embed_size {self.embed_size} and output_size {self.output_size} must be the same"
            )
        return self


class EmbeddingPredictorConf(WindowPredictorConf):
    """Each embedding is weighted by its product with a learned vector of its position (Botros et
    al. 2021).
    """

    n_head: Positive = 4
    activation: Activation = "swish"


class ConvPredictorConf(WindowPredictorConf):
    """A depthwise convolution over the last tokens (Ghodsi et al. 2020)."""

    activation: Activation = "relu"


class JointConf(Section):
    """Joint network: combines encoder frames and predictor outputs."""

    join_dim: Positive = 512
    enc_output_size: Positive | None = None
    """The encoder's output_size, which is also the default."""
    pred_output_size: Positive | None = None
    """The predictor's output_size, which is also the default."""
    prejoin_linear: bool = True
    """Project both inputs to join_dim before the sum. If false, both inputs must have the width
    join_dim."""
    postjoin_linear: bool = False
    """Apply a linear layer to the sum."""
    joint_mode: Literal["add"] = "add"
    activation: Activation = "tanh"
    hat_joint: bool = False
    """Predict blank separately from the tokens (Variani et al. 2020); needs ctc_blank_id 0."""
    dropout_rate: DropoutRate = 0.1
    """hat_joint only."""
    hat_activation: Activation = "tanh"
    """hat_joint only."""


class TransducerConf(HybridConf):
    """Weights of the three losses; their sum is 1."""

    transducer_weight: Probability = Field(default=1.0, gt=0.0, le=1.0)
    ctc_weight: Probability = 0.0
    attention_weight: Probability = 0.0
    enable_k2: Literal[False] = False
    """The pruned loss of k2 is not available; the next four keys belong to it."""
    delay_penalty: float = 0.0
    warmup_steps: float = 25000
    lm_only_scale: float = 0.25
    am_only_scale: float = 0.0

    @model_validator(mode="after")
    def _weights_sum_to_one(self) -> TransducerConf:
        total = self.transducer_weight + self.ctc_weight + self.attention_weight
        if abs(total - 1) > 1e-6:
            raise ValueError(
                f"transducer_weight + ctc_weight + attention_weight is {total:g}, expected 1"
            )

        return self

    @property
    def decoder_weight(self) -> float:
        """Weight of the attention loss."""
        return self.attention_weight


PREDICTOR_CONFS: dict[str, type[PredictorConf]] = {
    "rnn": RnnPredictorConf,
    "embedding": EmbeddingPredictorConf,
    "conv": ConvPredictorConf,
}
JOINT_CONFS: dict[str, type[JointConf]] = {"transducer_joint": JointConf}


def fill_widths(config: Config, where: str) -> Config:
    """Fill the widths of the joint network, which WeNet requires in the yaml."""
    joint, predictor = config.joint_conf, config.predictor_conf
    assert isinstance(joint, JointConf), "the family has this section"
    assert isinstance(predictor, PredictorConf), "the family has this section"
    widths = {
        "enc_output_size": joint.enc_output_size or config.encoder_conf.output_size,
        "pred_output_size": joint.pred_output_size or predictor.output_size,
    }

    return config.model_copy(update={"joint_conf": joint.model_copy(update=widths)})
