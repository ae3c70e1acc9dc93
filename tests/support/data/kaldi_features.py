"""Kaldi directories with features of spoken digits, written by kaldi_native_io."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import kaldi_native_io
import numpy as np
import torch

from tests.support.data.digits import WORDS
from wenet_uio.audio.read import read_audio
from wenet_uio.config.dataset import FbankConf
from wenet_uio.dataset.chain.fbank import fbank

FBANK = FbankConf(num_mel_bins=23, dither=0.0)
METHODS = (
    "kAutomaticMethod",
    "kSpeechFeature",
    "kTwoByteAuto",
    "kTwoByteSignedInteger",
    "kOneByteAuto",
)
"""Ways of Kaldi to compress a matrix; the second is the default of `make_fbank.sh`."""


def write_feats(folder: Path, wavs: Sequence[Path], method: str | None = None) -> Path:
    """Write feats.ark, feats.scp and text of recordings of FSDD; compressed with a `method`.
    Returns the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    matrices = {
        wav.stem: fbank(torch.from_numpy(read_audio(str(wav))[0]), 8000, FBANK).numpy()
        for wav in wavs
    }
    write_ark(folder, matrices, method)
    (folder / "text").write_text("".join(f"{wav.stem} {WORDS[int(wav.stem[0])]}\n" for wav in wavs))
    return folder


def write_ark(folder: Path, matrices: dict[str, np.ndarray], method: str | None = None) -> None:
    """Write feats.ark and feats.scp."""
    places = f"ark,scp:{folder}/feats.ark,{folder}/feats.scp"
    kind = np.dtype(next(iter(matrices.values())).dtype)
    if method is None:
        plain = {4: kaldi_native_io.FloatMatrixWriter, 8: kaldi_native_io.DoubleMatrixWriter}[
            kind.itemsize
        ]
        with plain(places) as writer:
            for key, matrix in matrices.items():
                writer.write(key, matrix)
        return
    with kaldi_native_io.CompressedMatrixWriter(places) as writer:
        for key, matrix in matrices.items():
            writer.write(key, matrix, getattr(kaldi_native_io.CompressionMethod, method))


def read_by_kaldi(folder: Path) -> dict[str, np.ndarray]:
    """The matrices of a feats.scp, as kaldi_native_io reads them."""
    with kaldi_native_io.SequentialFloatMatrixReader(f"scp:{folder}/feats.scp") as reader:
        return {key: np.array(matrix) for key, matrix in reader}
