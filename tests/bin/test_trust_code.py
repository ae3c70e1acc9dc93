"""A train.yaml of others names operators and an encoder, which can be any code: commands import and
run them only with --trust_code.
"""

import ast
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from tests.support.models.recogniser import CONFIG
from wenet_uio.config import ConfigError
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
    import_module(f"wenet_uio.bin.{module}").main([*subcommand, *COMMANDS[command], *options])


@pytest.mark.parametrize("command", COMMANDS)
def test_operators_of_a_model_are_refused_and_nothing_is_imported_or_run(folder, command):
    write_config({"use": "no_such_module:Op", "after": "features", "evaluation": True}, ATTACK)
    with pytest.raises(
        ConfigError,
        match=r"train\.yaml: .* would run: no_such_module:Op, os:system; .*--trust_code",
    ):
        call(command)
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_an_encoder_of_another_package_is_refused_and_not_imported(folder, command):
    write_attacking_encoder()
    with pytest.raises(ConfigError, match=r"train\.yaml: .*run: attack:Encoder; .*--trust_code"):
        call(command)
    assert not (folder / "ran").exists()


@pytest.mark.third
@pytest.mark.parametrize("command", COMMANDS)
def test_an_encoder_of_another_package_is_imported_with_trust_code(folder, command):
    write_attacking_encoder()
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


def test_only_code_for_the_users_own_configs_reads_a_config_without_the_question_of_trust():
    readers = {
        str(path.relative_to(ROOT))
        for part in ("wenet_uio", "tools", "lab", "examples")
        for path in (ROOT / part).rglob("*.py")
        if "load_config" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        and any(alias.name == "load_config" for alias in node.names)
    }
    of_training = ("compute_cmvn_stats", "check_data", "plan_report", "profile_data")
    assert readers == {
        "wenet_uio/bin/average_model.py",  # reads lora_conf only
        "wenet_uio/train/start.py",  # that of the run itself, to resume it; --from asks the question
        "wenet_uio/config/__init__.py",
        "wenet_uio/prepare/diagnose/bin_estimate.py",  # of training
        # refuses code of other packages; operators do not run there
        "wenet_uio/addons/encoders/zipformer/exchange/icefall.py",
        "wenet_uio/search/recogniser.py",
        # shows the config; it never builds the chain that runs operators
        "wenet_uio/addons/publish/model_card.py",
        # counts parameters; it never builds the chain that runs operators
        "wenet_uio/addons/publish/ablation.py",
        "wenet_uio/train/run_config.py",
        "lab/benchmark/serve_model.py",
        "examples/espeak/s0/local/variety.py",  # of training
        "wenet_uio/bin/decoding_defaults.py",  # asks the question itself
        "wenet_uio/bin/make_lm.py",  # so does this
        *(f"wenet_uio/bin/{name}.py" for name in of_training),
    }
