"""The silence behind a training utterance.

A published Whisper hears 30 s: the speech, and digital silence behind it. Without the silence it
finds other words. But then most frames are silence, and most of a training step is spent on them.

Frames of the silence differ in their positions alone. So in the losses each STRIDE-th of them stands
for STRIDE: attention adds log(STRIDE) to its score, as if it were there STRIDE times. Decoding sees
all frames.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from wenet_uio.config import Config
from wenet_uio.dataset.lengths import frame_count
from wenet_uio.models.embedding import WhisperPositionalEncoding
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.layered_encoder import LayeredEncoder
from wenet_uio.models.masks import length_mask
from wenet_uio.models.subsampling import Conv1dSubsampling2

STRIDE = 50
"""Frames of the encoder that one frame of the silence stands for: 1 s."""
WHOLE = 50
"""Frames of the encoder behind the speech that stand for themselves, at least: 1 s."""
ROUNDED = 16
"""Encoder frames of a batch are a multiple of this, so that batches share shapes."""
EDGE = 4
"""Feature frames that the input layer sees behind the last frame, so that it sees no edge there."""
NOT_A_FRAME = -30000.0
"""Added to the scores of padding, as masks.additive does."""
QUIETEST, RANGE = -1.5, 2.0
"""Digital silence in a log mel spectrogram: its lowest value, and its distance from the loudest one."""


@dataclass(frozen=True)
class Window:
    """What the encoder hears at once; its frames are those of the encoder."""

    frames: int
    """1500 are 30 s."""

    def whole_frames(self, lengths: torch.Tensor) -> torch.Tensor:
        """Return how many frames (B,) at the beginning of each window stand for themselves.

        Args:
            lengths: (B,) feature frames without the silence.
        """
        speech = torch.div(lengths + 1, 2, rounding_mode="floor")
        thinned = torch.div(self.frames - speech - WHOLE, STRIDE, rounding_mode="floor")
        whole = self.frames - STRIDE * thinned.clamp(min=0)
        return torch.maximum(whole, speech)

    def kept_frames(self, lengths: torch.Tensor) -> torch.Tensor:
        """Return how many frames (B,) the encoder computes; `lengths` as in `whole_frames`."""
        whole = self.whole_frames(lengths)
        return whole + torch.div((self.frames - whole).clamp(min=0), STRIDE, rounding_mode="floor")

    def log_weights(self, kept: torch.Tensor, size: int) -> torch.Tensor:
        """Return what attention adds to the scores of frames, (B, 1, size) float32: log(STRIDE) for
        frames that stand for others, a large negative number beyond the window.

        Args:
            kept: (B,) as `kept_frames` returns it.
        """
        # kept = whole + thinned, and frames = whole + STRIDE * thinned
        thinned = torch.div((self.frames - kept).clamp(min=0), STRIDE - 1, rounding_mode="floor")
        stands_for_others = ~length_mask(kept - thinned, size).unsqueeze(1)
        is_frame = length_mask(kept, size).unsqueeze(1)
        weights = math.log(STRIDE) * stands_for_others.float()
        return weights.masked_fill(~is_frame, NOT_A_FRAME)


@dataclass(frozen=True)
class SilenceEncoder:
    """Encodes utterances with the silence behind them, of which it keeps few frames."""

    encoder: LayeredEncoder
    window: Window

    def __call__(
        self, feats: torch.Tensor, lengths: torch.Tensor, chunk_size: int = -1
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return encoder frames (B, T', D) and lengths (B,), as Encoder.forward.

        Args:
            feats: (B, T, F).
            lengths: (B,) feature frames.
            chunk_size: not used, because a whisper has full context only.
        """
        encoder, window = self.encoder, self.window
        # Of the padded length, for which the host need not wait: the most of an utterance.
        padded = torch.tensor([feats.size(1)])
        most_whole, most_kept = int(window.whole_frames(padded)), int(window.kept_frames(padded))
        size = -(-most_kept // ROUNDED) * ROUNDED

        feats = with_silence(feats, lengths, 2 * window.frames, 2 * most_whole + EDGE)
        if encoder.global_cmvn is not None:
            feats = encoder.global_cmvn(feats)
        frames = encoder.embed.project(feats)  # (B, most_whole + EDGE / 2, D)

        whole = window.whole_frames(lengths).unsqueeze(1)  # (B, 1)
        place = torch.arange(size, device=feats.device).unsqueeze(0)  # (1, T')
        is_whole = place < whole  # (B, T')
        # A frame within the silence has the content of all of them, at other positions.
        content = torch.where(is_whole, place, whole - WHOLE // 2)
        position = whole + STRIDE * (place - whole) + STRIDE // 2
        last = max(window.frames, most_whole) - 1
        position = torch.where(is_whole, place, position.clamp(max=last))

        table = encoder.embed.position_encoding(0, last + 1, frames)
        positions = table[0][position]  # (B, T', D)
        x = frames.gather(1, content.unsqueeze(2).expand_as(positions))
        encoding = encoder.embed.pos_enc
        x = encoding.dropout(encoding.place(x, positions))

        kept = window.kept_frames(lengths)
        bias = window.log_weights(kept, size).unsqueeze(1).to(x.dtype)  # (B, 1, 1, T')
        beyond = ~length_mask(kept, size).unsqueeze(2)
        x = encoder._blocks(x, bias, positions, beyond, None)
        return x.masked_fill(beyond, 0.0), kept


def training_window(config: Config, encoder: Encoder) -> Window | None:
    """Return the window of a published whisper whose training utterances have no silence; None for
    others.
    """
    mel = config.dataset_conf.log_mel_spectrogram_conf
    lacks_silence = mel.pad_or_trim and not mel.pad_in_training
    if config.dataset_conf.feats_type != "log_mel_spectrogram" or not lacks_silence:
        return None

    embed = encoder.embed
    is_published = isinstance(encoder, LayeredEncoder) and isinstance(embed, Conv1dSubsampling2)
    if not is_published or not isinstance(embed.pos_enc, WhisperPositionalEncoding):
        return None
    return Window(int(frame_count(config.dataset_conf)(0)) // 2)


def with_silence(feats: torch.Tensor, lengths: torch.Tensor, until: int, size: int) -> torch.Tensor:
    """Return features (B, size, F) in which digital silence follows each utterance.

    Args:
        feats: (B, T, F) with T up to `size`, log mel spectrograms.
        lengths: (B,) frames.
        until: frame at which the silence ends; zeros follow.
    """
    is_speech = length_mask(lengths, feats.size(1))  # (B, T)
    loudest = feats.amax(dim=2).masked_fill(~is_speech, -math.inf).amax(dim=1)
    level = (loudest - RANGE).clamp(min=QUIETEST)[:, None, None]

    longer = pad(feats, (0, 0, 0, size - feats.size(1)))
    frame = torch.arange(size, device=feats.device)[None, :, None]
    is_behind = frame >= lengths[:, None, None]
    silence = torch.where(frame < until, level, torch.zeros_like(level))
    return torch.where(is_behind, silence, longer)
