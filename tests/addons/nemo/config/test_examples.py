"""Every example of NeMo's documentation of data sets is read, or one line says what to write
instead.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support.data.nemo import overrides_in
from wenet_uio.addons.nemo.tars import command
from wenet_uio.addons.nemo.tars.shard import flat_name
from wenet_uio.config import ConfigError, load_config
from wenet_uio.config import load as loading
from wenet_uio.dataset.formats.data_list import RawLine, parse_raw_line
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.patterns import expand
from wenet_uio.dataset.kinds.conversation import Conversation, parse_conversation
from wenet_uio.dataset.kinds.text import TextCorpus
from wenet_uio.dataset.kinds.to_speak import parse_tts_text

ROOT = Path(__file__).resolve().parents[4]
README = ROOT / "wenet_uio/addons/nemo/config/README.md"
FRAGMENTS = {
    "bucketing_batch_size_int.txt": "bucketing_list_of_lists.txt",
    "bucketing_batch_size_list.txt": "bucketing_list_of_lists.txt",
    "bucketing_strategy.txt": "bucketing_list_of_lists.txt",
    "bucketing_weights_batch_size.txt": "bucketing_list_of_lists.txt",
    "sampler_fusion_randomized.yaml": "joint_audio_text_zip.yaml",
    "sampler_fusion_round_robin.yaml": "joint_audio_text_zip.yaml",
}
"""Examples that continue another one."""
NO_ANSWER_NEEDED = ("index.tsv",)


@pytest.fixture(scope="module")
def commands() -> dict[str, str]:
    """{command or variable of NeMo: what to write here}, as the README lists them."""
    rows = re.findall(
        r"^\| `([^`]+)` \| (.+) \|$", README.read_text(encoding="utf-8"), re.MULTILINE
    )
    return dict(rows)


@pytest.fixture
def answer_of(nemo_examples, tmp_path, monkeypatch, commands):
    """A function from the name of an example to its answer: `read: …`, `here: …` or `error: …`,
    then the notes.
    """
    notes: list[str] = []
    monkeypatch.setattr(loading, "warn_once", notes.append)

    def config_of(content: object, overrides: list[str]) -> str:
        (tmp_path / "train.yaml").write_text(yaml.safe_dump(content))
        try:
            config = load_config(tmp_path / "train.yaml", overrides)
        except ConfigError as error:
            return f"error: {error}".replace(f"{tmp_path}/", "")
        changed = config.model_dump(mode="json", exclude_defaults=True)
        shown = {key: value for key, value in changed.items() if value}
        return "read: " + json.dumps(shown) if shown else "read"

    def answer(name: str) -> list[str]:
        path = nemo_examples / name
        text = path.read_text(encoding="utf-8")
        notes.clear()
        if path.suffix == ".yaml":
            content = yaml.safe_load(text)
            if name in FRAGMENTS:
                earlier = yaml.safe_load((nemo_examples / FRAGMENTS[name]).read_text())["model"][
                    "train_ds"
                ]
                content = {**earlier, **content}
            found = config_of(content if "model" in content else {"train_ds": content}, [])
        elif overrides := overrides_of(text):
            earlier = (
                overrides_of((nemo_examples / FRAGMENTS[name]).read_text())
                if name in FRAGMENTS
                else []
            )
            found = config_of({}, earlier + overrides)
        elif "text_only" in name:
            spoken = [
                parse_tts_text(line, manifest=True).to_speak for line in text.encode().splitlines()
            ]
            found = f"read: {', '.join(spoken)}"
        elif path.suffix in (".json", ".jsonl"):
            found = lines_of(
                text, parse_conversation if path.suffix == ".jsonl" else parse_raw_line
            )
        elif path.suffix == ".tsv":
            found = table_of(name, text)
        elif name.startswith("document"):
            copy = tmp_path / name
            copy.write_text(text)
            found = f"read: {TextCorpus(str(copy)).num_samples} texts"
        else:
            found = "here: " + "; ".join(commands[word] for word in words_of(text, commands))
        return [found, *(note.replace(f"{tmp_path}/", "") for note in notes)]

    return answer


def overrides_of(text: str) -> list[str]:
    """The overrides of an example, with values in place of what it leaves open."""
    return overrides_in(text.replace("=...", "=data.json").replace("$RSEED", "7"))


def lines_of(text: str, parse: Callable[[str], RawLine | Conversation]) -> str:
    try:
        lines = [parse(line) for line in text.splitlines()]
    except ListError as error:
        return f"error: {error}"
    return "read: " + ", ".join(line.key for line in lines)


def table_of(name: str, text: str) -> str:
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    if name == "tarred_brace_forms.tsv":
        assert all(
            expand(f"a{first}1..2{last}.tar") == ["a1.tar", "a2.tar"] for first, last in rows
        )
    elif name == "tarred_member_names.tsv":
        assert all(flat_name(path) == member for path, member in rows)
    return f"read: {len(rows)} rows"


def words_of(text: str, commands: dict[str, str]) -> list[str]:
    """The commands and variables of the README that occur in an example."""
    return [word for word in commands if re.search(rf"(?<![\w.]){re.escape(word)}(?![\w.])", text)]


def test_every_example_is_read_or_answered_with_one_line(nemo_examples, answer_of):
    names = sorted(
        path.name for path in nemo_examples.iterdir() if path.name not in NO_ANSWER_NEEDED
    )
    answers = {name: answer_of(name) for name in names}
    listed = (Path(__file__).parents[3] / "support/data/nemo_answers.txt").read_text(
        encoding="utf-8"
    )
    found = "".join(
        "\n    ".join([f"{name}: {answer[0]}", *answer[1:]]) + "\n"
        for name, answer in answers.items()
    )
    assert found == listed
    for name, (found, *notes) in answers.items():
        assert found.startswith(("read", "error: ", "here: ")), name
        assert found != "here: ", name
        for line in (found, *notes):
            assert "\n" not in line, name


def test_every_command_of_the_table_exists(commands):
    for answer in commands.values():
        for path in re.findall(r"`((?:tools|examples|wenet_uio)/[\w./]+)", answer):
            assert (ROOT / path).exists(), path


def test_the_options_of_the_converter_are_those_of_nemo(nemo_examples):
    text = (
        (nemo_examples / "tarred_convert.txt").read_text().replace("\\\n", " ").replace("\n", " ")
    )
    words = shlex.split(re.sub(r"<[^>]*>", "1", text))[2:]
    options = command.parse_arguments(words)
    assert (options.num_shards, options.max_duration, options.shuffle, options.shuffle_seed) == (
        1,
        1.0,
        True,
        0,
    )
