"""The cells of the matrix of ends: a row, a column and an event each."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product

from tests.support.ends import columns, rows
from tests.support.ends.columns import COLUMNS, CROSSED, INTERVALS, NORMS, TYPES, Column
from tests.support.ends.events import EVENTS, NONE, OUT_OF_MEMORY, SPOILS
from tests.support.ends.rows import ROWS

SEED, TRIPLES = 57, 40
GREEN = "green"


@dataclass(frozen=True)
class Cell:
    """A whole road: what is read, how it is trained, and what goes wrong."""

    row: str = rows.USUAL
    column: str = columns.USUAL
    event: str = NONE

    def __str__(self) -> str:
        return f"{self.row} | {self.column} | {self.event}"

    @property
    def training(self) -> Column:
        """How the model is trained."""
        return (COLUMNS | CROSSED)[self.column]

    @property
    def expected(self) -> str:
        """How the road ends, by the records of its row and column."""
        reason = self.training.obstacle or ROWS[self.row].refused
        return f"cannot, because {reason}" if reason else GREEN


def drawn_triples() -> list[Cell]:
    """Return TRIPLES random cells in which training is possible."""
    draw = random.Random(SEED)
    possible_rows = [name for name, row in ROWS.items() if not row.refused]
    possible_columns = [
        name for name, column in COLUMNS.items() if not column.obstacle and not column.package
    ]
    return [
        Cell(draw.choice(possible_rows), draw.choice(possible_columns), draw.choice(EVENTS))
        for _ in range(TRIPLES)
    ]


MAIN_CELLS = list(
    dict.fromkeys(
        [
            *(Cell(row=row) for row in ROWS),
            *(Cell(column=column) for column in COLUMNS),
            *(Cell(column=column, event=event) for column, event in product(CROSSED, EVENTS)),
        ]
    )
)
"""Cells whose ends the records of their row and column say."""
USUAL = [
    Cell(),
    Cell("shards", "family transducer"),
    Cell("feats.scp, raw", "two ranks"),
    Cell("mat.npy and label.txt", "--from"),
    Cell("source nemo_tarred", "batch norm, fp16, log of each step", next(iter(SPOILS))),
    Cell("source group", "batch norm, fp32, log of each step", OUT_OF_MEMORY),
    Cell("source txt"),
]
"""Cells that run in every change: kinds of rows, columns and events, as few cells as have them."""
CELLS = list(dict.fromkeys([*MAIN_CELLS, *USUAL, *drawn_triples()]))
NOT_IN_ONNX = Cell(column="family paraformer")
"""With little training it says `<blank>`, which sherpa-onnx prints and a checkpoint leaves out, so
its export is refused. tests/export has it."""
WITH_ONNX = {Cell(column=column) for column in COLUMNS} - {*USUAL, NOT_IN_ONNX}
"""Cells that export to ONNX, too: the graph depends on the model alone."""


def page_lines() -> list[str]:
    """Return the tables of the manual: the rows, the columns, and the events with their columns."""
    lines = ["what is read"]
    lines += [f"    {name:33} {Cell(row=name).expected}" for name in ROWS]
    lines += ["how it is trained"]
    for name, column in COLUMNS.items():
        condition = f", where {column.package} is installed" if column.package else ""
        lines.append(f"    {name:33} {Cell(column=name).expected}{condition}")

    crossed = "; ".join(", ".join(names) for names in (NORMS, TYPES, INTERVALS))
    lines += [f"what goes wrong (with {crossed} in the log)"]
    lines += [f"    {event:38} {GREEN}" for event in EVENTS if event != NONE]
    return lines
