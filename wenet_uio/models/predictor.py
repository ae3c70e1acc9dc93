"""Predictors of a transducer: tokens so far -> what the joint network is told of them.

All have one interface: `start` gives the state before any token, and `forward(tokens, state)` goes on from a state by
any number of tokens, all of them in training and one in search. States are tensors with the hypotheses first.
"""

from __future__ import annotations

import torch
from torch import nn

from wenet_uio.config.transducer import (
    ConvPredictorConf,
    EmbeddingPredictorConf,
    PredictorConf,
    RnnPredictorConf,
    WindowPredictorConf,
)
from wenet_uio.models.activation import ACTIVATIONS

State = list[torch.Tensor]


class Predictor(nn.Module):
    """Embeds the tokens."""

    def __init__(self, vocab_size: int, conf: PredictorConf) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, conf.embed_size)
        self.embed_dropout = nn.Dropout(conf.embed_dropout)

    def start(self, batch: int) -> State:
        """The state before any token, of `batch` hypotheses."""
        raise NotImplementedError

    def forward(self, tokens: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """tokens (N, U), behind those of `state` -> (N, U, output_size), the state with them."""
        raise NotImplementedError


class RnnPredictor(Predictor):
    """Graves 2012."""

    def __init__(self, vocab_size: int, conf: RnnPredictorConf) -> None:
        super().__init__(vocab_size, conf)
        dropout = conf.dropout if conf.num_layers > 1 else 0.0
        self.rnn = nn.LSTM(
            conf.embed_size, conf.hidden_size, conf.num_layers, conf.bias, batch_first=True, dropout=dropout
        )
        self.projection = nn.Linear(conf.hidden_size, conf.output_size)

    def start(self, batch: int) -> State:
        """Zeros (N, layers, hidden_size), for output and for cell."""
        return [self.embed.weight.new_zeros(batch, self.rnn.num_layers, self.rnn.hidden_size) for _ in range(2)]

    def forward(self, tokens: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """See Predictor."""
        hidden, cell = (part.transpose(0, 1).contiguous() for part in state)
        x, (hidden, cell) = self.rnn(self.embed_dropout(self.embed(tokens)), (hidden, cell))
        return self.projection(x), [hidden.transpose(0, 1), cell.transpose(0, 1)]


class WindowPredictor(Predictor):
    """Sees a window of tokens; its state is their embeddings."""

    def __init__(self, vocab_size: int, conf: WindowPredictorConf) -> None:
        super().__init__(vocab_size, conf)
        self.window = conf.history_size + 1
        self.norm = nn.LayerNorm(conf.embed_size, eps=conf.layer_norm_epsilon)

    def start(self, batch: int) -> State:
        """Zeros (N, history_size, embed_size)."""
        return [self.embed.weight.new_zeros(batch, self.window - 1, self.embed.embedding_dim)]

    def forward(self, tokens: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """See Predictor."""
        x = torch.cat((state[0], self.embed_dropout(self.embed(tokens))), dim=1)
        return self.look(x), [x[:, x.size(1) - self.window + 1 :]]

    def look(self, x: torch.Tensor) -> torch.Tensor:
        """Embeddings (N, history_size + U, E) -> (N, U, E)."""
        raise NotImplementedError


class EmbeddingPredictor(WindowPredictor):
    """Botros et al. 2021, https://arxiv.org/abs/2109.07513.

    Of a window x_1 .. x_n the output is the mean over heads and places of (x_c . p_hc) x_c, p being a vector for each
    head and place. The heads are added before, which makes them one.
    """

    def __init__(self, vocab_size: int, conf: EmbeddingPredictorConf) -> None:
        super().__init__(vocab_size, conf)
        self.heads = conf.n_head
        self.pos_embed = nn.Linear(conf.embed_size * self.window, conf.n_head, bias=conf.bias)
        if conf.bias:
            self.pos_embed.bias.requires_grad_(False)  # checkpoints have it, nothing uses it
        self.ffn = nn.Linear(conf.embed_size, conf.embed_size)
        self.activation = ACTIVATIONS[conf.activation]()

    def look(self, x: torch.Tensor) -> torch.Tensor:
        """See WindowPredictor."""
        windows = x.unfold(1, self.window, 1)  # (N, U, E, window)
        places = self.pos_embed.weight.view(self.heads, -1, self.window).sum(dim=0)
        fit = (windows * places).sum(dim=2, keepdim=True)
        mean = (windows * fit).sum(dim=3) / (self.heads * self.window)
        return self.activation(self.norm(self.ffn(mean)))


class ConvPredictor(WindowPredictor):
    """Ghodsi et al. 2020, with a depthwise convolution."""

    def __init__(self, vocab_size: int, conf: ConvPredictorConf) -> None:
        super().__init__(vocab_size, conf)
        dim = conf.embed_size
        self.conv = nn.Conv1d(dim, dim, self.window, groups=dim, bias=conf.bias)
        self.activation = ACTIVATIONS[conf.activation]()

    def look(self, x: torch.Tensor) -> torch.Tensor:
        """See WindowPredictor."""
        return self.activation(self.norm(self.conv(x.transpose(1, 2)).transpose(1, 2)))


PREDICTORS: dict[str, type[Predictor]] = {
    "rnn": RnnPredictor,
    "embedding": EmbeddingPredictor,
    "conv": ConvPredictor,
}
