"""A recipe is a folder in the form of examples/fsdd/s0, with a preparation of its own corpus.

The toy corpus here has a table of texts beside its audio. The recipe is added in exactly the places
that CONTRIBUTING.md names; stages 0 to 3 run in both modes.
"""

import re

import pytest

from tests.examples.test_corpora import call, listed_texts, recipe
from tests.support.recipes.files import lines, noise
from wenet_uio.text.table import read_table

__all__ = ["recipe"]

PREPARE = '''\
#!/usr/bin/env python3
"""A toy corpus: 12 recordings of noise, 0.01 hours, 16 kHz. Nobody may use it.

Layout: `texts.tsv` with `name<TAB>part<TAB>text`, and `{name}.wav` beside it.
"""

from __future__ import annotations

from wenet_uio.base.cli import run
from wenet_uio.prepare.corpus_parts import Recording, preparation_parser, write_parts


def main() -> None:
    """Read the table, and write the parts."""
    args = preparation_parser(__doc__, "folder with texts.tsv").parse_args()
    table = args.corpus / "texts.tsv"
    if not table.is_file():
        raise ValueError(f"no {table}: name the corpus with --data")

    parts: dict[str, list[Recording]] = {"train": [], "dev": [], "test": []}
    for line in table.read_text().splitlines():
        name, part, text = line.split("\\t")
        parts[part].append(Recording(name, args.corpus / f"{name}.wav", text))

    write_parts(args.out, parts)


if __name__ == "__main__":
    run(main)
'''


@pytest.fixture
def toy(recipe):
    """The folder of the recipe."""
    form = recipe("fsdd")
    folder = form.parents[1] / "toy" / "s0"
    folder.parent.mkdir()
    form.rename(folder)
    (folder / "local" / "prepare_data.py").write_text(PREPARE)
    (folder / "local" / "download.sh").unlink()
    return folder


def test_its_stages_run_and_its_help_is_its_own(toy, tmp_path):
    corpus, expected = tmp_path / "corpus", {"train": {}, "dev": {}, "test": {}}
    for number in range(12):
        part = ("train", "train", "dev", "test")[number % 4]
        noise(corpus / f"n{number}.wav")
        expected[part][f"n{number}"] = f"word {'abc'[number % 3]}"

    rows = [f"{key}\t{part}\t{text}" for part in expected for key, text in expected[part].items()]
    lines(corpus / "texts.tsv", *rows)
    for data_type, stage in (("raw", "0"), ("shard", "3")):
        result = call(
            "bash", toy / "run.sh", "--data", corpus, "--nj", "1", "--data_type", data_type,
            "--stage", stage, "--stop_stage", "3", cwd=tmp_path,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        for part, texts in expected.items():
            assert read_table(toy / "data" / part / "text") == texts
            assert listed_texts(toy, part, data_type) == texts

    shown = call("bash", toy / "run.sh", "--help", cwd=tmp_path)
    assert re.search(r"^  --data_type ", shown.stdout, re.MULTILINE), shown.stderr


def test_a_missing_corpus_is_one_line_that_says_what_to_do(toy, tmp_path):
    (tmp_path / "empty").mkdir()
    command = ("bash", toy / "run.sh", "--data", "empty", "--stage", "0", "--stop_stage", "0")
    result = call(*command, cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith(f"error: no {tmp_path / 'empty/texts.tsv'}")
