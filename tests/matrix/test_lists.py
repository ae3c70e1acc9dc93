"""Layouts x oddities x tools: every utterance arrives once with its text, or is named.

Each cell is a corpus of three recordings, written in one layout with one oddity, that enters by one
tool. `arrives`: each recording comes out once, with its text. `named`: one that does not is named
by key, file or line, and all others arrive; or the whole list is refused by name. Any other cell
fails the test. An oddity that a layout cannot have writes the files of the plain cell: such cells
are no trials, and are not counted. The table is printed: `pytest -s --all tests/matrix`.

The tool `loader` reads through the corpus; for one cell in LOADER_CELLS it is the loader of
training, with a worker process and its list of bad samples.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from textwrap import indent

import pytest

from tests.support.lists.layouts import LAYOUTS
from tests.support.lists.oddities import ODDITIES, Oddity, Spoken
from tests.support.lists.readers import TOOLS, Arrived, Tool, through_loader

PAGE = Path(__file__).parents[2] / "docs/concepts/nothing-silent.md"
SAME_AS_PLAIN = "-"
"""Outcome of a cell whose files are those of the plain cell."""
LOADER_CELLS = 5
"""Of so many cells of the tool `loader`, one has a worker process."""


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


def cells(folder: Path, every: bool) -> Iterator[tuple[str, str, str, str]]:
    """Yield (layout, oddity, tool, outcome) of every cell, or of a third of them."""
    for row, (layout, write) in enumerate(LAYOUTS.items()):
        plain: dict[str, tuple[bool, bytes]] = {}
        for column, (title, oddity) in enumerate(ODDITIES.items()):
            for number, (name, (tool, layouts)) in enumerate(TOOLS.items()):
                is_left_out = not every and title != "plain" and (row + column + number) % 3
                if layout not in layouts or is_left_out:
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


def check_trials(results: list[tuple[str, str, str, str]]) -> list[tuple[str, str, str, str]]:
    trials = [cell for cell in results if cell[3] != SAME_AS_PLAIN]
    assert [cell for cell in trials if cell[3] not in ("arrives", "named")] == []

    # What is only another way of writing the same arrives.
    harmless = {*ODDITIES} - {"spaces", "doubled", "empty", "missing"}
    assert [cell for cell in trials if cell[1] in harmless and cell[3] != "arrives"] == []
    return trials


def test_every_utterance_of_a_third_of_the_lists_arrives_once_or_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    trials = check_trials(list(cells(tmp_path, every=False)))
    assert {layout for layout, *_ in trials} == {*LAYOUTS}
    assert {title for _, title, *_ in trials} == {*ODDITIES}
    assert {tool for *_, tool, _ in trials} == {*TOOLS}


@pytest.mark.all
def test_every_utterance_of_every_list_arrives_once_or_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    results = list(cells(tmp_path, every=True))
    print(table(results))
    trials = check_trials(results)
    assert len(trials) >= 300

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
