"""Read arrays of other tools: numpy's `.npy`, and tensors that `torch.save` wrote.

They are never unpickled.

An array is a waveform or features (`is_features`). It states no sample rate: samples of a waveform
are at RATE.
"""

from __future__ import annotations

import io
import math

import numpy as np
from numpy.lib import format as np_format

from wenet_uio.audio.decoders import AudioError, Samples
from wenet_uio.audio.torch_files import load_tensor

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
        AudioError: the file holds anything else, needs pickle, or holds less than it claims.
    """
    try:
        if not data.startswith(NPY):
            return load_tensor(data)

        file = io.BytesIO(data)
        _check_claim(file, len(data))
        return np.load(file, allow_pickle=False)
    except AudioError:
        raise
    except Exception as error:  # damaged zips and pickles raise errors of many types
        raise AudioError(
            f"cannot be read without pickle ({' '.join(str(error).split())[:80]})"
        ) from None


def _check_claim(file: io.BytesIO, size: int) -> None:
    """Compare what the header of a `.npy` claims with the bytes after it: numpy reserves memory for
    all of the claim. The file is then at its start again.

    Raises:
        AudioError: the file is shorter.
        ValueError: it has no such header.
    """
    read_header = {1: np_format.read_array_header_1_0, 2: np_format.read_array_header_2_0}
    major, _ = np_format.read_magic(file)
    if major in read_header:  # later versions are for names of fields, which no array of audio has
        shape, _, dtype = read_header[major](file)
        claimed = math.prod(shape) * dtype.itemsize
        stored = size - file.tell()
        if claimed > stored and not dtype.hasobject:
            raise AudioError(f"claims {claimed} bytes of values and stores {stored}")
    else:
        raise AudioError(f"an array in version {major} of the format; save a plain array")

    file.seek(0)
