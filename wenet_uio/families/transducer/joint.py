"""Joint network of a transducer: encoder frame and predictor output -> scores of the next token or
blank.
"""

from __future__ import annotations

import torch
from torch import nn

from wenet_uio.families.transducer.conf import JointConf
from wenet_uio.models.dropout import Dropout
from wenet_uio.models.layer_parts import ACTIVATIONS


class TransducerJoint(nn.Module):
    """Additive joint network (Graves 2012); with hat_joint, the factorised network of Variani et
    al. 2020.

    Raises:
        ValueError: `conf` contradicts the widths of encoder and predictor.
    """

    def __init__(
        self, vocab_size: int, encoder_dim: int, predictor_dim: int, conf: JointConf
    ) -> None:
        super().__init__()
        dim = conf.join_dim
        self.vocab_size = vocab_size

        for name, configured, width in (
            ("enc_output_size", conf.enc_output_size, encoder_dim),
            ("pred_output_size", conf.pred_output_size, predictor_dim),
        ):
            if configured not in (None, width):
                raise ValueError(
                    f"joint_conf.{name} is {configured}, but the width is {width}; remove the key"
                )

        if not conf.prejoin_linear and not encoder_dim == predictor_dim == dim:
            raise ValueError(
                f"joint_conf.prejoin_linear false needs equal widths, found encoder {encoder_dim}, "
                f"predictor {predictor_dim}, join_dim {dim}"
            )

        self.enc_ffn = nn.Linear(encoder_dim, dim) if conf.prejoin_linear else nn.Identity()
        self.pred_ffn = nn.Linear(predictor_dim, dim) if conf.prejoin_linear else nn.Identity()
        self.post_ffn = nn.Linear(dim, dim) if conf.postjoin_linear else nn.Identity()
        self.hat_joint = conf.hat_joint

        if conf.hat_joint:
            dropout = Dropout(conf.dropout_rate)
            self.blank_pred = nn.Sequential(nn.Tanh(), dropout, nn.Linear(dim, 1))
            activation = ACTIVATIONS[conf.hat_activation]()
            self.token_pred = nn.Sequential(activation, dropout, nn.Linear(dim, vocab_size - 1))
        else:
            self.activation = ACTIVATIONS[conf.activation]()
            self.ffn_out = nn.Linear(dim, vocab_size)

    def forward(self, encoder_out: torch.Tensor, predictor_out: torch.Tensor) -> torch.Tensor:
        """Compute logits (..., V) of encoder frames (..., E) and predictor outputs (..., P),
        broadcast to each other.
        """
        x = self.post_ffn(self.enc_ffn(encoder_out) + self.pred_ffn(predictor_out))
        if not self.hat_joint:
            return self.ffn_out(self.activation(x))

        blank, tokens = self.blank_pred(x), self.token_pred(x)
        if tokens.dtype in (torch.float16, torch.bfloat16):
            # Log-probabilities need more than 16 bits.
            blank, tokens = blank.float(), tokens.float()

        tokens = tokens.log_softmax(dim=-1) + nn.functional.logsigmoid(-blank)
        return torch.cat((nn.functional.logsigmoid(blank), tokens), dim=-1)
