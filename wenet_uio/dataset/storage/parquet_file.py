"""Parquet files, as Hugging Face's data sets have them. A row group is a part. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

from wenet_uio.dataset.storage.versions import DriverError

ROWS = 16
"""Rows that are decoded at a time."""


def count_parts(file: BinaryIO) -> int:
    """Return the number of row groups.

    Raises:
        DriverError: pyarrow is not installed. ValueError: the file is damaged.
    """
    return _open_file(file).num_row_groups


def rows_of(
    file: BinaryIO, part: int, beside: Callable[[str], bytes] | None = None
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a row group. `beside` is not used.

    Raises:
        DriverError: pyarrow is not installed. ValueError: the file is damaged, or no column can
            hold audio.
    """
    parquet = _open_file(file)
    _audio_columns(parquet)
    with _damage_told():
        for batch in parquet.iter_batches(ROWS, row_groups=[part], use_threads=False):
            yield from batch.to_pylist()


def texts_of(file: BinaryIO) -> tuple[list[str], Iterator[list[Mapping[str, Any]]]]:
    """Return the columns that can hold audio, and the rows of each row group without the bytes of
    their audio.

    Raises:
        DriverError: pyarrow is not installed. ValueError: the file is damaged, or no column can
            hold audio.
    """
    parquet = _open_file(file)
    binary = _audio_columns(parquet)
    leaves = (parquet.schema.column(number) for number in range(len(parquet.schema)))
    kept = [
        leaf.path
        for leaf in leaves
        if leaf.physical_type != "BYTE_ARRAY" or leaf.logical_type.type != "NONE"
    ]

    def rows() -> Iterator[list[Mapping[str, Any]]]:
        with _damage_told():
            for group in range(parquet.num_row_groups):
                yield parquet.read_row_group(group, kept, use_threads=False).to_pylist()

    return binary, rows()


def _audio_columns(parquet: Any) -> list[str]:
    """Return names of the columns that can hold audio. Raises: ValueError: there is none."""
    columns = [field.name for field in parquet.schema_arrow if _may_hold_audio(field.type)]
    if not columns:
        raise ValueError(
            "no column holds encoded audio (its columns: "
            f"{', '.join(parquet.schema_arrow.names)}); "
            "audio is a binary column, or bytes and path as in sets of the Hugging Face hub"
        )

    return columns


def _open_file(file: BinaryIO) -> Any:
    """Open a parquet file with pyarrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise DriverError("reading parquet needs pyarrow; pip install pyarrow") from None

    with _damage_told():
        return pyarrow.parquet.ParquetFile(file)


@contextmanager
def _damage_told() -> Iterator[None]:
    """Turn errors of pyarrow about a damaged file into a ValueError of one line."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        # pyarrow has plain OSErrors for damage; those of the system have a number, those of a store
        # a class of their own.
        if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
            raise
        raise ValueError(
            f"not a parquet file, or damaged ({' '.join(str(error).split())})"
        ) from None


def _may_hold_audio(kind: Any) -> bool:
    import pyarrow.types

    if pyarrow.types.is_struct(kind):
        index = kind.get_field_index("bytes")
        return index >= 0 and _may_hold_audio(kind.field(index).type)

    return pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind)
