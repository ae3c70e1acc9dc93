from pathlib import Path

import pytest

from wenet_uio.cli import listed, run


def test_all_of_a_few_items_are_listed():
    assert listed(["a", "b"], 2) == "a, b"
    assert listed([], 2) == ""


def test_the_first_of_many_items_are_listed_and_the_others_counted():
    assert listed(dict.fromkeys("abcd"), 2) == "a, b and 2 more"
    assert listed(["a", "b", "c"], 1, "; ") == "a and 2 more"


def test_an_error_of_the_system_begins_with_the_name_of_the_file(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        run(lambda: Path(tmp_path / "missing.yaml").unlink())
    assert end.value.code == 1
    assert capsys.readouterr().err == f"error: {tmp_path}/missing.yaml: No such file or directory\n"
