"""Properties of all commands of wenet_uio.bin."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

import wenet_uio.bin
from wenet_uio.bin import launch

FILES = [
    path for path in Path(wenet_uio.bin.__file__).parent.glob("*.py") if path.stem != "__init__"
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_command_imports_no_other_command(path):
    names = {
        name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in (
            [node.module]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in getattr(node, "names", [])]
        )
    }
    assert not [name for name in names if name.startswith("wenet_uio.bin")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_command_explains_its_options(path, capsys):
    with pytest.raises(SystemExit) as end:
        import_module(f"wenet_uio.bin.{path.stem}").main(["--help"])
    assert end.value.code == 0
    assert "--" in capsys.readouterr().out


def test_launch_explains_what_it_adds_to_torchrun(capsys):
    with pytest.raises(SystemExit):
        launch.main(["--help"])
    assert "-m wenet_uio.bin.train" in capsys.readouterr().out
