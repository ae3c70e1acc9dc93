"""The blocks of the how-to pages run, one after the other, in a folder as their first page
describes it.
"""

import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
import yaml

from docs.generator.commands import ROOT, command_files, module_of
from tests.support import preloaded
from tests.support.docs.blocks import blocks_of, commands_in, pages
from tests.support.hub.server import WRITER, running_hub
from wenet_uio.config import load_config, parse_config
from wenet_uio.config.mixture import load_mixture
from wenet_uio.models import build_model

COMMANDS = {path.name: path for path in command_files()}
COMMANDS |= {
    f"wenet_uio.bin.{path.stem}": path for path in command_files() if path.parent.name == "bin"
}
NEEDED = {"lightning": "pytorch_lightning", "hf-trainer": "accelerate", "own-loop": "accelerate"}
"""{page: package without which its blocks are not run}."""
NOT_RUN = ("index", "errors", "hub", "python", "serve", "whisper")
"""Pages without a block that runs alone; their blocks name the tests that do what they say."""
CONFIG = {
    "encoder_conf": {"output_size": 16, "attention_heads": 2, "linear_units": 16, "num_blocks": 1},
    "decoder": "transformer",
    "decoder_conf": {"attention_heads": 2, "linear_units": 16, "num_blocks": 1},
    "tokenizer_conf": {"symbol_table_path": "data/dict/units.txt"},
    "dataset_conf": {"fbank_conf": {"num_mel_bins": 20}, "batch_conf": {"batch_size": 4}},
    "observe_interval": 0,
}


@pytest.fixture
def folder(make_utterances, tmp_path, monkeypatch):
    """data/ with 24 utterances in two parts, conf/train.yaml, and exp/run with an untrained
    model.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "local"]:  # of a recipe
        monkeypatch.delitem(sys.modules, name)
    lines = make_utterances(24)
    for part, chosen in (("train", lines[:16]), ("dev", lines[16:])):
        Path(f"data/{part}").mkdir(parents=True)
        Path(f"data/{part}/wav.scp").write_text(
            "".join(f"{line.key} {line.wav}\n" for line in chosen)
        )
        Path(f"data/{part}/text").write_text(
            "".join(f"{line.key} {line.text}\n" for line in chosen)
        )
    Path("data/dict").mkdir()
    units = ["<blank>", "<unk>", "<sos/eos>", *"abc"]
    Path("data/dict/units.txt").write_text(
        "".join(f"{unit} {place}\n" for place, unit in enumerate(units))
    )
    Path("conf").mkdir()
    Path("conf/train.yaml").write_text(yaml.safe_dump(CONFIG))
    shutil.copy(ROOT / "examples/custom/s0/conf/finetune.yaml", "conf")
    Path("exp/run").mkdir(parents=True)
    units = str(tmp_path / "data/dict/units.txt")
    Path("exp/run/train.yaml").write_text(
        yaml.safe_dump(CONFIG | {"tokenizer_conf": {"symbol_table_path": units}})
    )
    torch.manual_seed(1)
    torch.save(build_model(load_config("exp/run/train.yaml")).state_dict(), "exp/run/avg.pt")
    Path("names.txt").write_text("abc\n")
    yield tmp_path
    sys.modules.pop("local.level", None)
    sys.modules.pop("local", None)


def run_command(words):
    """Run a command line of a page in this process; its exit status."""
    path = COMMANDS[words[2] if words[:2] == ["python", "-m"] else words[0]]
    return module_of(path).main(words[3 if words[0] == "python" else 1 :]) or 0


@pytest.mark.parametrize(
    "page",
    [page for page in pages("how-to") if page.stem not in NOT_RUN],
    ids=lambda page: page.stem,
)
def test_the_blocks_of_a_page_run(page, folder):
    if page.stem in NEEDED:
        pytest.importorskip(NEEDED[page.stem])
    names = {}
    blocks = [block for block in blocks_of(page) if block.why_not_run is None]
    assert blocks
    for block in blocks:
        if block.file:
            Path(block.file).parent.mkdir(exist_ok=True)
            Path(block.file).write_text(block.text, encoding="utf-8")
        if block.kind == "bash":
            for words in commands_in(block.text):
                assert run_command(words) == 0, words
        elif block.kind == "python" and not block.file:
            exec(compile(block.text, str(page), "exec"), names)
        elif block.kind == "yaml":
            values = yaml.safe_load(block.text)
            if "sources" in values:
                assert block.file
                load_mixture(block.file)
            else:
                parse_config(values, page.name)
        else:
            assert block.file, block.text


@pytest.mark.all
def test_the_blocks_of_the_page_about_models_of_a_hub_run(folder):
    """In processes of their own: huggingface_hub reads its variables when it is imported."""
    pytest.importorskip("huggingface_hub")
    page = next(page for page in pages("how-to") if page.stem == "hub")
    files = {name: Path("exp/run", name).read_bytes() for name in ("train.yaml", "avg.pt")}
    files["units.txt"] = Path("data/dict/units.txt").read_bytes()
    files["README.md"] = b"---\nlicense: mit\ntags: [wenet_uio]\n---\n"
    shutil.copy(Path("data/dev/wav.scp").read_text().split()[1], "talk.wav")

    outputs = []
    with running_hub() as hub:
        for branch in ("main", "v1.0"):
            hub.put("org/name", files, branch=branch)
        environment = hub.environment(folder / "cache", HF_TOKEN=WRITER)

        for block in blocks_of(page):
            if block.kind == "python":
                Path("block.py").write_text(block.text)
                commands = [["block.py"]]
            else:
                commands = [
                    words[1:] if words[0] == "python" else [COMMANDS[words[0]], *words[1:]]
                    for words in commands_in(block.text)
                ]
            for command in commands:
                done = preloaded.run(command, cwd=folder, env=environment)
                assert done.returncode == 0, done.stderr
                outputs.append(done.stdout)

        published = hub.models["org/mine"].files("main")
        assert published is not None
        assert "avg.pt" in published
    assert outputs[0] == "org/name\n"


def test_a_check_of_a_damaged_shard_ends_with_status_1(folder):
    page = next(page for page in pages("how-to") if page.stem == "shards")
    pack, check, *_ = [block for block in blocks_of(page) if block.why_not_run is None]
    for words in commands_in(pack.text):
        assert run_command(words) == 0
    assert Path("data/train/data.list.json").is_file()
    shard = Path("data/train/shards/shards_000000000.tar")
    shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2])
    # Training would lose something
    assert run_command(commands_in(check.text)[0]) == 1
    assert Path("check.html").is_file()


def test_every_block_has_a_kind_that_is_run_or_a_reason(folder):
    for part in ("how-to", "coming-from", "concepts"):
        for page in pages(part):
            assert page.read_text(encoding="utf-8").count("```") == 2 * len(blocks_of(page)), page
            for block in blocks_of(page):
                assert block.kind in ("bash", "python", "yaml")


def test_the_words_of_errors_are_those_of_the_code():
    page = next(page for page in pages("how-to") if page.stem == "errors")
    words = re.findall(r"^\| `([^`]+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(words) > 12
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "wenet_uio").rglob("*.py")]
    code = re.sub(r'"\s*f?"', "", "\n".join(sources))  # parts of a message on several lines
    assert [each for each in words if not all(part in code for part in each.split("; "))] == []
