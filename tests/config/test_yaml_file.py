"""Hostile yaml files: each is refused with one error that begins with the path, in little time and
memory.
"""

import re
from pathlib import Path

import pytest
import yaml

from wenet_uio.config import ConfigError, load_config
from wenet_uio.config.mixture import load_mixture
from wenet_uio.config.yaml_file import MOST_BYTES, parse_yaml, read_yaml


def laughs(levels, by=10, use="[{}]"):
    """Aliases of aliases: 10 ** levels values in a few lines."""
    lines = ["a0: &a0 {x: lol}"]
    lines += [
        f"a{n}: &a{n} " + use.format(", ".join([f"*a{n - 1}"] * by)) for n in range(1, levels)
    ]
    return "\n".join(lines).encode()


HOSTILE = {
    "a billion laughs": (laughs(10), "more than 1048576 values"),
    "a billion merges": (laughs(10, use="{{<<: [{}]}}"), "more than 1048576 values"),
    "an alias of itself": (b"a: &a [*a, *a]", "more than 1048576 values"),
    "a mapping of itself": (b"&a {b: *a}", "more than 1048576 values"),
    "an alias of nothing": (b"a: *b", "not yaml: .*undefined alias"),
    "deep lists": (b"[" * 1000, "nested too deeply"),
    "deep mappings": (b"{a: " * 100_000, "nested too deeply"),
    "deep blocks": (b"- " * 50_000, "nested too deeply"),
    "deep groups": (
        b"[{type: group, input_cfg: " * 2000 + b"x" + b"}]" * 2000,
        "nested too deeply",
    ),
    "UTF-16": (
        "encoder: conformer\n".encode("utf-16"),
        r"not UTF-8 \(.* at byte 0\); convert the file with iconv",
    ),
    "Latin-1": ("data: caf\xe9.list\n".encode("latin-1"), "not UTF-8"),
    "NUL": (b"data: a\0b\n", "not yaml: .*special characters are not allowed"),
    "a tab for blanks": (b"a:\n\tb: 1\n", "not yaml: .*cannot start any token"),
    "an object of Python": (
        b"!!python/object/apply:os.system [id]",
        "not yaml: .*could not determine a constructor",
    ),
    "a key that is a list": (b"? [a]\n: b\n", "not yaml: .*unhashable key"),
    "a key given twice": (
        b"max_epoch: 1\n\nmax_epoch: 2\n",
        "yaml: line 3: the key max_epoch is given twice, first on",
    ),
    "a key of a section given twice": (
        b'a:\n- b: {c: 1, d: 2, "c": 1}\n',
        "line 2: the key c is given twice, first on",
    ),
    "two documents": (b"a: 1\n---\nb: 2\n", "not yaml: expected a single document"),
    "a date that does not exist": (b"encoder: 2024-13-45\n", "not yaml: month must be"),
    "a number of 5000 digits": (b"accum_grad: " + b"9" * 5000, "not yaml: Exceeds the limit"),
    "binary": (bytes(range(256)), "not UTF-8"),
    "an open quote": (b'data: "a\n', "not yaml: .*unexpected end of stream"),
    "keys that are numbers": (b"1: 2\n", "1: Keys should be strings|expected a list|sources"),
    "nothing": (b"", "expected .*, found NoneType"),
    "a word": (b"hello", "expected .*, found str"),
    "a long word": (b"data: [" + b"x" * 100_000 + b"]", "problem|data: |sources"),
}


@pytest.mark.parametrize("load", [load_config, load_mixture])
@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_refused_with_its_path(tmp_path, load, case):
    content, message = HOSTILE[case]
    path = tmp_path / "a.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert re.search(message, str(caught.value)), str(caught.value)[:500]
    assert len(str(caught.value)) < 5000


def test_an_endless_file_is_refused(tmp_path):
    (tmp_path / "a.yaml").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match=f"more than {MOST_BYTES >> 20} MiB"):
        read_yaml(tmp_path / "a.yaml")


def test_a_folder_and_a_missing_file_are_refused_with_their_paths(tmp_path):
    for path, reason in (
        (tmp_path, "Is a directory"),
        (tmp_path / "none.yaml", "No such file or directory"),
    ):
        with pytest.raises(ConfigError, match=f"^{path}: {reason}$"):
            read_yaml(path)


def test_aliases_merges_and_a_byte_order_mark_are_read(tmp_path):
    (tmp_path / "a.yaml").write_text(
        "\ufeffa: &a {x: 1}\nb: {<<: *a, y: 2}\nc: [*a, *a]\n", encoding="utf-8"
    )
    assert read_yaml(tmp_path / "a.yaml") == {
        "a": {"x": 1},
        "b": {"x": 1, "y": 2},
        "c": [{"x": 1}, {"x": 1}],
    }


def test_equal_keys_of_different_sections_and_several_merges_are_no_repetition(tmp_path):
    # Of a key in both merges, PyYAML 6.0.4 takes the first value and older releases the last.
    text = "a: &a {x: 1}\nb: &b {z: 3}\nc: {<<: *a, x: 4}\nd: {<<: *a, <<: *b}\n1: 1\n'1': 2\n"
    (tmp_path / "a.yaml").write_text(text)
    values = {"a": {"x": 1}, "b": {"z": 3}, "c": {"x": 4}, "d": {"x": 1, "z": 3}, 1: 1, "1": 2}
    assert read_yaml(tmp_path / "a.yaml") == values


@pytest.mark.parametrize("value", ["[" * 1000, "*x", "2024-13-45", "[1"])
def test_an_override_that_is_not_yaml_is_named(tmp_path, value):
    (tmp_path / "a.yaml").write_text("encoder: conformer\n")
    with pytest.raises(ConfigError, match=r"^--override_config accum_grad="):
        load_config(tmp_path / "a.yaml", [f"accum_grad={value}"])


READ_DIFFERENTLY = (
    "a: !",
    "a: |#",
    "a: >#",
    "a: >",
    "? a",
    "a:\tb",
    "a: [b:c]",
    "{a:1}",
    "a: 'b\n\n c'",
    "a: 1_0",
    "<<: {a: 1}",
)
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_parser_in_c_gives_what_the_parser_in_python_gives(monkeypatch):
    texts = [
        *READ_DIFFERENTLY,
        *(path.read_text() for path in EXAMPLES.glob("fsdd/s0/conf/*.yaml")),
    ]

    def read(text):
        try:
            return parse_yaml(text, "a.yaml")
        except ConfigError as error:
            return str(error)

    assert len(texts) > len(READ_DIFFERENTLY)
    with_c = list(map(read, texts))
    monkeypatch.delattr(yaml, "CSafeLoader")
    assert list(map(read, texts)) == with_c
