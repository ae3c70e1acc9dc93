"""Layouts x oddities x tools: every utterance arrives once with its text, or is named.

Each cell is a corpus of three recordings, written in one layout with one oddity, that enters by one
tool. `arrives`: each recording comes out once, with its text. `named`: one that does not is named
by key, file or line, and all others arrive; or the whole list is refused by name. Any other cell
fails the test. An oddity that a layout cannot have writes the files of the plain cell: such cells
are no trials, and are not counted. The table is printed: `pytest -s tests/matrix`.

The tool `loader` reads through the corpus; for one cell in LOADER_CELLS it is the loader of
training, with a worker process and its list of bad samples.
"""

from __future__ import annotations

import csv
import io
import json
import os
import tarfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import indent
from typing import Any

from tests.support.data.loading import FakeConfig
from tests.support.data.parquet import write_table
from tests.support.data.tars import wav
from wenet_uio.audio.read import read_audio
from wenet_uio.config.source import parse_source
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.ledger import Ledger
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.types import SampleRef
from wenet_uio.diagnose.check import Reading, check_corpus
from wenet_uio.diagnose.check_shards import opened_for_check
from wenet_uio.executor import Executor
from wenet_uio.files import read_lines
from wenet_uio.prepare.kaldi_tables import read_utterances
from wenet_uio.prepare.list_making import make_raw_list, make_shard_list
from wenet_uio.prepare.manifests import convert_manifest
from wenet_uio.prepare.sharding import ShardOptions

PAGE = Path(__file__).parents[2] / "docs/concepts/nothing-silent.md"
SAME_AS_PLAIN = "-"
"""Outcome of a cell whose files are those of the plain cell."""
LOADER_CELLS = 5
"""Of so many cells of the tool `loader`, one has a worker process."""
IN_THREAD = Executor(1, "threads")
APPLE = b"\0\5\x16\7\0\2\0\0Mac OS X        "
"""First bytes of the file `._NAME` that macOS writes beside NAME."""


@dataclass(frozen=True)
class Spoken:
    """A recording of a corpus."""

    name: str
    """Of its file, without suffix."""
    text: str
    seconds: float
    """Different for each recording: it says which one arrived."""
    is_there: bool = True
    fields: dict[str, Any] = field(default_factory=dict)
    """Other fields of its line."""


CORPUS = (
    Spoken("anna_1", "eins zwei", 0.4),
    Spoken("anna_2", "drei vier", 0.5),
    Spoken("bert_1", "fünf sechs", 0.6),
)


@dataclass(frozen=True)
class Oddity:
    """What is unusual about a corpus."""

    corpus: tuple[Spoken, ...] = CORPUS
    of_tables: Callable[[bytes], bytes] = lambda data: data
    """Changes each table or list of lines."""
    of_folder: Callable[[Path], None] = lambda folder: None
    """Changes the folder with the audio."""
    more_members: Callable[[str], list[tuple[str, bytes]]] = lambda name: []
    """Members of a tar beside the member of this name."""
    names_files_twice: bool = False
    """Every file was named twice for `tar`, which writes a hard link to itself."""


def renamed(change: Callable[[str], str]) -> tuple[Spoken, ...]:
    return tuple(replace(spoken, name=change(spoken.name)) for spoken in CORPUS)


def changed(number: int, **values: Any) -> tuple[Spoken, ...]:
    return tuple(
        replace(spoken, **values) if place == number else spoken
        for place, spoken in enumerate(CORPUS)
    )


def as_links(folder: Path) -> None:
    elsewhere = folder.with_name("elsewhere")
    elsewhere.mkdir()
    for file in [*folder.glob("*.wav")]:
        file.rename(elsewhere / file.name)
        file.symlink_to(elsewhere / file.name)


def with_apple_files(folder: Path) -> None:
    for file in [*folder.iterdir()]:
        file.with_name(f"._{file.name}").write_bytes(APPLE)


ODDITIES: dict[str, Oddity] = {
    "plain": Oddity(),
    "BOM": Oddity(of_tables=lambda data: b"\xef\xbb\xbf" + data),
    "CRLF": Oddity(of_tables=lambda data: data.replace(b"\n", b"\r\n")),
    "no end": Oddity(of_tables=lambda data: data.removesuffix(b"\n")),
    "blank": Oddity(of_tables=lambda data: data.replace(b"\n", b"\n\n", 1)),
    "dots": Oddity(renamed(lambda name: name.replace("_", ".0"))),
    "spaces": Oddity(renamed(lambda name: name.replace("_", " "))),
    "NFD": Oddity(renamed(lambda name: unicodedata.normalize("NFD", f"{name}ü"))),
    "case": Oddity(changed(1, name="ANNA_1")),
    "doubled": Oddity((*CORPUS, replace(CORPUS[0], text="sieben", seconds=0.7))),
    "empty": Oddity(changed(1, text="")),
    "missing": Oddity(changed(1, is_there=False)),
    "field": Oddity(changed(1, fields={"loudness": {"peak": [1, 2]}, "speaker": None})),
    "links": Oddity(of_folder=as_links),
    "apple": Oddity(of_folder=with_apple_files, more_members=lambda name: [(f"./._{name}", APPLE)]),
    "order": Oddity(CORPUS[::-1]),
    "twice": Oddity(names_files_twice=True),
}


def write_audio(folder: Path, oddity: Oddity) -> dict[Spoken, Path]:
    """Write the recordings; one that has the name of another lies in a folder of its own."""
    audio = folder / "audio"
    audio.mkdir()
    places: dict[Spoken, Path] = {}
    for spoken in oddity.corpus:
        place = audio / f"{spoken.name}.wav"
        if place in places.values():
            place = audio / "again" / place.name
            place.parent.mkdir()
        places[as_key(spoken)] = place
        if spoken.is_there:
            place.write_bytes(wav(spoken.seconds))

    oddity.of_folder(audio)
    return places


def as_key(spoken: Spoken) -> Any:
    return spoken.name, spoken.seconds


def write_lines(path: Path, oddity: Oddity, lines: list[str]) -> str:
    path.write_bytes(oddity.of_tables("".join(f"{line}\n" for line in lines).encode()))
    return str(path)


def raw(folder: Path, oddity: Oddity) -> str:
    places = write_audio(folder, oddity)
    lines = [
        json.dumps(
            {
                "key": spoken.name,
                "wav": str(places[as_key(spoken)]),
                "txt": spoken.text,
                **spoken.fields,
            },
            ensure_ascii=False,
        )
        for spoken in oddity.corpus
    ]
    return write_lines(folder / "data.list", oddity, lines)


def nemo(folder: Path, oddity: Oddity) -> str:
    places = write_audio(folder, oddity)
    lines = [
        json.dumps(
            {
                "audio_filepath": os.path.relpath(places[as_key(spoken)], folder),
                "duration": spoken.seconds,
                "text": spoken.text,
                **spoken.fields,
            }
        )
        for spoken in oddity.corpus
    ]
    return write_lines(folder / "manifest.json", oddity, lines)


def kaldi(folder: Path, oddity: Oddity) -> str:
    places = write_audio(folder, oddity)
    tables = folder / "tables"
    tables.mkdir()
    for name, value_of in (
        ("wav.scp", lambda spoken: str(places[as_key(spoken)])),
        ("text", lambda spoken: spoken.text),
    ):
        lines = [f"{spoken.name} {value_of(spoken)}" for spoken in oddity.corpus]
        write_lines(tables / name, oddity, lines)
    return str(tables)


def segments(folder: Path, oddity: Oddity) -> str:
    """One table more: each utterance is the whole of its recording but for 50 ms."""
    tables = kaldi(folder, oddity)
    names = [f"{spoken.name}-seg" for spoken in oddity.corpus]
    lines = [
        f"{name} {spoken.name} 0.05 {spoken.seconds}"
        for name, spoken in zip(names, oddity.corpus, strict=True)
    ]
    write_lines(Path(tables, "segments"), oddity, lines)
    texts = [f"{name} {spoken.text}" for name, spoken in zip(names, oddity.corpus, strict=True)]
    write_lines(Path(tables, "text"), oddity, texts)
    return tables


def separated(delimiter: str, suffix: str) -> Callable[[Path, Oddity], str]:
    def write(folder: Path, oddity: Oddity) -> str:
        places = write_audio(folder, oddity)
        table = io.StringIO()
        writer = csv.writer(table, delimiter=delimiter, lineterminator="\n")
        writer.writerow(["path", "sentence"])
        for spoken in oddity.corpus:
            writer.writerow([os.path.relpath(places[as_key(spoken)], folder), spoken.text])
        return write_lines(folder / f"table.{suffix}", oddity, table.getvalue().splitlines())

    return write


def beside(folder: Path, oddity: Oddity) -> str:
    """A text file beside each recording."""
    places = write_audio(folder, oddity)
    for spoken in oddity.corpus:
        path = places[as_key(spoken)].with_suffix(".txt")
        path.write_bytes(oddity.of_tables(f"{spoken.text}\n".encode()))
    return str(folder / "audio")


def members_of(oddity: Oddity) -> list[tuple[str, bytes]]:
    members: list[tuple[str, bytes]] = []
    for spoken in oddity.corpus:
        text = oddity.of_tables(f"{spoken.text}\n".encode()).rstrip(b"\n")
        parts = [(f"{spoken.name}.txt", text)]
        if spoken.is_there:
            parts.insert(0, (f"{spoken.name}.wav", wav(spoken.seconds)))
        if spoken.fields:
            parts.append((f"{spoken.name}.json", json.dumps(spoken.fields).encode()))
        for name, data in parts:
            members += [*oddity.more_members(name), (name, data)]
    return members


def add(file: tarfile.TarFile, name: str, data: bytes, oddity: Oddity) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    file.addfile(info, io.BytesIO(data))
    if oddity.names_files_twice:
        link = tarfile.TarInfo(name)
        link.type, link.linkname = tarfile.LNKTYPE, name
        file.addfile(link)


def tar(folder: Path, oddity: Oddity) -> str:
    with tarfile.open(folder / "a.tar", "w") as file:
        for name, data in members_of(oddity):
            add(file, name, data, oddity)
    return write_lines(folder / "shards.list", oddity, [f"{folder}/a.tar"])


def nemo_tar(folder: Path, oddity: Oddity) -> str:
    with tarfile.open(folder / "audio_0.tar", "w") as file:
        for spoken in oddity.corpus:
            members = [(f"{spoken.name}.wav", wav(spoken.seconds))] if spoken.is_there else []
            for name, data in [*oddity.more_members(f"{spoken.name}.wav"), *members]:
                add(file, name, data, oddity)

    lines = [
        json.dumps(
            {
                "audio_filepath": f"{spoken.name}.wav",
                "duration": spoken.seconds,
                "text": spoken.text,
                "shard_id": 0,
                **spoken.fields,
            }
        )
        for spoken in oddity.corpus
    ]
    return write_lines(folder / "tarred.json", oddity, lines)


def parquet(folder: Path, oddity: Oddity) -> str:
    rows = [
        {
            "id": spoken.name,
            "audio": {"bytes": wav(spoken.seconds) if spoken.is_there else None, "path": None},
            "text": spoken.text,
        }
        for spoken in oddity.corpus
    ]
    write_table(folder / "a.parquet", rows, 2)
    return str(folder / "a.parquet")


def lhotse(folder: Path, oddity: Oddity) -> str:
    places = write_audio(folder, oddity)
    lines = []
    for number, spoken in enumerate(oddity.corpus):
        samples = round(spoken.seconds * 8000)
        source = {"type": "file", "channels": [0], "source": str(places[as_key(spoken)])}
        recording = {
            "id": f"rec{number}",
            "sources": [source],
            "sampling_rate": 8000,
            "num_samples": samples,
            "duration": spoken.seconds,
            "channel_ids": [0],
        }
        supervision = {
            "id": spoken.name,
            "recording_id": f"rec{number}",
            "start": 0.0,
            "duration": spoken.seconds,
            "channel": 0,
            "text": spoken.text,
            "custom": spoken.fields or None,
        }
        cut = {
            "id": spoken.name,
            "start": 0.0,
            "duration": spoken.seconds,
            "channel": 0,
            "supervisions": [supervision],
            "recording": recording,
            "type": "MonoCut",
        }
        lines.append(json.dumps(cut))
    return write_lines(folder / "cuts.jsonl", oddity, lines)


LAYOUTS: dict[str, Callable[[Path, Oddity], str]] = {
    "raw": raw,
    "nemo": nemo,
    "kaldi": kaldi,
    "segments": segments,
    "csv": separated(",", "csv"),
    "tsv": separated("\t", "tsv"),
    "beside": beside,
    "tar": tar,
    "nemo tar": nemo_tar,
    "parquet": parquet,
    "lhotse": lhotse,
}
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
Arrived = list[tuple[float, str]]
"""(seconds, text) of each utterance that came out."""


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


def is_named(spoken: Spoken, oddity: Oddity, output: str) -> bool:
    """Whether what a tool printed names an utterance."""
    row_of_parquet = f"_{oddity.corpus.index(spoken):06d}:"
    names = (spoken.name, "_".join(spoken.name.split()), f"{spoken.name}-seg", row_of_parquet)
    return any(name in output for name in names)


def outcome(tool: Tool, layout: str, oddity: Oddity, path: str, folder: Path) -> str:
    printed = io.StringIO()
    arrived: Arrived = []
    refused = ""
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            arrived = tool(layout, path, folder)
    except (ValueError, OSError) as error:
        printed.write(str(error))
        refused = str(error)

    output = printed.getvalue()
    cut = 0.05 if layout == "segments" else 0.0
    expected = Counter((round(spoken.seconds - cut, 2), spoken.text) for spoken in oddity.corpus)
    rest = Counter((round(seconds, 2), text) for seconds, text in arrived)
    lost = [
        spoken
        for spoken in oddity.corpus
        if (round(spoken.seconds - cut, 2), spoken.text) not in rest
    ]
    surplus = rest - expected
    if surplus:
        return f"changed: {dict(surplus)}; {output[-300:]}"
    silent = [
        spoken.name for spoken in lost if not (is_named(spoken, oddity, output) or path in refused)
    ]
    if silent:
        return f"silent: {silent}; {output[-300:]}"
    return "named" if lost else "arrives"


def content_of(folder: Path) -> dict[str, tuple[bool, bytes]]:
    """The files below a folder: whether each is a link, and its content without the folder's name."""
    return {
        str(file.relative_to(folder)): (
            file.is_symlink(),
            file.read_bytes().replace(str(folder).encode(), b"FOLDER"),
        )
        for file in folder.rglob("*")
        if file.is_file()
    }


def is_read_by_worker(layout: str, title: str) -> bool:
    """Whether the loader of training reads a cell: every fifth, so that each layout and each oddity
    has its turn.
    """
    number = list(LAYOUTS).index(layout) + list(ODDITIES).index(title)
    return number % LOADER_CELLS == 0


def cells(folder: Path) -> Iterator[tuple[str, str, str, str]]:
    for layout, write in LAYOUTS.items():
        plain: dict[str, tuple[bool, bytes]] = {}
        for title, oddity in ODDITIES.items():
            for name, (tool, layouts) in TOOLS.items():
                if layout not in layouts:
                    continue

                place = folder / f"{layout}-{title}-{name}".replace(" ", "-")
                place.mkdir()
                path = write(place, oddity)
                content = content_of(place)
                if title == "plain":
                    plain = content
                elif content == plain:
                    yield layout, title, name, SAME_AS_PLAIN
                    continue

                if name == "loader" and is_read_by_worker(layout, title):
                    tool = through_loader
                yield layout, title, name, outcome(tool, layout, oddity, path, place)


def table(results: list[tuple[str, str, str, str]]) -> str:
    """A line for each layout and tool, a letter for each oddity."""
    marks = {(layout, tool, oddity): what[0] for layout, oddity, tool, what in results}
    lines = [f"{'':28}" + " ".join(f"{oddity:7}" for oddity in ODDITIES)]
    for layout, tool in dict.fromkeys((layout, tool) for layout, _, tool, _ in results):
        row = (f"{marks[layout, tool, oddity]:7}" for oddity in ODDITIES)
        lines.append(f"{layout:10} {tool:17}" + " ".join(row))
    return "\n".join(line.rstrip() for line in lines)


def test_every_utterance_of_every_list_arrives_once_or_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    results = list(cells(tmp_path))
    print(table(results))
    trials = [cell for cell in results if cell[3] != SAME_AS_PLAIN]
    assert len(trials) >= 300
    assert [cell for cell in trials if cell[3] not in ("arrives", "named")] == []

    # What is only another way of writing the same arrives.
    harmless = {*ODDITIES} - {"spaces", "doubled", "empty", "missing"}
    assert [cell for cell in trials if cell[1] in harmless and cell[3] != "arrives"] == []

    page = PAGE.read_text(encoding="utf-8")
    assert indent(table(results), "    ") in page
    assert f"{len(trials)} cells" in page


def test_a_cell_with_the_files_of_the_plain_cell_is_no_trial(tmp_path):
    """A tar has no links to audio in other folders, and parquet no lines."""
    contents = {}
    for layout, title in [("tar", "plain"), ("tar", "links"), ("raw", "plain"), ("raw", "links")]:
        place = tmp_path / f"{layout}-{title}"
        place.mkdir()
        LAYOUTS[layout](place, ODDITIES[title])
        contents[layout, title] = content_of(place)

    assert contents["tar", "plain"] == contents["tar", "links"]
    assert contents["raw", "plain"] != contents["raw", "links"]


def test_the_loader_of_training_reads_cells_of_every_layout_and_most_oddities():
    read = [
        (layout, title)
        for layout in TOOLS["loader"][1]
        for title in ODDITIES
        if is_read_by_worker(layout, title)
    ]
    assert {layout for layout, _ in read} == {*TOOLS["loader"][1]}
    assert {"missing", "empty", "doubled", "spaces"} <= {title for _, title in read}


def test_the_prose_of_the_page_has_at_most_100_columns():
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > 100 and not line.startswith("    ")] == []
