"""The pages of the Python API have every public name, argument and method."""

import inspect
import re
from functools import partial

import pytest

import wenet_uio
import wenet_uio.dataset
from docs.generator.pages import API
from docs.generator.python_api import api_pages, docstring
from wenet_uio.base.imports import installed


@pytest.fixture(scope="module")
def made():
    return api_pages()


PUBLIC = [
    (page, name, value)
    for page, package in (("dataset.md", wenet_uio.dataset), ("recogniser.md", wenet_uio))
    for name, value in installed(package.__all__, partial(getattr, package))
    if not name.startswith("__")
]


@pytest.mark.parametrize(
    ("page", "name", "value"), PUBLIC, ids=lambda part: part if isinstance(part, str) else ""
)
def test_a_public_name_is_on_the_page_with_its_arguments_and_methods(page, name, value, made):
    section = made[page].split(f"\n## {name}\n")[1].split("\n## ")[0]
    assert inspect.getdoc(value).split()[0].strip(".:;") in section
    own = (
        value
        if inspect.isfunction(value)
        else vars(value).get("__init__") or vars(value).get("__new__")
    )
    known = inspect.signature(own).parameters if own else {}
    shown = re.findall(r"\w+", section)
    assert [each for each in known if each not in ("self", "_cls", *shown)] == []
    assert "Initialize self" not in section
    for method in vars(value) if inspect.isclass(value) else ():
        if not method.startswith("_") and inspect.isroutine(vars(value)[method]):
            assert f"### {name}.{method}\n" in section


def test_the_pages_are_part_of_the_manual_and_have_no_address_of_an_object(made):
    assert API == "reference/api"
    assert made.keys() == {"dataset.md", "recogniser.md"}
    assert [
        name for name, text in made.items() if re.search(r" at 0x|<class|<function", text)
    ] == []


def test_arguments_and_errors_of_a_docstring_become_lists():
    arguments = "Args:\n    some_key: what\n        it is.\n    other: b."
    text = f"One line.\n\n{arguments}\n\nReturns:\n    a\n    c.\n\nRaises:\n    OSError: d."
    assert docstring(text) == (
        "One line.\n\n**Arguments**\n\n- `some_key`: what it is.\n- `other`: "
        "b.\n\n**Returns**\n\na c.\n\n"
        "**Raises**\n\n- `OSError`: d."
    )
