"""A train.yaml of others names operators and an encoder, which can be any code: commands import and
run them only with --trust_code.
"""

import re
import shutil
import subprocess
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest
import yaml

from tests.support.models.recogniser import CONFIG
from wenet_uio.config import ConfigError, load_config
from wenet_uio.dataset.chain.user import OperatorError
from wenet_uio.search.recogniser import load_recogniser

ROOT = Path(__file__).resolve().parents[2]
MODEL = ("--config", "train.yaml", "--checkpoint", "model.pt")
CHECKED = (*MODEL, "--check_data", "raw.list", "--num_check", "1")
SPEECH_COMMANDS: dict[str, tuple[str, ...]] = {
    "recognize": (
        *MODEL,
        "--modes",
        "ctc_greedy_search",
        "--test_data",
        "raw.list",
        "--result_dir",
        "out",
    ),
    "align": (*MODEL, "--data_list", "raw.list", "--result_dir", "out"),
    "transcribe": ("--model", ".", "--checkpoint", "model.pt", "--device", "cpu", "u1.wav"),
    "serve": ("--model", ".", "--checkpoint", "model.pt", "--device", "cpu", "--port", "0"),
    "export_jit": (*CHECKED, "--output_file", "final.zip"),
    "export_onnx": (*CHECKED, "--output_dir", "onnx"),
}
"""Commands that send audio through the operators of a model."""
COMMANDS = SPEECH_COMMANDS | {
    "push": ("model.pt", "org/name", "--license", "apache-2.0", "--dry_run"),
    "pseudo_lists teacher": ("model.pt", "out"),
    "pseudo_lists labels": ("--config", "train.yaml", "raw.list", "results", "out.list"),
    "train": (
        *("--from", "model.pt", "--config", "own.yaml", "--model_dir", "run", "--device", "cpu"),
        *("--train_data", "raw.list", "--cv_data", "raw.list"),
    ),
}
MODEL_READERS = COMMANDS | {
    "average_model": ("--dst_model", "avg.pt", "--src_path", ".", "--merge_lora"),
    "report_run": (".",),
    "ablation_table": ("ablation", "row"),
}
"""Commands that build the model of a train.yaml, or its config."""
PACKAGES = {"export_onnx": "onnxruntime", "serve": "aiohttp"}
"""{command: package without which it does not run}."""
ATTACK = {
    "use": "os:system",
    "after": "decode",
    "evaluation": True,
    "conf": {"command": "touch ran"},
}
FAIL, GAIN = "tests.dataset.chain.test_user:FailOn", "tests.dataset.chain.test_user:Gain"


def write_config(*operators: dict) -> None:
    dataset_conf = CONFIG["dataset_conf"] | {"operators": list(operators)}
    Path("train.yaml").write_text(yaml.safe_dump(CONFIG | {"dataset_conf": dataset_conf}))


def write_attacking_encoder() -> None:
    """Name an encoder whose module leaves the file `ran` when it is imported."""
    Path("attack.py").write_text("open('ran', 'w').close()\n")
    Path("train.yaml").write_text(yaml.safe_dump(CONFIG | {"encoder": "attack:Encoder"}))


@pytest.fixture(autouse=True)
def unloaded_attack(folder, monkeypatch):
    """Let every test import the module `attack` of its own folder anew."""
    Path("own.yaml").write_text(yaml.safe_dump(CONFIG))
    monkeypatch.syspath_prepend(folder)
    yield
    sys.modules.pop("attack", None)


def call(command: str, *options: str) -> None:
    if command in PACKAGES:
        pytest.importorskip(PACKAGES[command])
    module, *subcommand = command.split()
    arguments = [*subcommand, *MODEL_READERS[command], *options]
    import_module(f"wenet_uio.bin.{module}").main(arguments)


def make_run_and_ablation() -> None:
    """Make this folder a run with an epoch, and the only run of an ablation."""
    Path("epoch_0.yaml").write_text("{epoch: 0, cv_loss: 1.0}\n")
    shutil.copy("model.pt", "epoch_0.pt")
    scored = Path("ablation/row/seed_1/test/scored")
    scored.parent.mkdir(parents=True)
    scored.touch()
    shutil.copy("train.yaml", "ablation/row/seed_1")
    Path("data/test").mkdir(parents=True)
    Path("data/test/text").write_text("u1 ab\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_operators_of_a_model_are_refused_and_nothing_is_imported_or_run(folder, command):
    write_config({"use": "no_such_module:Op", "after": "features", "evaluation": True}, ATTACK)
    with pytest.raises(
        ConfigError,
        match=r"train\.yaml: .* would run: no_such_module:Op, os:system; .*--trust_code",
    ):
        call(command)
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("command", MODEL_READERS)
def test_an_encoder_of_another_package_is_refused_and_not_imported(folder, command):
    write_attacking_encoder()
    make_run_and_ablation()
    with pytest.raises(ConfigError, match=r"train\.yaml: .*run: attack:Encoder; .*--trust_code"):
        call(command)
    assert not (folder / "ran").exists()


@pytest.mark.third
@pytest.mark.parametrize("command", MODEL_READERS)
def test_an_encoder_of_another_package_is_imported_with_trust_code(folder, command):
    write_attacking_encoder()
    make_run_and_ablation()
    with pytest.raises(ConfigError, match="attack"):
        call(command, "--trust_code")
    assert (folder / "ran").exists()


@pytest.mark.third
@pytest.mark.parametrize("command", SPEECH_COMMANDS)
def test_operators_of_a_model_run_with_trust_code(folder, command):
    write_config(ATTACK)
    with pytest.raises(ConfigError, match="returned int, which cannot be called"):
        call(command, "--trust_code")
    assert (folder / "ran").exists()


@pytest.mark.parametrize("command", ["recognize", "transcribe"])
def test_operators_that_run_in_training_only_are_not_imported_and_need_no_trust(folder, command):
    write_config(ATTACK | {"evaluation": False})
    call(command)
    assert not (folder / "ran").exists()


def test_transcribe_runs_the_operators_that_decoding_runs(folder):
    write_config(
        {
            "use": FAIL,
            "after": "features",
            "evaluation": True,
            "conf": {"key": "0", "how": "forget"},
        }
    )
    with pytest.raises(OperatorError, match="returned NoneType for 0"):
        call("transcribe", "--trust_code", "--pause", "0")


def test_an_export_warns_that_it_has_no_operators(folder, capsys):
    write_config({"use": GAIN, "after": "resample", "evaluation": True})
    call("export_jit", "--trust_code")
    assert (
        f"warning: exported models have no operators; the runtime must do the same: ['{GAIN}']"
        in capsys.readouterr().err
    )


def test_an_override_does_not_avoid_the_question(folder):
    operators = "dataset_conf.operators=[{use: 'os:system', after: decode, evaluation: true, conf: {command: ls}}]"
    with pytest.raises(ConfigError, match="--trust_code"):
        call("recognize", "--override_config", operators)


def test_a_loaded_recogniser_trusts_no_code_unless_it_is_told_to(folder):
    write_config(ATTACK)
    with pytest.raises(ConfigError, match="os:system"):
        load_recogniser(".", "model.pt")
    assert load_recogniser(".", "model.pt", trust_code=True).config.dataset_conf.operators


NAMED_IN = {
    "a module of local/": ("local.attack", True),
    "a package of local/": ("local.attack_package.attack", True),
    "conf/*.yaml": ("attack", True),
    "a module that local/ lacks": ("local.gone", False),
    "a module beside local/": ("localattack", False),
    "another name of a module in conf/": ("attack", False),
    "nothing of the recipe": ("strange", False),
}
"""{where the code stands: (its module, whether the recipe has it)}."""


@pytest.mark.parametrize("kind", ["encoder", "model", "operator"])
@pytest.mark.parametrize("place", NAMED_IN)
def test_a_recipe_trusts_its_local_folder_and_its_configs_and_nothing_else(folder, kind, place):
    module, is_own = NAMED_IN[place]
    Path("local/attack_package").mkdir(parents=True)
    for path in ("local/attack.py", "local/attack_package/attack.py"):
        Path(path).touch()
    for path in ("attack.py", "strange.py", "localattack.py"):
        Path(path).touch()
    Path("conf").mkdir()

    def config_with(name: str) -> dict:
        if kind == "operator":
            operator = {"use": name, "after": "features", "evaluation": True}
            return CONFIG | {"dataset_conf": CONFIG["dataset_conf"] | {"operators": [operator]}}
        return CONFIG | {kind: name}

    named = "attack:Other" if place == "another name of a module in conf/" else "attack:Thing"
    Path("conf/own.yaml").write_text(yaml.safe_dump(config_with(named)))
    Path("train.yaml").write_text(yaml.safe_dump(config_with(f"{module}:Thing")))

    missing = "has no Thing" if is_own else f"would run: {module}:Thing; .*--trust_code"
    with pytest.raises(ConfigError, match=missing):
        call("recognize", "--trust_recipe", ".")
    with pytest.raises(ConfigError, match=f"would run: {module}:Thing"):
        call("recognize")


@pytest.mark.parametrize("tool", ["decode.sh", "export.sh", "pseudo_label.sh", "train.sh"])
def test_the_tools_of_recipes_trust_the_recipe_unless_they_are_told_to_trust_any_code(tool):
    script = (ROOT / "tools" / tool).read_text(encoding="utf-8")
    default = re.search(r"^trust_code=\w+", script, re.MULTILINE)
    assert default
    for setting, options in ((default[0], "--trust_recipe ."), ("trust_code=true", "--trust_code")):
        shown = subprocess.run(
            ["bash", "-c", f". tools/recipe.sh; {setting}; trusting; echo ${{TRUST[*]}}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert shown.stdout.strip() == options
    assert "trusting" in script.splitlines()
    assert '"${TRUST[@]}"' in script


def test_a_config_is_not_trusted_unless_its_reader_says_so():
    assert signature(load_config).parameters["trust_code"].default is False


def test_only_commands_of_training_trust_the_config_that_they_are_given():
    """Training runs the code of the config that the user wrote, so its tools may, too."""
    trusting = {
        str(path.relative_to(ROOT))
        for part in ("wenet_uio", "tools", "lab", "examples")
        for path in (ROOT / part).rglob("*.py")
        if "trust_code=True" in path.read_text(encoding="utf-8")
    }
    assert trusting == {
        "examples/espeak/s0/local/variety.py",
        "wenet_uio/train/run_config.py",
        "wenet_uio/train/report.py",  # the run that has just ended
        "wenet_uio/prepare/diagnose/bin_estimate.py",
        *(
            f"wenet_uio/bin/{name}.py"
            for name in ("compute_cmvn_stats", "check_data", "plan_report", "profile_data")
        ),
    }
