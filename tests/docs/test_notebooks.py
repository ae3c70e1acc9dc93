"""The notebooks run from the first cell to the last, without Jupyter, and are stored without
outputs.
"""

import json
import sys
from types import ModuleType
from typing import Any

import pytest

from tests.support.docs.blocks import DOCS

NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


@pytest.fixture
def plain_python(monkeypatch, tmp_path):
    """Pictures go to no window, files to the folder of the test; without IPython, sounds and
    pictures are dropped.
    """
    import matplotlib
    from matplotlib import pyplot

    for name in ("MODEL", "RECORDING", "REFERENCES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    try:
        import IPython.display  # noqa: F401 # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        display = ModuleType("IPython.display")
        vars(display).update(Audio=lambda samples, rate, **_: samples, display=lambda shown: None)
        package = ModuleType("IPython")
        # Matplotlib asks for them
        vars(package).update(version_info=(9, 0), get_ipython=lambda: None)
        monkeypatch.setitem(sys.modules, "IPython", package)
        monkeypatch.setitem(sys.modules, "IPython.display", display)
    matplotlib.use("Agg")
    yield
    pyplot.close("all")


def code_of(path):
    """The code of the cells, each with the name that a traceback shows."""
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            yield compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec")


def run(name):
    """Run the cells of a notebook; its names."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for code in code_of(DOCS / "notebooks" / f"{name}.ipynb"):
        exec(code, names)
    return names


@pytest.mark.all
def test_an_epoch_is_planned(plain_python):
    names = run("plan")
    assert names["reports"]["dynamic"].padding < names["reports"]["static"].padding


def test_sounds_are_augmented(plain_python):
    names = run("operators")
    plain = names["plain"].feats
    for name in ("noisy", "room", "telephone", "louder", "covered"):
        assert not plain.equal(names[name].feats), name


def test_errors_of_two_recognisers_are_compared(plain_python):
    names = run("errors")
    assert "FIVE" in names["page"].read_text(encoding="utf-8")
    assert names["confusions"](names["scores"]["first"]).most_common(1)[0][0] == ("NINE", "FIVE")


def test_a_file_is_streamed_to_a_recogniser_that_was_trained_in_the_notebook(plain_python):
    names = run("stream")
    assert names["recogniser"].obstacle == ""
    assert names["result"].text == names["whole"].text == "low high middle low high"


def test_notebooks_are_stored_without_outputs_and_the_page_lists_them():
    page = (DOCS / "notebooks" / "index.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 4
    for path in NOTEBOOKS:
        assert f"({path.name})" in page
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            assert cell.get("outputs", []) == []
            assert cell.get("execution_count") is None
