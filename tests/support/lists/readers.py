"""Read a list by each tool, print what it reports, and return the utterances that arrived."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from tests.support.data.loading import FakeConfig
from wenet_uio.audio.read import read_audio
from wenet_uio.base.executor import Executor
from wenet_uio.base.files import read_lines
from wenet_uio.config.source import parse_source
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.ledger import Ledger
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.types import SampleRef
from wenet_uio.prepare.diagnose.check import Reading, check_corpus
from wenet_uio.prepare.diagnose.check_shards import opened_for_check
from wenet_uio.prepare.kaldi_tables import read_utterances
from wenet_uio.prepare.list_making import make_raw_list, make_shard_list
from wenet_uio.prepare.manifests import convert_manifest
from wenet_uio.prepare.sharding import ShardOptions

IN_THREAD = Executor(1, "threads")
Arrived = list[tuple[float, str]]
"""(seconds, text) of each utterance that came out."""

SOURCES = {
    "nemo": lambda path: {"type": "nemo", "manifest_filepath": path},
    "nemo tar": lambda path: {
        "type": "nemo_tarred",
        "manifest_filepath": path,
        "tarred_audio_filepaths": str(Path(path).with_name("audio__OP_0..0_CL_.tar")),
    },
    "parquet": lambda path: {"type": "parquet", "paths": path},
    "lhotse": lambda path: {"type": "lhotse", "cuts_path": path},
}
"""The section that names a layout in a mixture."""


def of_corpus(corpus: Any) -> Arrived:
    for key, reason in corpus.bad:
        print(f"{key}: {reason}")
    read = []
    for shard in range(corpus.num_shards):
        for row in range(int(corpus.samples[shard])):
            ref = SampleRef(shard, row)
            try:
                utterance = corpus.read(ref)
                waveform, rate = read_audio(utterance.audio, utterance.start, utterance.end)
                read.append((len(waveform) / rate, utterance.text.strip()))
            except (ValueError, OSError) as error:  # the loader names such a sample by its key
                print(f"{corpus.key(ref)}: {error}")
    return read


def opened_by(layout: str, path: str) -> tuple[Any, ...]:
    """What `open_list` takes: the list, its type and perhaps its layout."""
    if layout in SOURCES:
        (opened,) = parse_source(SOURCES[layout](path)).lists()
        return tuple(opened)
    return path, "shard" if layout == "tar" else "raw"


def through_corpus(layout: str, path: str, folder: Path) -> Arrived:
    return of_corpus(open_list(*opened_by(layout, path)))


def through_loader(layout: str, path: str, folder: Path) -> Arrived:
    """A worker process reads; the list of bad samples names what does not arrive."""
    data_list, data_type, *_ = opened_by(layout, path)
    ledger = Ledger(folder / "bad_samples.jsonl")
    loader = build_loader(
        data_list,
        data_type,
        FakeConfig(batch_conf={"batch_type": "static", "batch_size": 1}),
        None,
        training=False,
        options=LoaderOptions(rank=0, world_size=1, num_workers=1, ledger=ledger),
    )
    arrived = [(batch.seconds, batch.texts[0].strip()) for batch in loader]
    for line in read_lines(ledger.path):
        print(f"{line['key']}: {line['reason']}, {line['detail']}")
    return arrived


def through_check(layout: str, path: str, folder: Path) -> Arrived:
    """The findings must name what does not arrive."""
    with opened_for_check(path, "shard" if layout == "tar" else "raw") as (corpus, not_indexed):
        for finding in check_corpus(corpus, not_indexed, Reading()).findings:
            print(f"{finding.key}: {finding.kind}")
    with redirect_stdout(io.StringIO()):  # the check itself must name what is lost
        return through_corpus(layout, path, folder)


def through_conversion(layout: str, path: str, folder: Path) -> Arrived:
    convert_manifest(path, None, str(folder / "new.list"), "raw", IN_THREAD)
    return of_corpus(open_list(str(folder / "new.list"), "raw"))


def lines_of_tables(path: str) -> Any:
    tables = [str(Path(path, name)) for name in ("wav.scp", "text")]
    others = Path(path, "segments")
    return read_utterances(*tables, str(others) if others.exists() else None)


def through_raw_list(layout: str, path: str, folder: Path) -> Arrived:
    bad = make_raw_list(lines_of_tables(path), str(folder / "new.list"))
    print(bad)
    return of_corpus(open_list(str(folder / "new.list"), "raw"))


def through_packing(layout: str, path: str, folder: Path) -> Arrived:
    options = ShardOptions(per_shard=2)
    target = str(folder / "new.list")
    bad = make_shard_list(lines_of_tables(path), folder / "shards", target, options, IN_THREAD)
    print(bad)
    return of_corpus(open_list(target, "shard"))


Tool = Callable[[str, str, Path], Arrived]
TOOLS: dict[str, tuple[Tool, tuple[str, ...]]] = {
    "loader": (through_corpus, ("raw", "nemo", "tar", "nemo tar", "parquet", "lhotse")),
    "check_data": (through_check, ("raw", "tar")),
    "convert_manifest": (
        through_conversion,
        ("raw", "nemo", "kaldi", "segments", "csv", "tsv", "beside", "parquet", "lhotse"),
    ),
    "make_raw_list": (through_raw_list, ("kaldi", "segments")),
    "make_shard_list": (through_packing, ("kaldi", "segments")),
}
"""{name: (the tool, the layouts that it reads)}."""
