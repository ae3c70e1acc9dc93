"""Convolution module of the Zipformer, also for chunks that see no frames after them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import pad

from wenet_uio.addons.encoders.zipformer.modules import scaled_linear, swoosh_r
from wenet_uio.addons.encoders.zipformer.regularisers import Balancer, Whitener
from wenet_uio.models.clock import Clock, Schedule


class ChunkConvolution(nn.Module):
    """Depthwise convolution: causal over all frames, plus one within each chunk, scaled near the
    edges of the chunk.
    """

    def __init__(self, dim: int, kernel: int) -> None:
        super().__init__()
        self.causal_conv = nn.Conv1d(dim, dim, (kernel + 1) // 2, groups=dim)
        self.chunkwise_conv = nn.Conv1d(dim, dim, kernel, groups=dim, padding=kernel // 2)
        self.chunkwise_conv_scale = nn.Parameter(torch.zeros(2, dim, kernel))
        self.kernel = kernel

    def forward(
        self,
        x: torch.Tensor,
        chunk_size: int,
        lengths: torch.Tensor | None,
        past: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Convolve x (B, D, T).

        Args:
            chunk_size: frames of a chunk; negative: each utterance is one chunk.
            lengths: (B,) frames of each utterance, after which x is 0; None: T.
            past: (B, D, kernel // 2) frames before x; None: zeros.

        Returns:
            (B, D, T), and the past for the next frames.
        """
        size = x.size(2)
        before = x.new_zeros(x.size(0), x.size(1), self.kernel // 2) if past is None else past
        with_past = torch.cat((before, x), dim=2)  # (B, D, kernel // 2 + T)
        causal = self.causal_conv(with_past)  # (B, D, T)

        if chunk_size < 0:
            if lengths is None:
                lengths = torch.full((1,), size, device=x.device)
            within = self.chunkwise_conv(x) * self.scale(size, lengths)
        else:
            # Each chunk is convolved alone, as a row of a batch: zeros fill the last one up.
            missing = (chunk_size - size % chunk_size) % chunk_size
            chunks = pad(x, (0, missing)).unflatten(2, (-1, chunk_size))  # (B, D, chunks, chunk)
            chunks = self.chunkwise_conv(chunks.transpose(1, 2).flatten(0, 1))
            chunks = chunks * self.scale(chunk_size, torch.full((1,), chunk_size, device=x.device))

            # (B * chunks, D, chunk) -> (B, D, T)
            chunks = chunks.unflatten(0, (x.size(0), -1)).transpose(1, 2)
            within = chunks.flatten(2)[:, :, :size]

        return causal + within, with_past[:, :, with_past.size(2) - self.kernel // 2 :]

    def scale(self, size: int, lengths: torch.Tensor) -> torch.Tensor:
        """Return scales (B, D, size) of the frames of chunks that end after `lengths` (B,) frames."""
        left_edge, right_edge = self.chunkwise_conv_scale[0], self.chunkwise_conv_scale[1]
        scale = 1.0 + pad(left_edge, (0, size))[:, :size].unsqueeze(0)

        # (B, size): the index of each frame in the right edge, which are the last frames of a chunk.
        frame = torch.arange(size, device=lengths.device).unsqueeze(0)
        index = frame - (lengths.unsqueeze(1) - self.kernel)
        is_in_edge = (index >= 0) & (index < self.kernel)
        edges = right_edge[:, index.clamp(0, self.kernel - 1)].transpose(0, 1)

        return scale + edges * is_in_edge.unsqueeze(1)


class ZipformerConvolution(nn.Module):
    """Gated depthwise convolution with SwooshR."""

    __constants__ = ("causal",)  # TorchScript compiles one branch only

    def __init__(self, clock: Clock, dim: int, kernel: int, causal: bool) -> None:
        super().__init__()
        self.in_proj = nn.Linear(dim, 2 * dim)
        self.balancer1 = Balancer(
            clock,
            (Schedule(clock, (0.0, 0.05), (8000.0, 0.025)), 1.0),
            (1.5, Schedule(clock, (0.0, 5.0), (8000.0, 10.0))),
        )
        self.causal = causal
        self.depthwise_conv = (
            ChunkConvolution(dim, kernel)
            if causal
            else nn.Conv1d(dim, dim, kernel, groups=dim, padding=kernel // 2)
        )
        self.balancer2 = Balancer(
            clock,
            (Schedule(clock, (0.0, 0.1), (8000.0, 0.05)), 1.0),
            (Schedule(clock, (0.0, 0.2), (20000.0, 0.5)), 10.0),
        )
        self.whiten = Whitener(clock, 7.5, 15.0)
        self.out_proj = scaled_linear(dim, dim, 0.05)

    def forward(
        self,
        x: torch.Tensor,
        padded: torch.Tensor | None,
        chunk_size: int,
        lengths: torch.Tensor | None,
        past: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Gate frames x (B, T, D) and convolve them -> (B, T, D), and the past for the next frames.

        Args:
            padded: (B, T, 1) bool, True where x is padding, which counts as 0; None: no padding.
            chunk_size, lengths, past: as in ChunkConvolution.forward, for a causal convolution; a
                convolution that is not causal has no past, and returns its input in its place.
        """
        x, gate = self.in_proj(x).chunk(2, dim=2)
        x = x * self.balancer1(gate).sigmoid()
        if padded is not None:
            x = x.masked_fill(padded, 0.0)

        x = x.transpose(1, 2)  # (B, D, T)
        present = x
        if self.causal:
            x, present = self.depthwise_conv(x, chunk_size, lengths, past)
        else:
            x = self.depthwise_conv(x)

        x = self.whiten(self.balancer2(x.transpose(1, 2)))
        return self.out_proj(swoosh_r(x)), present
