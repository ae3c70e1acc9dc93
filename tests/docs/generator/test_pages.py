"""The reference has every command, every option and every key of train.yaml."""

import re
import sys
from typing import get_args

import pytest

from docs.generator import glossary
from docs.generator.commands import command_files, module_of
from docs.generator.keys import meaning, sections
from docs.generator.markdown import escaped, paragraphs, table
from docs.generator.pages import COMMANDS, KEYS, pages
from wenet_uio.config.base import Section
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.config import Config
from wenet_uio.config.dataset import ViewsConf
from wenet_uio.config.encoder_kind import ENCODERS

PYTHON = [path for path in command_files() if path.suffix == ".py"]


@pytest.fixture(scope="module")
def made():
    return pages()


def page_of(made, path):
    folder = "recipes" if path.name == "run.sh" else path.parent.name
    name = path.parts[-3] if path.name == "run.sh" else path.stem
    return made[f"{COMMANDS}/{folder}/{name}.md"]


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: path.stem)
def test_the_page_of_a_command_has_every_option_of_its_help(path, made, capsys):
    with pytest.raises(SystemExit) as end:
        module_of(path).main(["--help"])
    assert end.value.code == 0
    options = set(
        re.findall(r"(?<![\w-])--[a-z][\w.-]*\w", capsys.readouterr().out.split("\noptions:")[1])
    )
    described = set(re.findall(r"--[a-z][\w.-]*\w", page_of(made, path).replace("\\", "")))
    assert options - {"--help"} <= described


def test_every_option_of_a_shell_command_is_on_its_page(made):
    shell = [path for path in command_files() if path.suffix == ".sh"]
    assert len(shell) > 20
    for path in shell:
        above = path.read_text(encoding="utf-8").split("\nparse_options")[0]
        options = re.findall(r"^([a-z][a-z0-9_]*)=", above, re.MULTILINE)
        assert options, path
        page = page_of(made, path)
        assert [name for name in options if f"`--{name}`" not in page] == [], path


def test_every_option_has_a_meaning(made):
    rows = [
        line
        for name, page in made.items()
        if name.startswith(COMMANDS)
        for line in page.splitlines()
    ]
    unexplained = {
        line.split("`")[1] for line in rows if line.startswith("| `") and line.endswith("|  |")
    }
    assert unexplained == {"training_script_args"}  # of torchrun
    assert len(rows) > 1000


def test_the_page_of_a_command_has_the_options_of_its_subcommands(made):
    page = made[f"{COMMANDS}/tools/pseudo_lists.md"]
    assert all(f"`--{option}`" in page for option in ("data_type", "second", "share"))
    assert "## Labels: write a list with recognised texts" in page


def test_no_block_of_code_is_empty(made):
    assert [name for name, page in made.items() if re.search(r"```\w+\n+```", page)] == []


def test_options_of_wenet_that_change_nothing_are_named_with_the_reason(made):
    page = made[f"{COMMANDS}/bin/train.md"]
    assert "## Options of WeNet that are accepted" in page
    assert re.search(r"\| `--deepspeed.save_states` \|.*changes nothing or is refused: \w+", page)


def test_every_key_of_every_section_is_on_a_page_with_its_meaning(made):
    shown = sections()
    classes = {keys.section for keys in shown}
    # Bases of sections, and what is not in the yaml
    for section in all_sections(Section) - classes:
        assert section is ViewsConf or any(issubclass(each, section) for each in classes), section
    for keys in shown:
        page = made[f"{KEYS}/{keys.page}"]
        for name in keys.fields():
            assert meaning(keys.section, name)[-1] in ".)`"
            assert f"| `{name}` |" in page


def all_sections(section):
    """The sections below a section that a module names; reading a yaml makes others, which live a
    while.
    """
    below = {
        each for each in section.__subclasses__() if each.__module__.startswith("wenet_uio.config")
    }
    below = {
        each for each in below if vars(sys.modules[each.__module__]).get(each.__name__) is each
    }
    return below.union(*(all_sections(each) for each in below)) - {section}


def test_the_glossary_has_no_word_that_no_key_needs():
    needed = set()
    for keys in sections():
        for name in keys.fields():
            text = meaning(keys.section, name)
            needed |= {
                each
                for each in (name, f"{keys.section.__name__}.{name}")
                if glossary.MEANINGS.get(each) == text
            }
    assert set(glossary.MEANINGS) - needed == set()


def test_a_key_has_its_type_its_bounds_and_its_default(made):
    batch = made[f"{KEYS}/dataset_conf.md"]
    assert "| `max_frames_in_batch` | integer above 0 | `12000` | dynamic: padded frames" in batch
    names = " or ".join(get_args(BatchConf.model_fields["batch_type"].annotation))
    assert f'| `batch_type` | {names} | `"static"` |' in batch
    assert "| `speeds` | list of: number at least 0.5 and at most 2 | `[0.9, 1.0, 1.1]` |" in batch
    encoders = " or ".join(f"`{name}`" for name in ENCODERS)
    assert f"| `encoder` | {encoders} |" in made[f"{KEYS}/index.md"]
    top, _, of_wenet = made[f"{KEYS}/index.md"].partition("## Keys of WeNet that change nothing")
    assert set(Config.model_fields) == set(re.findall(r"^\| `(\w+)` \|", top, re.MULTILINE))
    assert "| `dataset_conf.speaker_conf` | no model uses speakers |" in of_wenet


def test_an_option_has_its_value_and_its_default(made):
    page = made[f"{COMMANDS}/tools/plan_report.md"]
    assert "| `--data_type` | `{raw,shard}` | `required` | type of the data list |" in page
    assert "| `--world_size` | `N` | `1` | number of ranks" in page
    assert "| `--epoch` | `N` | `0` |" in page
    assert "| `--evaluation` |  |  | plan as" in page
    assert "| `--nj` | `N` | `number of cores` |" in made[f"{COMMANDS}/tools/check_data.md"]
    fsdd = made[f"{COMMANDS}/recipes/fsdd.md"]
    assert "| `--config` | `VALUE` | `conf/train_conformer.yaml` |" in fsdd
    assert "## Options of train.sh" in fsdd.replace("\\", "")


class Undocumented(Section):
    """A section."""

    kept: int = 0
    """Number of kept words."""
    lost: int = 0


def test_a_key_without_a_meaning_is_named_with_its_class_and_what_to_write():
    assert meaning(Undocumented, "kept") == "Number of kept words."
    problem = r"Undocumented\.lost .*test_pages.*: write a docstring below the key"
    with pytest.raises(ValueError, match=problem):
        meaning(Undocumented, "lost")


def test_no_page_names_a_folder_of_this_machine(made):
    root = str(command_files()[0].parents[2])
    assert [name for name, text in made.items() if root in text] == []


def test_texts_keep_their_meaning_in_markdown():
    assert escaped("a_b <sos> [x]|y\n  `a|b_c` #1") == r"a\_b &lt;sos> \[x\]\|y `a|b_c` \#1"
    assert escaped("see https://arxiv.org/abs/1 (b)") == "see <https://arxiv.org/abs/1> (b)"
    assert (
        paragraphs("One.\n\n    two *\n    three\n\nfour *")
        == "One.\n\n```text\ntwo *\nthree\n```\n\nfour \\*"
    )
    assert table(("a", "b"), [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
