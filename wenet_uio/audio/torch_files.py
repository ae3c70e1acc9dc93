"""Read a tensor that `torch.save` wrote, without torch and without running what its pickle names.

Such a file is a zip: `data.pkl` describes the tensor, `data/0` holds its values. `torch.load`
reserves what the description claims, however small the file is, and unpacks what is compressed. So
the description is interpreted here: only the names below mean something, and every size is compared
with the values that are stored.
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

from wenet_uio.audio.decoders import AudioError

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
    if claimed > size or any(member.compress_type != zipfile.ZIP_STORED for member in members):
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
        """Return what a name means here.

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


def _tensor(
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
    tensor = _widened(tensor, storage.kind)

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


def _widened(values: np.ndarray, storage_class: str) -> np.ndarray:
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
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
    ("torch", "Size"): tuple,
    ("collections", "OrderedDict"): OrderedDict,
}
