"""examples.yaml: what a model tells people who do not know what to say."""

from __future__ import annotations

import logging
import shutil

import pytest

import wenet_uio
from tests.addons.listen.conftest import write_model
from wenet_uio.addons.listen.examples import Examples, read_examples, write_examples

EXAMPLES = Examples(
    ("turn on the light", "打开灯", "<script>alert(1)</script>", "it's: 'quoted' # no comment"),
    ("no", "on", "yes", "1", "1_000", "null", "2026-11-29", "é"),
    ("en", "no"),
)


def test_texts_that_yaml_reads_as_other_values_come_back_as_they_are(tmp_path):
    path = write_examples(tmp_path, EXAMPLES)
    assert path.name == "examples.yaml"
    assert read_examples(tmp_path) == EXAMPLES


def test_a_model_without_the_file_says_nothing(tmp_path):
    assert read_examples(tmp_path) == Examples()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("sentences: [one", "not yaml"),
        ("- one\n", "expected lists of texts: sentences, words, languages"),
        ("sentence: [one]\n", "expected lists of texts"),
        ("words: one\n", "words: expected a list of at most 200 texts"),
        (f"words: [{', '.join(['a'] * 201)}]\n", "at most 200 texts"),
        ("words: [one, true]\n", "words: expected texts, found True; put it in quotes"),
        (f"sentences: [{'a' * 201}]\n", "a text of 201 characters, at most 200"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_warning_and_the_model_is_loaded(
    tmp_path, caplog, content, why
):
    folder = write_model(tmp_path / "model")
    written = content if isinstance(content, bytes) else content.encode()
    (folder / "examples.yaml").write_bytes(written)
    with caplog.at_level(logging.WARNING):
        recogniser = wenet_uio.load_model(folder, device="cpu")
    assert recogniser.examples == Examples()
    (message,) = caplog.messages
    assert str(folder / "examples.yaml") in message
    assert why in message
    assert message.count("\n") == 0


def test_the_examples_of_a_run_that_was_moved_and_of_its_weights_are_those_of_its_folder(tmp_path):
    folder = write_model(tmp_path / "model")
    write_examples(folder, EXAMPLES)
    moved = tmp_path / "moved"
    shutil.move(folder, moved)
    for path in (moved, moved / "final.pt"):
        assert wenet_uio.load_model(path, device="cpu").examples == EXAMPLES
