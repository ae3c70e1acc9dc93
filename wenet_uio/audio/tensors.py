"""Read arrays of other tools: numpy's `.npy`, and tensors that `torch.save` wrote.

They are never unpickled.

An array is a waveform or features (`is_features`). It states no sample rate: samples of a waveform
are at RATE.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.lib import format as np_format

from wenet_uio.audio.decoders import AudioError, Samples

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
MOST_DESCRIPTION = 1 << 16
"""Bytes of `data.pkl`; that of a tensor has some hundred."""
OPCODES = """
    PROTO STOP MARK GLOBAL REDUCE BINPERSID NONE NEWTRUE NEWFALSE
    BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE
    BINPUT LONG_BINPUT BINGET LONG_BINGET
    EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS
"""
"""Instructions of pickle that `torch.save` uses for a tensor. BUILD is not among them: it could put
other values into a Storage."""
STORAGES = {
    "FloatStorage": "f4",
    "DoubleStorage": "f8",
    "HalfStorage": "f2",
    "BFloat16Storage": "u2",
    "ShortStorage": "i2",
    "IntStorage": "i4",
    "LongStorage": "i8",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
    "ComplexFloatStorage": "c8",
    "ComplexDoubleStorage": "c16",
}
"""{class of torch: type of its values}."""
OTHER_KINDS = {
    "_rebuild_sparse_tensor": "sparse",
    "_rebuild_sparse_csr_tensor": "sparse",
    "_rebuild_qtensor": "quantised",
    "_rebuild_nested_tensor": "nested",
    "_rebuild_meta_tensor_no_storage": "meta",
    "_rebuild_tensor_v3": "special",
    "_rebuild_device_tensor_from_numpy": "device",
    "_rebuild_wrapper_subclass": "wrapped",
}
"""{function of torch._utils: kind of tensor that is not read}."""


@dataclass(frozen=True)
class Storage:
    """Values of a tensor in the zip."""

    kind: str
    values: np.ndarray
    """(values,)."""


def load_tensor(data: bytes) -> np.ndarray:
    """Return the tensor in the bytes of a file; half precision becomes float32.

    Raises:
        AudioError: the file holds something else, or less than it claims.
        ValueError: the file is damaged.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        _check_sizes(archive, len(data))
        root = next(name for name in archive.namelist() if name.endswith("data.pkl"))
        description = archive.read(root)
        _check_instructions(description)
        stored = _Description(description, archive, root.removesuffix("data.pkl")).load()

    if not isinstance(stored, np.ndarray):
        raise AudioError(f"holds a {type(stored).__name__}, not a tensor; store the waveform alone")
    return stored


def _check_sizes(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse a zip whose members are larger than the file: compressed, or several in one place.

    Raises:
        AudioError: they are.
    """
    members = archive.infolist()
    claimed = sum(member.file_size for member in members)
    has_compressed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
    if claimed > size or has_compressed:
        raise AudioError(f"claims {claimed} bytes in a file of {size}; store it with torch.save")


def _check_instructions(description: bytes) -> None:
    """Refuse instructions that reserve memory or run code.

    Raises:
        AudioError: there is one.
    """
    if len(description) > MOST_DESCRIPTION:
        raise AudioError("holds more than a tensor; store the waveform alone")

    argument: Any
    for opcode, argument, _ in pickletools.genops(description):
        # The unpickler reserves memory for all places up to this one.
        is_far = opcode.name == "LONG_BINPUT" and argument > MOST_DESCRIPTION
        if opcode.name not in OPCODES.split() or is_far:
            raise AudioError(f"cannot be read without pickle (instruction {opcode.name})")


class _Description(pickle.Unpickler):
    """Interprets `data.pkl`."""

    def __init__(self, description: bytes, archive: zipfile.ZipFile, folder: str) -> None:
        super().__init__(io.BytesIO(description), encoding="utf-8")
        self._archive, self._folder = archive, folder
        order = f"{folder}byteorder"
        is_big = order in archive.namelist() and archive.read(order) == b"big"
        self._byte_order: Literal["<", ">"] = ">" if is_big else "<"

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Return the function or the name of a storage that `data.pkl` may use.

        Raises:
            AudioError: it means nothing.
        """
        if module_name == "torch._utils" and global_name in OTHER_KINDS:
            raise AudioError(
                f"holds a {OTHER_KINDS[global_name]} tensor; store a dense one of int16, float32 or "
                "float64"
            )
        if module_name == "torch" and global_name in STORAGES:
            return global_name

        meaning = MEANINGS.get((module_name, global_name))
        if meaning is None:
            raise AudioError(f"cannot be read without pickle ({module_name}.{global_name})"[:120])
        return meaning

    def persistent_load(self, pid: Any) -> Storage:
        """Return the values that `data.pkl` names.

        Raises:
            ValueError: they are damaged, or fewer than it claims.
        """
        _, kind, member, _, count = pid
        content = self._archive.read(f"{self._folder}data/{member}")
        values = np.frombuffer(content, np.dtype(STORAGES[kind]).newbyteorder(self._byte_order))
        if len(values) != count:
            raise AudioError(f"claims {count} values and stores {len(values)}")
        return Storage(kind, values.astype(STORAGES[kind], copy=False))


def _rebuild_tensor(
    storage: Storage,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    requires_grad: bool = False,
    hooks: object = None,
    metadata: dict[str, bool] | None = None,
) -> np.ndarray:
    """Build a tensor, as `torch._utils._rebuild_tensor_v2` does.

    Raises:
        AudioError: a few stored values stand for many, or it reaches beyond them.
    """
    if not isinstance(storage, Storage):
        raise AudioError("claims values that are not stored")

    values = storage.values
    if 0 in shape:
        return np.zeros([min(length, 1) for length in shape], values.dtype)

    _check_layout(len(values), offset, shape, strides)
    steps = [step * values.itemsize for step in strides]
    tensor = np.lib.stride_tricks.as_strided(values[offset:], shape, steps, writeable=False)
    tensor = _widen_half_precision(tensor, storage.kind)

    flags = metadata or {}
    if flags.get("conj"):
        tensor = tensor.conj()
    return -tensor if flags.get("neg") else tensor


def _check_layout(
    num_stored: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    """Compare what a tensor claims with the number of stored values.

    Args:
        offset: of the first value, in values.
        strides: values from one index to the next, of each dimension.

    Raises:
        AudioError: a number is negative, shape and strides differ in length, a few stored values
            stand for many, or the tensor reaches beyond them.
    """
    if min((offset, *shape, *strides)) < 0 or len(shape) != len(strides):
        raise AudioError(f"claims the shape {shape} with the strides {strides}")

    num_claimed = math.prod(shape)
    last = offset + sum((length - 1) * step for length, step in zip(shape, strides, strict=True))
    if num_claimed > num_stored or last >= num_stored:
        raise AudioError(
            f"claims {num_claimed} values and stores {num_stored}; store tensor.contiguous()"
        )


def _widen_half_precision(values: np.ndarray, storage_class: str) -> np.ndarray:
    """Return half precision as float32: soundfile writes no float16, and numpy has no bfloat16.

    Args:
        values: as stored; those of bfloat16 are uint16.
        storage_class: name of the class of torch that stored them.
    """
    if storage_class == "BFloat16Storage":
        # bfloat16 is the upper half of float32.
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32) if storage_class == "HalfStorage" else values


MEANINGS: dict[tuple[str, str], Any] = {
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
    ("torch", "Size"): tuple,
    ("collections", "OrderedDict"): OrderedDict,
}


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
    if dim <= MOST_CHANNELS:  # (samples, channels)
        return False
    # Few rows are frames only if they are too short for channels.
    return frames > MOST_CHANNELS or dim <= LEAST_SAMPLES


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
    except (AudioError, MemoryError):
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
