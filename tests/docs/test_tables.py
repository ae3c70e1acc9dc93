"""Tables of the documents have a row for everything that the code has."""

import re
from pathlib import Path

from wenet_uio.config.encoder_kind import ENCODERS
from wenet_uio.config.family import FAMILIES
from wenet_uio.config.source import SOURCES
from wenet_uio.dataset.kinds.audio import STEPS
from wenet_uio.search.modes import known_modes

ROOT = Path(__file__).resolve().parents[2]


def tables(page):
    """The cells of each row of each table of a page; a header is the first row of its table."""
    made, inside = [], False
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("|") and not inside:
            made.append([])

        inside = line.startswith("|")
        if inside:
            made[-1].append([cell.strip() for cell in line.strip("|").split("|")])

    return made


def column(page, number):
    """One column of all tables of a page, as one text."""
    return "\n".join(row[number] for table in tables(page) for row in table if len(row) > number)


def test_the_list_of_recipes_has_every_folder_of_examples():
    folders = {
        path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("examples/*/*/run.sh")
    }
    assert set(re.findall(r"`(examples/[^`]+)`", column("docs/reference/recipes.md", 0))) == folders


def test_the_table_of_decode_modes_has_those_of_every_family():
    listed = re.findall(r"^`(\w+)`$", column("docs/reference/recipes.md", 0), re.MULTILINE)
    assert set(known_modes()) - set(listed) == set()


def test_the_tables_of_encoders_families_and_sources_have_every_name_of_the_yaml():
    for page, names in (
        ("wenet_uio/models/encoders/README.md", ENCODERS),
        ("wenet_uio/families/README.md", FAMILIES),
        ("wenet_uio/dataset/sources/README.md", SOURCES),
    ):
        cells = column(page, 1)
        missing = [name for name in names if not re.search(rf"\b{name}\b", cells)]
        assert missing == [], page


def test_both_lists_of_the_steps_of_the_chain_have_every_step_in_order():
    chain = (ROOT / "wenet_uio/dataset/chain/README.md").read_text(encoding="utf-8")
    assert ", ".join(STEPS) in " ".join(chain.split())
    operator = (ROOT / "docs/how-to/operator.md").read_text(encoding="utf-8")
    assert ", ".join(f"`{step}`" for step in STEPS) in " ".join(operator.split())


def test_the_files_in_the_tables_of_the_package_exist():
    named = []
    for page in (ROOT / "wenet_uio").glob("**/README.md"):
        cells = [row[0] for table in tables(page) if table[0][0] == "file" for row in table]
        files = re.findall(r"`([\w./]+\.py)`", "\n".join(cells))
        named += files
        assert [name for name in files if not (page.parent / name).is_file()] == [], page

    assert len(named) > 150
