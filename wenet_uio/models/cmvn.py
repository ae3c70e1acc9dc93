"""Global cepstral mean and variance normalisation (CMVN) of the features, as a layer of the
model.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from torch import nn

from wenet_uio.base.files import naming

SMALLEST_VARIANCE = 1e-20
"""Lower bound of a variance; avoids a division by zero."""


class GlobalCMVN(nn.Module):
    """(feats - mean) * istd, with mean (F,) and inverse standard deviation istd (F,) of the
    training corpus.
    """

    def __init__(self, mean: torch.Tensor, istd: torch.Tensor) -> None:
        super().__init__()
        self.mean: torch.Tensor
        self.istd: torch.Tensor
        self.register_buffer("mean", mean)
        self.register_buffer("istd", istd)

    def forward(self, feats: torch.Tensor) -> torch.Tensor:
        """Normalise feats (B, T, F)."""
        return (feats - self.mean) * self.istd


def load_cmvn(path: str | Path, is_json: bool, dim: int) -> GlobalCMVN:
    """Read CMVN statistics and compute mean and inverse standard deviation.

    Args:
        path: JSON with `mean_stat` (sums of x), `var_stat` (sums of x squared) and `frame_num`, or
            a Kaldi matrix in text format with the same numbers.
        is_json: whether the file is JSON.
        dim: number of features of a frame.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file has another format, or statistics of another number of features.
    """
    if is_json:
        parse_sums, expected = _parse_json, "JSON with mean_stat, var_stat, frame_num"
    else:
        parse_sums, expected = _parse_kaldi, "a Kaldi text matrix `[ sums count / squares 0 ]`"

    with naming(path):
        text = Path(path).read_text(encoding="utf-8")
    try:
        sums, squares, count = parse_sums(text)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"cmvn_file {path}: expected {expected} (is_json_cmvn: {str(is_json).lower()}), got "
            f"{error!r}"
        ) from None

    if count <= 0 or sums.shape != squares.shape:
        raise ValueError(
            f"cmvn_file {path}: expected frames, and as many sums as sums of squares; found "
            f"{count:g} frames, {len(sums)} sums, {len(squares)} sums of squares"
        )

    if len(sums) != dim:
        raise ValueError(
            f"cmvn_file {path}: statistics of {len(sums)} bins, but the features have {dim}; "
            "compute the statistics with this config"
        )

    if not (sums.isfinite().all() and squares.isfinite().all() and math.isfinite(count)):
        raise ValueError(
            f"cmvn_file {path}: sums that are infinite or no numbers (NaN); compute the statistics "
            "again, without the utterances that made them so"
        )

    mean = sums / count
    variance = (squares / count - mean * mean).clamp(min=SMALLEST_VARIANCE)
    return GlobalCMVN(mean.float(), variance.rsqrt().float())


def _parse_json(text: str) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Return sums (F,) and sums of squares (F,) of the features, and the number of frames.

    They have values even for a model without weights, which is built on the meta device.
    """
    stats = json.loads(text)
    sums = torch.tensor(stats["mean_stat"], dtype=torch.float64, device="cpu")
    squares = torch.tensor(stats["var_stat"], dtype=torch.float64, device="cpu")
    return sums, squares, float(stats["frame_num"])


def _parse_kaldi(text: str) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Return sums (F,) and sums of squares (F,) of the features, and the number of frames.

    Kaldi's matrix has two rows: the sums and the number of frames, then the squares and a 0.
    """
    numbers = [float(word) for word in text.replace("[", " ").replace("]", " ").split()]
    if len(numbers) < 4 or len(numbers) % 2:
        raise ValueError(f"expected an even number of values, 4 or more; found {len(numbers)}")

    matrix = torch.tensor(numbers, dtype=torch.float64, device="cpu").view(2, -1)
    return matrix[0, :-1], matrix[1, :-1], float(matrix[0, -1])
