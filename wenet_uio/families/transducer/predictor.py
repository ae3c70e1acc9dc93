"""Predictors of a transducer: tokens so far -> input of the joint network.

All predictors have the same interface: `start` returns the state before the first token;
`forward(tokens, state)` adds any number of tokens to a state. Training adds all tokens at once,
search adds one at a time. A state is a list of tensors whose first dimension is the hypothesis.
"""

from __future__ import annotations

import torch
from torch import nn

from wenet_uio.families.transducer.conf import (
    ConvPredictorConf,
    EmbeddingPredictorConf,
    PredictorConf,
    RnnPredictorConf,
    WindowPredictorConf,
)
from wenet_uio.models.dropout import Dropout
from wenet_uio.models.layer_parts import ACTIVATIONS

State = list[torch.Tensor]


class Predictor(nn.Module):
    """Base class: the embedding of tokens."""

    def __init__(self, vocab_size: int, conf: PredictorConf) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, conf.embed_size)
        self.embed_dropout = Dropout(conf.embed_dropout)

    def start(self, batch: int) -> State:
        """Return the state of `batch` hypotheses before the first token."""
        raise NotImplementedError

    def forward(self, tokens: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """Add tokens (N, U) to `state` -> outputs (N, U, output_size), the new state."""
        raise NotImplementedError


def lacks_16_bits(x: torch.Tensor) -> bool:
    """Tell whether autocast would give an LSTM a type that oneDNN refuses on this CPU: bf16 needs
    AVX-512, for example.
    """
    if x.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        return False
    if torch.get_autocast_dtype("cpu") != torch.bfloat16:
        return True
    return not torch.ops.mkldnn._is_mkldnn_bf16_supported()


class RnnPredictor(Predictor):
    """LSTM over all tokens so far (Graves 2012)."""

    def __init__(self, vocab_size: int, conf: RnnPredictorConf) -> None:
        super().__init__(vocab_size, conf)
        dropout = conf.dropout if conf.num_layers > 1 else 0.0
        self.rnn = nn.LSTM(
            conf.embed_size,
            conf.hidden_size,
            conf.num_layers,
            conf.bias,
            batch_first=True,
            dropout=dropout,
        )
        self.projection = nn.Linear(conf.hidden_size, conf.output_size)

    def start(self, batch: int) -> State:
        """Return zeros (N, layers, hidden_size) for the hidden state, and the same for the cell
        state.
        """
        shape = (batch, self.rnn.num_layers, self.rnn.hidden_size)
        return [self.embed.weight.new_zeros(shape), self.embed.weight.new_zeros(shape)]

    def forward(self, tokens: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """Add tokens (N, U) to `state` -> outputs (N, U, output_size), the new state."""
        hidden, cell = state[0].transpose(0, 1).contiguous(), state[1].transpose(0, 1).contiguous()
        x = self.embed_dropout(self.embed(tokens))
        # torch documents is_scripting, but torch.jit.__all__ does not list it.
        if torch.jit.is_scripting() or not lacks_16_bits(x):  # pyright: ignore[reportPrivateImportUsage]
            x, (hidden, cell) = self.rnn(x, (hidden, cell))
        else:
            with torch.autocast("cpu", enabled=False):
                x, (hidden, cell) = self.rnn(x.float(), (hidden.float(), cell.float()))

        return self.projection(x), [hidden.transpose(0, 1), cell.transpose(0, 1)]


class WindowPredictor(Predictor):
    """Base class of predictors that see the last tokens; the state has their embeddings."""

    def __init__(self, vocab_size: int, conf: WindowPredictorConf) -> None:
        super().__init__(vocab_size, conf)
        self.window = conf.history_size + 1
        self.norm = nn.LayerNorm(conf.embed_size, eps=conf.layer_norm_epsilon)

    def start(self, batch: int) -> State:
        """Return zeros (N, history_size, embed_size)."""
        return [self.embed.weight.new_zeros(batch, self.window - 1, self.embed.embedding_dim)]

    def forward(self, tokens: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """Add tokens (N, U) to `state` -> outputs (N, U, output_size), the new state."""
        x = torch.cat((state[0], self.embed_dropout(self.embed(tokens))), dim=1)
        return self.look(x), [x[:, x.size(1) - self.window + 1 :]]

    def look(self, x: torch.Tensor) -> torch.Tensor:
        """Look back from each embedding (N, history_size + U, E) -> (N, U, E)."""
        raise NotImplementedError


class EmbeddingPredictor(WindowPredictor):
    """Weighted mean of the last embeddings (Botros et al. 2021, https://arxiv.org/abs/2109.07513).

    The output for a window x_1 .. x_n is the mean over heads h and places c of (x_c . p_hc) x_c,
    with a learned vector p_hc for each head and place. The sum over the heads is computed first, on
    the vectors p.
    """

    def __init__(self, vocab_size: int, conf: EmbeddingPredictorConf) -> None:
        super().__init__(vocab_size, conf)
        self.heads = conf.n_head
        self.pos_embed = nn.Linear(conf.embed_size * self.window, conf.n_head, bias=conf.bias)
        if conf.bias:
            # WeNet's checkpoints contain this bias, but it is not used
            self.pos_embed.bias.requires_grad_(False)

        self.ffn = nn.Linear(conf.embed_size, conf.embed_size)
        self.activation = ACTIVATIONS[conf.activation]()

    def look(self, x: torch.Tensor) -> torch.Tensor:
        """Look back from each embedding x (N, history_size + U, E) -> (N, U, E)."""
        windows = x.unfold(1, self.window, 1)  # (N, U, E, window)
        places = self.pos_embed.weight.view(self.heads, -1, self.window).sum(dim=0)  # (E, window)
        fit = (windows * places).sum(dim=2, keepdim=True)  # (N, U, 1, window)
        mean = (windows * fit).sum(dim=3) / (self.heads * self.window)  # (N, U, E)

        return self.activation(self.norm(self.ffn(mean)))


class ConvPredictor(WindowPredictor):
    """Depthwise convolution over the last embeddings (Ghodsi et al. 2020)."""

    def __init__(self, vocab_size: int, conf: ConvPredictorConf) -> None:
        super().__init__(vocab_size, conf)
        dim = conf.embed_size
        self.conv = nn.Conv1d(dim, dim, self.window, groups=dim, bias=conf.bias)
        self.activation = ACTIVATIONS[conf.activation]()

    def look(self, x: torch.Tensor) -> torch.Tensor:
        """Look back from each embedding x (N, history_size + U, E) -> (N, U, E)."""
        return self.activation(self.norm(self.conv(x.transpose(1, 2)).transpose(1, 2)))


PREDICTORS: dict[str, type[Predictor]] = {
    "rnn": RnnPredictor,
    "embedding": EmbeddingPredictor,
    "conv": ConvPredictor,
}
