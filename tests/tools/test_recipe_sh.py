"""tools/recipe.sh, tested with a small recipe."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support import preloaded
from tests.support.environments import of_tests
from tests.support.models.small_whisper import write_openai
from wenet_uio.config import load_config

TOOLS = Path(__file__).resolve().parents[2] / "tools"
RECIPE = """\
#!/usr/bin/env bash
# An empty corpus.
#
# Stages: 0 first  1 second

set -eu
cd "$(dirname "$0")"
. recipe.sh

stage=0
stop_stage=1
nj=4          # processes
name="two words"
parse_options "$@"
derived=${name}_derived

if stage 0 "first"; then echo "first with $nj"; fi
if stage 1 "second"; then echo "second of $derived"; fi
"""


@pytest.fixture
def recipe(tmp_path):
    """A function that runs the recipe, or another `script`, with arguments, from a folder outside
    the recipe.
    """
    folder = tmp_path / "s0"
    folder.mkdir()

    def call(
        *arguments: str, script: str = RECIPE, cwd: Path = tmp_path
    ) -> subprocess.CompletedProcess:
        (folder / "run.sh").write_text(script, encoding="utf-8")
        return subprocess.run(
            ["bash", os.path.relpath(folder / "run.sh", cwd), *arguments],
            cwd=cwd,
            env=preloaded.on_path(os.environ | {"PATH": f"{TOOLS}:{os.environ['PATH']}"}),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    return call


def lines(line: str) -> str:
    """Return a recipe that parses its options and runs `line`."""
    return RECIPE.partition("derived=")[0] + line


@pytest.mark.parametrize("arguments", [("--nj", "32"), ("--nj=32",)])
def test_options_override_defaults(recipe, arguments):
    result = recipe(*arguments)
    assert result.returncode == 0
    assert result.stdout.splitlines() == ["first with 32", "second of two words_derived"]


@pytest.mark.parametrize("failing", ["false", "false | true", 'echo "$absent"'])
def test_a_command_that_fails_ends_the_recipe_also_in_a_pipe(recipe, failing):
    result = recipe(script=lines(f"echo before\n{failing}\necho after\n"))
    assert result.returncode == 1
    assert result.stdout == "before\n"


def test_values_derived_after_parsing_use_the_options(recipe):
    assert "second of x y_derived" in recipe("--name", "x y").stdout


def test_a_value_can_be_empty_or_contain_an_equals_sign(recipe):
    assert "second of _derived" in recipe("--name", "").stdout
    assert "second of a=b_derived" in recipe("--name=a=b").stdout


def test_only_the_requested_stages_run_and_the_exit_status_is_zero(recipe):
    assert recipe("--stage", "1").stdout.splitlines() == ["second of two words_derived"]
    assert recipe("--stop_stage", "0").stdout.splitlines() == ["first with 4"]
    assert recipe("--stage", "-1", "--stop_stage", "0").stdout.splitlines() == ["first with 4"]
    nothing = recipe("--stage", "99")
    assert (nothing.returncode, nothing.stdout) == (0, "")


def test_a_failing_command_ends_the_recipe(recipe):
    result = recipe(script=RECIPE.replace('echo "first with $nj"', "false"))
    assert result.returncode != 0
    assert "second" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--jn", "3"),
            "error: unknown option --jn; known: --stage --stop_stage --nj --name --help",
        ),
        (("--jn=3",), "error: unknown option --jn; known: --stage --stop_stage --nj --name --help"),
        (
            ("--derived", "x"),
            "error: unknown option --derived; known: --stage --stop_stage --nj --name --help",
        ),
        (("--nj",), "error: option --nj needs a value"),
        (("nj",), "error: unexpected argument 'nj'; options are --name value, --help lists them"),
        (("--stage", "two"), "error: --stage two: expected a number"),
    ],
)
def test_a_wrong_option_is_reported_in_one_line_and_nothing_runs(recipe, arguments, message):
    result = recipe(*arguments)
    assert result.returncode == 1
    assert result.stderr == message + "\n"
    assert result.stdout == ""


def test_help_is_the_comment_at_the_top_and_the_options(recipe):
    result = recipe("--help")
    assert result.returncode == 0
    assert result.stdout.startswith("An empty corpus.\n\nStages: 0 first  1 second\n")
    assert "--nj 4          # processes" in result.stdout
    assert "derived" not in result.stdout


@pytest.mark.parametrize(
    ("path", "stage"),
    [
        ("data/train/wav.scp", 0),
        ("data/train/global_cmvn", 1),
        ("data/dict/units.txt", 2),
        ("data/dev/data.list", 3),
    ],
)
def test_require_names_the_stage_that_makes_a_missing_file(recipe, path, stage):
    result = recipe(script=lines(f"require run.sh {path}\necho on"))
    assert result.returncode == 1
    assert result.stderr == f"error: {path} is missing; stage {stage} makes it (--stage {stage})\n"
    assert result.stdout == ""


def test_require_is_silent_if_all_files_exist(recipe):
    result = recipe(script=lines("require run.sh\necho on"))
    assert (result.stdout, result.stderr) == ("on\n", "")


def test_from_caller_prints_an_absolute_path(recipe, tmp_path):
    caller = tmp_path / "elsewhere"
    caller.mkdir()
    script = lines('from_caller "$name"')
    assert recipe("--name", "../corpus", script=script, cwd=caller).stdout == f"{tmp_path}/corpus\n"
    assert recipe("--name", "/corpus", script=script, cwd=caller).stdout == "/corpus\n"
    nothing = recipe(
        "--name", "", script=lines('corpus=$(from_caller "$name")\necho on'), cwd=caller
    )
    assert (nothing.returncode, nothing.stdout) == (1, "")
    assert nothing.stderr == "error: the path of the corpus is missing: --data PATH\n"


@pytest.mark.parametrize(("visible", "count"), [("0,3", 2), ("1", 1), ("", 0), ("-1", 0)])
def test_num_gpus_counts_the_devices_in_cuda_visible_devices(recipe, monkeypatch, visible, count):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert recipe(script=lines("num_gpus")).stdout.strip() == str(count)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("one  two\n three ", ["one", "two", "three"]),
        ("", []),
        ("'my test' \"it's\" test", ["my test", "it's", "test"]),
        ("--lm_path='my  lm' --lm_weight 0.5", ["--lm_path=my  lm", "--lm_weight", "0.5"]),
        ("* [s]0 $HOME ; ~ it's {1,2}", ["*", "[s]0", "$HOME", ";", "~", "it's", "{1,2}"]),
    ],
)
def test_words_of_an_option_are_separated_by_blanks_except_in_quotes_and_not_expanded(
    recipe, text, found
):
    script = lines('words "$name"\nfor word in "${WORDS[@]}"; do printf "%s\\0" "$word"; done')
    assert recipe("--name", text, script=script).stdout == "".join(f"{word}\0" for word in found)


def test_no_script_leaves_a_value_unquoted_which_the_shell_would_split_and_expand():
    root = TOOLS.parent
    scripts = [root / "path.sh", *TOOLS.glob("*.sh"), *root.glob("examples/*/*/run.sh")]
    scripts += root.glob("examples/*/*/local/*.sh")
    assert len(scripts) > 20
    # Shellcheck finds the others
    unquoted = (
        "SC2046",
        "SC2048",
        "SC2068",
        "SC2086",
        "SC2206",
        "SC2207",
    )
    assert [
        path
        for path in scripts
        if any(code in path.read_text(encoding="utf-8") for code in unquoted)
    ] == []


@pytest.mark.parametrize(
    "folder", ["data/dict", "my dict", "it's $HOME; a: b #1", "x=1 max_epoch=2 'y'", "[a] {b} *"]
)
def test_config_keys_and_the_paths_of_units_reach_the_config_as_they_are(recipe, tmp_path, folder):
    given = "max_epoch=3 cmvn_conf.cmvn_file=r*n.[a-s]h optim='adam'\nlog_interval=7 "
    given += "tokenizer_conf.non_lang_syms_path='my syms'"
    script = lines(
        'bpe=5 override=$name\noverride_units "$nj"\noverriding\nprintf "%s\\0" "${OVERRIDE[@]}"'
    )
    option, *overrides = (
        recipe("--name", given, "--nj", folder, script=script).stdout.removesuffix("\0").split("\0")
    )
    assert option == "--override_config"
    (tmp_path / "train.yaml").write_text("max_epoch: 1\n")
    config = load_config(tmp_path / "train.yaml", overrides)
    assert (config.max_epoch, config.cmvn_conf.cmvn_file, config.optim, config.log_interval) == (
        3,
        "r*n.[a-s]h",
        "adam",
        7,
    )
    assert config.tokenizer_conf.symbol_table_path == f"{folder}/units.txt"
    assert config.tokenizer_conf.bpe_path == f"{folder}/bpe.model"
    assert config.tokenizer_conf.non_lang_syms_path == "my syms"


@pytest.mark.parametrize(
    ("keys", "override", "needed"),
    [
        ("cmvn: global_cmvn\ntokenizer: char", "", "cmvn units "),
        ("tokenizer: char # of letters", "", "units "),
        ("encoder: conformer", "", "units "),
        ("tokenizer: 'whisper'\ncmvn: null", "", ""),
        ("tokenizer: huggingface", "cmvn=global_cmvn", "cmvn "),
        (
            "cmvn: global_cmvn\ntokenizer: whisper",
            "max_epoch=3 tokenizer='bpe' cmvn=null",
            "units ",
        ),
        ("dataset_conf:\n  cmvn: global_cmvn\ntokenizer: sentencepiece", "x.tokenizer=char", ""),
    ],
)
def test_stages_that_the_config_does_not_need_are_left_out(
    recipe, tmp_path, keys, override, needed
):
    (tmp_path / "a.yaml").write_text(keys)
    script = "override=$name config=$PWD/../a.yaml\n"
    script += "".join(
        f"if needed has_{each}; then printf '{each} '; fi\n" for each in ("cmvn", "units")
    )
    result = recipe("--name", override, script=lines(script))
    assert (result.returncode, result.stdout) == (0, needed)
    assert result.stderr.count("a.yaml does not need this stage") == 2 - len(needed.split())


def test_units_are_not_made_for_a_tokenizer_that_has_its_own(recipe, tmp_path):
    (tmp_path / "a.yaml").write_text("tokenizer: whisper\n")
    script = (
        "bpe=$name override=x=1 config=$PWD/../a.yaml\noverride_units data/dict\necho $override\n"
    )
    assert recipe("--name", "", script=lines(script)).stdout == "x=1\n"
    refused = recipe("--name", "100", script=lines(script))
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: --bpe 100: the tokenizer of ")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("model dir", "model dir"),
        ("small.pt", "small"),
        ("run/avg.pt", "run"),
        ("run/epoch_3.pt", "run"),
        ("hf://org/name", "name"),
        ("hf://org/name@v1", "name@v1"),
        ("hf://org/name@refs/pr/1", "name@refs-pr-1"),
    ],
)
def test_a_recipe_that_starts_from_a_model_has_its_own_config_and_a_folder_named_after_it(
    recipe, tmp_path, source, name
):
    script = RECIPE.partition("parse_options")[0]
    script += 'config=conf/train.yaml\ndir=\nfrom=\nparse_options "$@"\n'
    script += 'printf "%s\\n" "$config" "$dir" "$from"'
    if not source.startswith("hf://"):
        (tmp_path / source).parent.mkdir(exist_ok=True)
        (tmp_path / source).touch()
    result = recipe("--from", source, script=script)
    config, folder, model = result.stdout.splitlines()
    assert (config, folder) == ("conf/finetune.yaml", f"exp/finetune_{name}"), result.stderr
    if source.startswith("hf://"):
        assert model == source
    else:
        assert model.startswith("/")
        assert model.endswith(f"/{source}")
    result = recipe("--from", source, "--config", "c/a.yaml", "--dir", "mine", script=script)
    assert result.stdout.splitlines()[:2] == ["c/a.yaml", "mine"]


@pytest.mark.parametrize("source", ["nothere.pt", "org/name"])
def test_a_model_that_is_not_there_ends_a_recipe_before_its_first_stage_unless_its_run_has_begun(
    recipe, tmp_path, source
):
    script = RECIPE.partition("parse_options")[0] + 'dir=\nfrom=\nparse_options "$@"\necho stages'
    result = recipe("--from", source, "--dir", "exp/run", script=script)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        f"error: --from {tmp_path / source}: no such file or folder; a model of a hub is "
        "hf://org/name\n"
    )
    (tmp_path / "s0/exp/run").mkdir(parents=True)
    (tmp_path / "s0/exp/run/train.yaml").touch()
    result = recipe("--from", source, "--dir", "exp/run", script=script)
    assert (result.returncode, result.stdout) == (0, "stages\n")


@pytest.mark.parametrize(("units", "needed"), [("", ""), ("data/dict/units.txt", "units ")])
def test_a_recipe_that_starts_from_a_model_makes_units_only_if_they_are_named(
    recipe, tmp_path, units, needed
):
    (tmp_path / "a.yaml").write_text("cmvn: global_cmvn\ntokenizer: char\n")
    script = f"from=/model units={units} config=$PWD/../a.yaml\n"
    script += "".join(
        f"if needed has_{each}; then printf '{each} '; fi\n" for each in ("cmvn", "units")
    )
    result = recipe(script=lines(script))
    assert (result.returncode, result.stdout) == (0, needed), result.stderr
    assert "/model with " in result.stderr


@pytest.mark.parametrize("units", ["", "data/dict/units.txt"])
@pytest.mark.parametrize("named", ["small.pt", "folder"])
def test_a_whisper_with_other_units_ends_a_recipe_before_its_first_stage(
    recipe, tmp_path, named, units
):
    write_openai(tmp_path / "small.pt")
    (tmp_path / "folder").mkdir()
    write_openai(tmp_path / "folder/small.pt")
    script = RECIPE.partition("parse_options")[0]
    script += 'dir=\nfrom=\nunits=\nparse_options "$@"\necho stages'
    result = recipe("--from", named, "--units", units, script=script)
    if not units:
        assert (result.returncode, result.stdout) == (0, "stages\n"), result.stderr
        return

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        f"error: --units {units}: a whisper such as {tmp_path / named} is trained with its own "
        "units, which have the tokens of its prompt: leave --units out\n"
    )


TOOL = """\
#!/usr/bin/env bash
# A tool.
. recipe.sh
name=         # of the recipe
speed=fast    # of the tool alone
parse_options "$@"
echo "$name is $speed"
"""


@pytest.fixture
def calling(recipe, tmp_path, monkeypatch):
    """The recipe, with a call of the tool `say.sh` as its last line."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "say.sh").write_text(TOOL)
    (tmp_path / "say.sh").chmod(0o755)
    return lambda *arguments, line="with_options say.sh": recipe(*arguments, script=lines(line))


def test_options_of_a_tool_are_options_of_the_recipe_that_calls_it(calling):
    assert calling().stdout == "two words is fast\n"
    assert calling("--speed", "slow", "--name", "x y").stdout == "x y is slow\n"
    assert calling("--speed=", line='with_options say.sh --name "$nj"').stdout == "4 is \n"
    assert (
        calling("--speed", "slow", line="with_options say.sh --speed walking").stdout
        == "two words is slow\n"
    )
    assert calling(line="with_options say.sh --speed walking").stdout == "two words is walking\n"
    assert "  --speed fast    # of the tool alone\n" in calling("--help").stdout
    assert calling("--speed").stderr == "error: option --speed needs a value\n"


def test_environment_variables_do_not_set_options_of_a_tool(calling, monkeypatch):
    monkeypatch.setenv("speed", "slow")
    assert calling().stdout == "two words is fast\n"
    assert (
        calling(line='with_options say.sh --speed "${speed:-walking}"').stdout
        == "two words is walking\n"
    )


SAVING = """\
#!/usr/bin/env python3
import os, signal, time
ignores = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
last_words = []
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
    signal.signal(number, lambda number, _: last_words.append(signal.Signals(number).name))
os.write(1, b"would ignore Ctrl-C\\n" if ignores else b"ready\\n")
while not last_words:
    time.sleep(0.01)
time.sleep(0.3)
print(last_words[0])
"""


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130)]
)
def test_a_signal_ends_the_recipe_after_its_tool_has_saved(tmp_path, monkeypatch, number, status):
    monkeypatch.setenv("PATH", f"{tmp_path}:{TOOLS}:{os.environ['PATH']}")
    (tmp_path / "save.py").write_text(SAVING)
    (tmp_path / "save.py").chmod(0o755)
    (tmp_path / "run.sh").write_text(lines("with_options save.py; echo next stage"))

    ran = subprocess.Popen(
        ["bash", "run.sh"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell cannot trap what it was started to ignore, as other tests may leave it.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    assert ran.stdout is not None
    assert ran.stdout.readline() == "ready\n"
    if number != signal.SIGINT:  # a scheduler's; it may come more than once
        ran.send_signal(number)
        ran.send_signal(number)
    else:  # a terminal's, for the whole group
        os.killpg(ran.pid, number)

    assert (ran.communicate(timeout=20)[0], ran.returncode) == (f"{number.name}\n", status)


def test_a_tool_reads_the_input_of_the_recipe_and_its_failure_ends_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:{TOOLS}:{os.environ['PATH']}")
    (tmp_path / "read.sh").write_text("#!/bin/bash\nread -r word; echo $word; exit 3\n")
    (tmp_path / "read.sh").chmod(0o755)
    (tmp_path / "run.sh").write_text(lines("with_options read.sh; echo next stage"))
    ran = subprocess.run(
        ["bash", "run.sh"], cwd=tmp_path, input="said\n", capture_output=True, text=True
    )
    assert (ran.stdout, ran.returncode) == ("said\n", 3)


def test_a_true_or_false_option_alone_is_true(recipe):
    script = RECIPE.replace("nj=4 ", "allow_bad=false\nnj=4 ").replace(
        "derived=$", "derived=$allow_bad$"
    )
    for arguments in (("--allow_bad",), ("--allow_bad", "--nj", "3"), ("--nj", "3", "--allow_bad")):
        assert "second of truetwo words_derived" in recipe(*arguments, script=script).stdout
    given = recipe("--allow_bad", "false", script=script)
    assert "second of falsetwo words_derived" in given.stdout
    assert "  --allow_bad false" in recipe("--allow_bad", "-h", script=script).stdout


def test_a_switch_that_messages_of_tools_name_is_taken_alone_by_recipes():
    """Such as "leave them out with --allow_bad", where it is an option of the recipe."""
    package = TOOLS.parent / "wenet_uio"
    texts = "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    named = set(re.findall(r"(?:with|add|give|use|;) --([a-z_]+)", texts))
    script = TOOLS.parent / "examples/custom/s0/run.sh"

    def run(*options: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            ["bash", script, *options], env=of_tests(), capture_output=True, text=True
        )

    shown = run("--help").stdout
    switches = named & set(re.findall(r"^  --([a-z_]+) (?:true|false)\b", shown, re.MULTILINE))
    assert {"allow_bad", "allow_data_changes", "trust_code"} <= switches
    for switch in switches:
        result = run(f"--{switch}", "--stage", "99")
        assert (result.returncode, result.stderr) == (0, "")


def test_a_true_or_false_option_accepts_nothing_else(recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "say.sh").write_text(TOOL.replace("speed=fast    #", "speed=false   #"))
    (tmp_path / "say.sh").chmod(0o755)
    script = lines("with_options say.sh")
    assert recipe("--speed", "true", script=script).stdout == "two words is true\n"
    wrong = recipe("--speed", "yes", script=script)
    assert (wrong.returncode, wrong.stderr) == (1, "error: --speed yes: expected true or false\n")


def test_tools_import_the_python_modules_of_the_recipe(recipe, tmp_path):
    (tmp_path / "s0" / "local").mkdir()
    (tmp_path / "s0" / "local" / "noise.py").write_text("AddNoise = 'operator of the recipe'\n")
    (tmp_path / "tool.py").write_text("from local.noise import AddNoise; print(AddNoise)\n")
    ran = recipe(script='set -e\ncd "$(dirname "$0")"\n. recipe.sh\npython ../tool.py\n')
    assert ran.stdout == "operator of the recipe\n"
