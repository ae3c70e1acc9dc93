"""What is read x how it is trained x what goes wrong: every road is walked to its end.

Each cell trains two epochs with default settings, is stopped in the middle of the second one and
resumed, is averaged, recognises with every mode, is scored, exported, and transcribes. The law of a
cell is in tests/support/ends/road.py. The usual roads run in every change, all cells with `--all`.
The table is printed: `pytest -s tests/matrix/test_ends.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from textwrap import indent

import pytest

from tests.dataset.test_formats import FORMATS
from tests.support.ends.cells import CELLS, MAIN_CELLS, USUAL, Cell, page_lines
from tests.support.ends.columns import COLUMNS
from tests.support.ends.road import walk
from tests.support.ends.rows import ROWS
from wenet_uio.config.encoder_kind import ENCODERS, encoder_kind
from wenet_uio.config.family import families
from wenet_uio.config.source import SOURCES
from wenet_uio.dataset.kinds.kind import KINDS

PAGE = Path(__file__).parents[2] / "docs/concepts/ends.md"


@pytest.fixture(scope="module")
def table() -> Iterator[dict[Cell, str]]:
    """{cell: its outcome}, printed at the end."""
    outcomes: dict[Cell, str] = {}
    yield outcomes
    print("\n".join(f"{cell}: {outcome}" for cell, outcome in outcomes.items()))


@pytest.mark.parametrize(
    "cell",
    [pytest.param(cell, marks=() if cell in USUAL else pytest.mark.all) for cell in CELLS],
    ids=str,
)
def test_a_road_ends_with_every_file_and_with_the_bits_of_a_quiet_run(
    cell: Cell, table: dict[Cell, str], tmp_path: Path
) -> None:
    package = cell.training.package
    if package and not find_spec(package):
        table[cell] = f"cannot, because {package} is not installed"
        pytest.skip(f"{package} is not installed")

    table[cell] = "fails"
    outcome = walk(cell, tmp_path)
    if cell in MAIN_CELLS:
        assert cell.expected.removeprefix("cannot, because ") in outcome
    table[cell] = outcome


def test_every_kind_of_sample_type_of_source_and_list_format_is_a_row() -> None:
    assert {kind for row in ROWS.values() for kind in row.kinds} == set(KINDS)
    assert {source for row in ROWS.values() for source in row.sources} == set(SOURCES)
    assert {f"list format {form}" for form in FORMATS if form != "raw"} <= ROWS.keys()


def test_every_family_and_every_encoder_is_a_column() -> None:
    assert {f"family {family.name}" for family in families()} <= COLUMNS.keys()
    trained = [column.keys.get("encoder") for column in COLUMNS.values()]
    kinds = {id(encoder_kind(name)) for name in trained if name}
    assert kinds == {id(encoder_kind(name)) for name in ENCODERS}


def test_the_usual_roads_are_cells() -> None:
    assert set(USUAL) <= set(CELLS)


def test_the_manual_shows_the_rows_the_columns_and_the_events() -> None:
    assert indent("\n".join(page_lines()), "    ") in PAGE.read_text()
