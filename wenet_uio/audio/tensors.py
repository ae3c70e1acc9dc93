"""Read arrays of other tools: numpy's `.npy`, and tensors that `torch.save` wrote.

They are never unpickled.

An array is a waveform or features (`is_features`). It states no sample rate: samples of a waveform
are at RATE.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from wenet_uio.audio.decoders import AudioError, Samples

if TYPE_CHECKING:
    import torch

RATE = 16_000
"""Hz."""
NPY, ZIP = b"\x93NUMPY", b"PK\x03\x04"
"""First bytes of `.npy`, and of the zip that `torch.save` writes."""
TORCH = b"data.pkl"
"""Name in the first header of such a zip."""
MOST_CHANNELS = 8
LEAST_SAMPLES = 400
"""A waveform of several channels has more: 25 ms. An array of few rows that are no longer is one of
few frames."""
TYPES = {"int16": np.int16, "float32": np.float32, "float64": np.float32}
"""Type of the array -> type of its samples. Floating point samples are from -1 to 1."""


def is_tensor(head: bytes) -> bool:
    """Tell whether a file that begins with `head` is an array or a tensor."""
    return head.startswith(NPY) or (head.startswith(ZIP) and TORCH in head[:256])


def is_features(array: np.ndarray) -> bool:
    """Tell whether an array holds features (frames, features) rather than a waveform.

    A waveform has up to MOST_CHANNELS channels.
    """
    if array.ndim != 2 or array.dtype.kind != "f" or not array.size:
        return False
    frames, dim = array.shape
    return dim > MOST_CHANNELS and (frames > MOST_CHANNELS or dim <= LEAST_SAMPLES)


def samples_of_array(array: np.ndarray) -> Samples:
    """Return the waveform of an array.

    The array is (samples,), (channels, samples) or (samples, channels).

    Raises:
        AudioError: the array is no waveform.
    """
    if array.ndim == 2 and not array.size:
        raise AudioError(f"an array of shape {array.shape}, which has no samples")
    if array.ndim == 2 and array.shape[0] <= MOST_CHANNELS < array.shape[1]:
        array = array.T

    if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[1] > MOST_CHANNELS):
        raise AudioError(
            f"an array of shape {array.shape}, which is no waveform (samples,) or (channels, "
            "samples)"
        )

    dtype = TYPES.get(array.dtype.name)
    if dtype is None:
        raise AudioError(f"an array of {array.dtype}; a waveform is of {', '.join(TYPES)}")

    columns = array[:, None] if array.ndim == 1 else array
    return Samples(columns.astype(dtype, copy=False), RATE)


def load_array(data: bytes) -> np.ndarray:
    """Return the array in the bytes of a file.

    Raises:
        AudioError: the file holds anything else, or needs pickle.
    """
    try:
        if data.startswith(NPY):
            return np.load(io.BytesIO(data), allow_pickle=False)
        import torch  # only where tensors are read: planning and packing run without torch

        stored = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises errors of many types
        raise AudioError(
            f"cannot be read without pickle ({' '.join(str(error).split())[:80]})"
        ) from None

    if not isinstance(stored, torch.Tensor):
        raise AudioError(f"holds a {type(stored).__name__}, not a tensor; store the waveform alone")

    return _array_of(stored)


def _array_of(stored: torch.Tensor) -> np.ndarray:
    """Return a tensor of values that are all stored, without its gradient.

    Raises:
        AudioError: it is of another kind, or a few stored values stand for many.
    """
    import torch

    is_plain = stored.layout == torch.strided and stored.device.type == "cpu"
    if not is_plain or stored.is_quantized or stored.is_nested:
        kind = next(
            name
            for name, holds in (
                ("quantised", stored.is_quantized),
                ("nested", stored.is_nested),
                ("sparse", stored.layout != torch.strided),
                ("meta", True),
            )
            if holds
        )
        raise AudioError(f"holds a {kind} tensor; store a dense one of {', '.join(TYPES)}")

    size = stored.untyped_storage().nbytes() // stored.element_size()
    if stored.numel() > size:
        raise AudioError(
            f"claims {stored.numel()} values and stores {size}; store tensor.contiguous()"
        )

    # numpy has no bfloat16, and soundfile writes no float16.
    stored = stored.detach().resolve_conj().resolve_neg()
    if stored.dtype in (torch.bfloat16, torch.float16):
        stored = stored.float()
    return stored.numpy()
