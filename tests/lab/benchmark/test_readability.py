"""readability.py: what it counts in a small tree."""

from __future__ import annotations

import json

import pytest

from tests.lab.benchmark.test_benchmarks import benchmark

MODULE = '''"""A docstring that is no code."""

SIZE = 3  # a comment
# another comment


def doubled(values):
    """Double values."""
    found = [2 * value for value in values]

    total = sum(found)
    return total


class Box:
    size: int
    """A docstring of a field."""

    def open(self):
        each = 1
        return each
'''


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "module.py").write_text(MODULE)
    return tmp_path


def test_the_figures_of_a_small_tree(tree):
    done = benchmark("readability.py", tree, "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["trees"]
    assert row["code_lines"] == 10
    assert row["comments_per_100"] == 20.0
    assert row["blank_percent_in_functions"] == round(100 / 6, 2)
    assert row["vague_locals_per_1000"] == 200.0
    assert row["mean_code_length"] > 5


def test_the_same_seed_gives_the_same_functions(tree):
    first, second = (
        benchmark("readability.py", tree, "--functions", "1", "--seed", "5").stdout for _ in "12"
    )
    assert first == second
    assert first.strip().endswith("doubled")  # the other has two statements


def test_a_folder_without_python_is_refused(tmp_path):
    done = benchmark("readability.py", tmp_path)
    assert done.returncode == 1
    assert "no Python file there" in done.stderr
