"""`predictor_conf`, `joint_conf`, and `model_conf` of a transducer. Keys and defaults are WeNet's."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from wenet_uio.config.base import Section
from wenet_uio.config.encoder import Activation, DropoutRate, NotNegative, Positive, Probability
from wenet_uio.config.model import HybridConf


class PredictorConf(Section):
    """What every predictor has."""

    embed_size: Positive = 256
    """Width of a token."""
    output_size: Positive = 256
    embed_dropout: DropoutRate = 0.1


class RnnPredictorConf(PredictorConf):
    """A recurrent network over all tokens so far (Graves 2012)."""

    hidden_size: Positive = 256
    num_layers: Positive = 2
    bias: bool = True
    rnn_type: Literal["lstm"] = "lstm"
    """WeNet names gru and rnn too, which fail there."""
    dropout: DropoutRate = 0.1
    """Between the layers."""


class WindowPredictorConf(PredictorConf):
    """A predictor that sees the last tokens alone."""

    history_size: NotNegative = 2
    """Tokens seen beside the newest."""
    bias: bool = False
    layer_norm_epsilon: float = Field(1e-5, gt=0)

    @model_validator(mode="after")
    def _widths_are_one(self) -> WindowPredictorConf:
        if self.embed_size != self.output_size:
            raise ValueError(f"embed_size {self.embed_size} and output_size {self.output_size} must be the same")
        return self


class EmbeddingPredictorConf(WindowPredictorConf):
    """Each token weighs as much as it fits to its place (Botros et al. 2021)."""

    n_head: Positive = 4
    activation: Activation = "swish"


class ConvPredictorConf(WindowPredictorConf):
    """A depthwise convolution over the last tokens (Ghodsi et al. 2020)."""

    activation: Activation = "relu"


class JointConf(Section):
    """How encoder frames and tokens meet."""

    join_dim: Positive = 512
    enc_output_size: Positive | None = None
    """The encoder's output_size; derived where absent."""
    pred_output_size: Positive | None = None
    """The predictor's output_size; derived where absent."""
    prejoin_linear: bool = True
    """Project both to join_dim before they are added; without it both must have this width."""
    postjoin_linear: bool = False
    """A linear layer behind the sum."""
    joint_mode: Literal["add"] = "add"
    activation: Activation = "tanh"
    hat_joint: bool = False
    """Blank or not is decided on its own (Variani et al. 2020); blank must then be token 0."""
    dropout_rate: DropoutRate = 0.1
    """Of hat_joint."""
    hat_activation: Activation = "tanh"


class TransducerConf(HybridConf):
    """Shares of the three losses; their sum is 1."""

    transducer_weight: Probability = Field(1.0, gt=0.0, le=1.0)
    ctc_weight: Probability = 0.0
    attention_weight: Probability = 0.0
    enable_k2: Literal[False] = False
    """k2's pruned loss is not here."""

    @model_validator(mode="after")
    def _shares_add_up(self) -> TransducerConf:
        total = self.transducer_weight + self.ctc_weight + self.attention_weight
        if abs(total - 1) > 1e-6:
            raise ValueError(f"transducer_weight + ctc_weight + attention_weight is {total:g}, expected 1")
        return self


PREDICTOR_CONFS: dict[str, type[PredictorConf]] = {
    "rnn": RnnPredictorConf,
    "embedding": EmbeddingPredictorConf,
    "conv": ConvPredictorConf,
}
JOINT_CONFS: dict[str, type[JointConf]] = {"transducer_joint": JointConf}
