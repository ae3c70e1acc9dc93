"""The corpus of loader.py in the formats of others, each written by its own package where it has
one.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from shutil import rmtree

import numpy as np
import soundfile
import torch
import yaml
from corpus import RATE, open_loader

from wenet_uio.config.dataset import FbankConf
from wenet_uio.dataset.chain.fbank import fbank
from wenet_uio.dataset.formats.data_list import DataType, RawLine
from wenet_uio.prepare.kaldi_tables import read_audio_lines
from wenet_uio.prepare.list_making import make_raw_list

SHARD_SIZE = 500
MDS_BYTES = 120_000_000
"""About the size of a tar of 500 utterances."""


def use_cache(folder: Path, *, empty: bool = False) -> None:
    """Keep unpacked files in the folder of the corpus; remove those that are there if `empty`."""
    cache = folder / "cache"
    os.environ["WENET_UIO_CACHE"] = str(cache)
    if empty:
        rmtree(cache, ignore_errors=True)


def _groups(lines: Sequence[RawLine]) -> Iterator[Sequence[RawLine]]:
    return (lines[first : first + SHARD_SIZE] for first in range(0, len(lines), SHARD_SIZE))


def _write_source(folder: Path, name: str, **source: str) -> None:
    list_of(folder, name).write_text(yaml.safe_dump({"sources": [source]}))


def write_parquet(lines: Sequence[RawLine], folder: Path) -> None:
    """Write `parquet/train.parquet` with the lines as rows."""
    import pyarrow.parquet

    (folder / "parquet").mkdir()
    schema = pyarrow.schema(
        {"path": pyarrow.string(), "audio": pyarrow.binary(), "text": pyarrow.string()}
    )
    with pyarrow.parquet.ParquetWriter(folder / "parquet" / "train.parquet", schema) as file:
        for rows in _groups(lines):
            columns = [
                [Path(row.wav).name for row in rows],
                [Path(row.wav).read_bytes() for row in rows],
                [row.text for row in rows],
            ]
            file.write_table(pyarrow.table(columns, schema=schema), SHARD_SIZE)

    (folder / "parquet.list").write_text(f"{folder}/parquet/train.parquet\n")


def write_mds(lines: Sequence[RawLine], folder: Path) -> None:
    """Write the shards of MosaicML's Streaming to `mds/`."""
    columns = {"audio": "bytes", "text": "str", "path": "str"}
    writer = import_module("streaming.base.format.mds.writer").MDSWriter  # optional, without types
    with writer(
        columns=columns, out=str(folder / "mds"), size_limit=MDS_BYTES, progress_bar=False
    ) as out:
        for line in lines:
            out.write(
                {
                    "audio": Path(line.wav).read_bytes(),
                    "text": line.text,
                    "path": Path(line.wav).name,
                }
            )

    _write_source(folder, "mds", type="mds", paths=str(folder / "mds"))


def write_litdata(lines: Sequence[RawLine], folder: Path) -> None:
    """Write the chunks of LitData to `litdata/`."""
    (folder / "litdata").mkdir()
    writer = import_module("litdata.streaming.writer").BinaryWriter(
        str(folder / "litdata"), chunk_size=SHARD_SIZE
    )
    for number, line in enumerate(lines):
        writer[number] = {
            "audio": Path(line.wav).read_bytes(),
            "text": line.text,
            "path": Path(line.wav).name,
        }

    writer.done()
    writer.merge()
    _write_source(folder, "litdata", type="litdata", paths=str(folder / "litdata"))


def write_nemo(lines: Sequence[RawLine], folder: Path) -> None:
    """Write a tarred set of NeMo to `nemo/`, as convert_to_tarred.py does."""
    manifest = folder / "nemo.json"
    with manifest.open("w") as file:
        for line in lines:
            entry = {
                "audio_filepath": line.wav,
                "duration": soundfile.info(line.wav).duration,
                "text": line.text,
            }
            file.write(json.dumps(entry) + "\n")

    tars = max(1, len(lines) // SHARD_SIZE)
    tool = Path(__file__).resolve().parents[2] / "tools/convert_to_tarred.py"
    options = (
        f"--manifest_path={manifest}",
        f"--target_dir={folder / 'nemo'}",
        f"--num_shards={tars}",
    )
    subprocess.run([sys.executable, tool, *options], check=True, capture_output=True)
    numbers = f"_OP_0..{tars - 1}_CL_"
    _write_source(
        folder,
        "nemo",
        type="nemo_tarred",
        manifest_filepath=f"{folder}/nemo/sharded_manifests/manifest_{numbers}.json",
        tarred_audio_filepaths=f"{folder}/nemo/audio_{numbers}.tar",
    )


def write_tensors(lines: Sequence[RawLine], folder: Path) -> None:
    """Write shards of WebDataset whose audio is an array of 16-bit samples to `tensors/`."""
    (folder / "tensors").mkdir()
    for number, rows in enumerate(_groups(lines)):
        with tarfile.open(folder / "tensors" / f"{number:06d}.tar", "w") as tar:
            for row in rows:
                np.save(audio := io.BytesIO(), soundfile.read(row.wav, dtype="int16")[0])
                for suffix, content in (("npy", audio.getvalue()), ("txt", row.text.encode())):
                    member = tarfile.TarInfo(f"{row.key}.{suffix}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))

    tars = sorted((folder / "tensors").glob("*.tar"))
    (folder / "tensors.list").write_text("".join(f"{tar}\n" for tar in tars))


def write_ark(lines: Sequence[RawLine], folder: Path) -> None:
    """Write the features of the corpus to `ark/feats.ark`, in Kaldi's compressed form, with a raw
    list of them.
    """
    kaldi = import_module("kaldi_native_io")  # optional
    (folder / "ark").mkdir()
    conf = FbankConf(num_mel_bins=80)

    with kaldi.CompressedMatrixWriter(
        f"ark,scp:{folder}/ark/feats.ark,{folder}/ark/feats.scp"
    ) as out:
        for line in lines:
            samples = torch.from_numpy(soundfile.read(line.wav, dtype="int16")[0]).float()
            out.write(
                line.key,
                fbank(samples, RATE, conf).numpy(),
                kaldi.CompressionMethod.kAutomaticMethod,
            )

    texts = {line.key: line.text for line in lines}
    features = (
        replace(each, text=texts[each.key]) for each in read_audio_lines(f"{folder}/ark/feats.scp")
    )
    make_raw_list(list(features), str(folder / "ark.list"))


WRITERS: dict[str, Callable[[Sequence[RawLine], Path], None]] = {
    "parquet": write_parquet,
    "mds": write_mds,
    "litdata": write_litdata,
    "nemo": write_nemo,
    "ark": write_ark,
    "tensors": write_tensors,
}


def list_of(folder: Path, name: str) -> Path:
    """Return the data list of a format: a list of files, or a yaml that names the set."""
    return folder / f"{name}.{'yaml' if name in ('mds', 'litdata', 'nemo') else 'list'}"


def type_of(name: str) -> DataType:
    """Return the type of the list of a format."""
    return "raw" if name in ("wav", "ark") else "shard"


def write_format(name: str, lines: Sequence[RawLine], folder: Path) -> None:
    """Write the corpus in a format with its list, and index it, unless it is there."""
    use_cache(folder)
    if not list_of(folder, name).exists():
        WRITERS[name](lines, folder)
        os.sync()
    open_loader(list_of(folder, name), type_of(name))
