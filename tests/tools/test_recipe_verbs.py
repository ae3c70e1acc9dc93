"""The shell scripts of the recipe stages: compute_cmvn.sh, make_lists.sh, score.sh, train.sh,
decode.sh, export.sh.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.support import preloaded
from tests.support.models.tiny_paraformer import tiny_paraformer

ROOT = Path(__file__).resolve().parents[2]


def call(*command: str, cwd: Path) -> subprocess.CompletedProcess:
    environment = preloaded.on_path()
    environment |= {"PATH": f"{ROOT / 'tools'}:{environment['PATH']}", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


@pytest.fixture
def part(tmp_path):
    """Folder data/train with five utterances."""
    folder = tmp_path / "data" / "train"
    folder.mkdir(parents=True)
    names = [f"utt{number}" for number in range(5)]
    for name in names:
        soundfile.write(folder / f"{name}.wav", np.zeros(1600), 16000)
    (folder / "wav.scp").write_text("".join(f"{name} {folder}/{name}.wav\n" for name in names))
    (folder / "text").write_text("".join(f"{name} one two\n" for name in names))
    return folder


def test_make_lists_lists_audio_files_or_archives(part, tmp_path):
    assert call("make_lists.sh", "--parts", "data/train", cwd=tmp_path).returncode == 0
    lines = [json.loads(line) for line in (part / "data.list").read_text().splitlines()]
    assert [line["key"] for line in lines] == [f"utt{number}" for number in range(5)]

    options = ("--data_type", "shard", "--num_utts_per_shard", "2", "--parts", "data/train")
    assert call("make_lists.sh", *options, cwd=tmp_path).returncode == 0
    assert len((part / "data.list").read_text().splitlines()) == 3


@pytest.mark.parametrize("data_type", ["raw", "shard"])
def test_make_lists_stops_at_bad_audio_unless_it_is_allowed(part, tmp_path, data_type):
    (part / "utt3.wav").write_bytes(b"")
    options = ("make_lists.sh", "--data_type", data_type, "--parts", "data/train")
    stopped = call(*options, cwd=tmp_path)
    assert stopped.returncode == 1
    assert "error: utt3: " in stopped.stderr
    assert "--allow_bad" in stopped.stderr
    allowed = call(*options, "--allow_bad", "true", cwd=tmp_path)
    assert allowed.returncode == 0
    assert "error: utt3: " in allowed.stderr
    assert json.loads((part / "data.list.json").read_text())["totals"]["utterances"] == 4


def test_score_prints_a_table_of_the_modes(tmp_path):
    (tmp_path / "ref").write_text("a one two three\nb four\n")
    for mode, text in (("good", "a one two three\nb four\n"), ("bad", "a one three\nb five six\n")):
        (tmp_path / "exp" / mode).mkdir(parents=True)
        (tmp_path / "exp" / mode / "text").write_text(text)
    result = call("score.sh", "--ref", "ref", "--dir", "exp", "--modes", "good bad", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    header, good, bad = (line.split() for line in result.stdout.splitlines() if line)
    rates = ["WER", "%", "norm.", "%", "CER", "%"]
    assert header == ["decode", "mode", *rates, "tokens", "sub", "del", "ins"]
    assert good == ["good", "0.00", "0.00", "0.00", "4", "0", "0", "0"]
    assert bad == ["bad", "75.00", "75.00", "64.71", "4", "1", "1", "1"]
    assert "Overall -> 75.00 %" in (tmp_path / "exp" / "bad" / "wer").read_text()
    assert "Overall -> 64.71 % N=17" in (tmp_path / "exp" / "bad" / "cer").read_text()


def test_score_counts_ideographs_with_char_1(tmp_path):
    (tmp_path / "ref").write_text("a 我爱 go\n", encoding="utf-8")
    (tmp_path / "hyp").mkdir()
    (tmp_path / "hyp" / "text").write_text("a 我 go\n", encoding="utf-8")
    for char in ("0", "1"):
        result = call(
            "score.sh", "--ref", "ref", "--dir", ".", "--modes", "hyp", "--char", char, cwd=tmp_path
        )
        assert result.returncode == 0, result.stderr
    header, row = (line.split() for line in result.stdout.splitlines() if line)
    assert header == ["decode", "mode", "MER", "%", "tokens", "sub", "del", "ins"]
    assert row == ["hyp", "33.33", "3", "0", "1", "0"]
    assert not {"cer", "wer_normalized"} & {path.name for path in (tmp_path / "hyp").iterdir()}


@pytest.mark.parametrize(
    ("reference", "name"), [("我爱你", "CER"), ("we left home", "WER"), ("我爱 home", "MER")]
)
def test_the_table_of_char_1_names_what_is_counted(tmp_path, reference, name):
    (tmp_path / "ref").write_text(f"a {reference}\n", encoding="utf-8")
    (tmp_path / "hyp").mkdir()
    (tmp_path / "hyp" / "text").write_text("a 我 left\n", encoding="utf-8")
    options = ("--ref", "ref", "--dir", ".", "--modes", "hyp", "--char", "1")
    result = call("score.sh", *options, cwd=tmp_path)
    assert result.stdout.split()[:4] == ["decode", "mode", name, "%"], result.stderr


@pytest.mark.parametrize(
    ("language", "normalised"), [("en", "0.00"), ("de", "50.00"), ("", "50.00")]
)
def test_the_rate_of_normalised_texts_stands_beside_the_plain_one(tmp_path, language, normalised):
    (tmp_path / "ref").write_text("a I won't, go!\n")
    (tmp_path / "hyp").mkdir()
    (tmp_path / "hyp" / "text").write_text("a i will not go\n")
    options = ("--ref", "ref", "--dir", ".", "--modes", "hyp", "--language", language)
    result = call("score.sh", *options, cwd=tmp_path)
    assert result.stdout.splitlines()[-1].split()[:3] == ["hyp", "100.00", normalised]
    name = "english" if language == "en" else "basic"
    assert f"norm. %: WER of texts normalised by compute-wer.py --normalize {name}" in result.stderr


def test_the_table_of_a_test_of_silence_has_no_rate_but_insertions(tmp_path):
    (tmp_path / "ref").write_text("a\nb\n")
    (tmp_path / "hyp").mkdir()
    (tmp_path / "hyp" / "text").write_text("a you\nb\n")
    result = call("score.sh", "--ref", "ref", "--dir", ".", "--modes", "hyp", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    row = result.stdout.splitlines()[-1].split()
    assert row == ["hyp", "n/a", "n/a", "n/a", "0", "0", "0", "1"]


def test_score_removes_ignored_words_from_references_and_hypotheses(tmp_path):
    (tmp_path / "ref").write_text("a UH I KNOW\n")
    (tmp_path / "hyp").mkdir()
    (tmp_path / "hyp" / "text").write_text("a I UM KNOW UH\n")
    (tmp_path / "hesitations").write_text("UH\nUM\n")
    options = ("--ref", "ref", "--dir", ".", "--modes", "hyp", "--ignored_words", "hesitations")
    result = call("score.sh", *options, cwd=tmp_path)
    assert result.stdout.splitlines()[-1].split() == [
        "hyp",
        "0.00",
        "0.00",
        "0.00",
        "2",
        "0",
        "0",
        "0",
    ]


@pytest.mark.parametrize("allowed", [False, True])
def test_compute_cmvn_stops_at_bad_audio_unless_it_is_allowed(part, tmp_path, allowed):
    (part / "utt3.wav").write_bytes(b"")
    (tmp_path / "train.yaml").write_text("dataset_conf: {fbank_conf: {num_mel_bins: 40}}\n")
    options = ("--allow_bad", "true") if allowed else ()
    result = call("compute_cmvn.sh", "--config", "train.yaml", *options, cwd=tmp_path)
    assert result.returncode == (0 if allowed else 1)
    assert "utt3" in result.stderr
    assert (part / "global_cmvn").exists() == allowed


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ("make_lists.sh", "--parts", "data/x"),
            "data/x/wav.scp is missing; stage 0 makes it (--stage 0)",
        ),
        (
            ("train.sh", "--dir", "exp"),
            "data/train/data.list is missing; stage 3 makes it (--stage 3)",
        ),
        (
            ("decode.sh", "--dir", "exp"),
            "data/test/data.list is missing; stage 3 makes it (--stage 3)",
        ),
        (
            ("export.sh", "--dir", "exp"),
            "data/test/data.list is missing; stage 3 makes it (--stage 3)",
        ),
        (("score.sh", "--ref", "ref", "--modes", "m", "--dir", "exp"), "ref is missing"),
    ],
)
def test_a_missing_file_is_reported_with_the_stage_that_makes_it(tmp_path, command, message):
    result = call(*command, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (1, f"error: {message}\n")


def test_several_machines_need_a_rendezvous_endpoint(tmp_path):
    result = call("train.sh", "--dir", "exp", "--num_nodes", "2", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (
        1,
        "error: --num_nodes 2 needs --rdzv_endpoint host:port of machine 0\n",
    )


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    """A function that calls a verb in a folder with data lists and a model; returns the arguments
    of Python in it.

    The file `messages` in `tmp_path` has what the verb printed.
    """
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("""#!/bin/sh\nprintf '%s\\n' "$@" >>arguments\n""")
    (tmp_path / "bin" / "python").chmod(0o755)
    folder = tmp_path / "it's a [1] folder"
    for name in (
        "data/train/data.list",
        "data/dev/data.list",
        "data/my test/data.list",
        "my * exp/avg.pt",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "my * exp" / "train.yaml").write_text("output_dim: 9\n")
    environment = preloaded.on_path()
    path = f"{tmp_path / 'bin'}:{ROOT / 'tools'}:{environment['PATH']}"
    environment |= {"PATH": path, "PYTHONPATH": str(ROOT)}

    def of(*command: str) -> list[str]:
        (folder / "arguments").unlink(missing_ok=True)
        with (tmp_path / "messages").open("w") as messages:
            subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdout=messages,
                stderr=messages,
                stdin=subprocess.DEVNULL,
            )
        return (folder / "arguments").read_text().splitlines()

    return of


def test_verbs_pass_paths_and_config_keys_on_as_they_are(arguments):
    train = arguments(
        "train.sh", "--config", "my conf.yaml", "--dir", "my * exp", "--checkpoint", "it's.pt", "--nproc", "1",
        "--override", "cmvn_conf.cmvn_file='a  b'  optim=a*",
    )  # fmt: skip
    options = {
        option: train[train.index(option) + 1]
        for option in ("--config", "--model_dir", "--checkpoint")
    }
    assert options == {
        "--config": "my conf.yaml",
        "--model_dir": "my * exp",
        "--checkpoint": "it's.pt",
    }
    first = train.index("--override_config") + 1
    assert train[first : first + 3] == ["cmvn_conf.cmvn_file='a  b'", "optim=a*", "--checkpoint"]

    train = arguments(
        "train.sh", "--config", "conf.yaml", "--dir", "x", "--nproc", "1",
        "--from", "/my model", "--units", "units.txt",
    )  # fmt: skip
    first = train.index("--from")
    assert train[first : first + 4] == ["--from", "/my model", "--symbol_table", "units.txt"]
    assert "tokenizer=char" in train

    decode = (
        "decode.sh",
        "--dir",
        "my * exp",
        "--tests",
        "'my test'",
        "--decode_modes",
        "attention *",
    )
    decoded = arguments(
        *decode, "--decode_options", "--context_list_path 'my * names' --lm_path=\"a b\""
    )
    named = ["--context_list_path", "my * names", "--lm_path=a b"]
    assert decoded[-5:] == [*named, "--trust_recipe", "."]
    assert decoded[decoded.index("--modes") + 1 :][:3] == ["attention", "*", "--config"]
    assert {"my * exp/train.yaml", "my * exp/avg.pt", "data/my test/data.list"} < set(decoded)
    assert "--lm_path" not in arguments(*decode)


@pytest.mark.third
@pytest.mark.parametrize(
    ("config", "modes"),
    [
        (
            "model: asr_model",
            ["ctc_greedy_search", "ctc_prefix_beam_search", "attention", "attention_rescoring"],
        ),
        ("model_conf: {ctc_weight: 0}", ["attention"]),
        ("model_conf: {ctc_weight: 1}", ["ctc_greedy_search", "ctc_prefix_beam_search"]),
        ("model: transducer", ["rnnt_greedy_search", "rnnt_beam_search"]),
        (
            "{model: transducer, model_conf: "
            "{transducer_weight: 0.6, ctc_weight: 0.2, attention_weight: 0.2}}",
            ["ctc_greedy_search", "rnnt_greedy_search", "rnnt_beam_search", "attention_rescoring"],
        ),
        (
            json.dumps(tiny_paraformer()),
            ["ctc_greedy_search", "ctc_prefix_beam_search", "paraformer_greedy_search"],
        ),
    ],
    ids=["hybrid", "no CTC", "CTC", "transducer", "transducer with three losses", "paraformer"],
)
def test_without_decode_modes_a_model_is_decoded_with_those_that_it_is_trained_for(
    arguments, tmp_path, config, modes
):
    (tmp_path / "it's a [1] folder" / "my * exp" / "train.yaml").write_text(f"{config}\n")
    decoded = arguments("decode.sh", "--dir", "my * exp", "--tests", "'my test'")
    first = decoded.index("--modes") + 1
    assert decoded[first : decoded.index("--config", first)] == modes


@pytest.mark.parametrize(
    ("config", "language", "passed"),
    [
        ("model: whisper", "en", ["--language", "en"]),
        ("model: whisper", "en,zh", []),
        ("model: asr_model", "en", []),
    ],
)
def test_the_language_is_passed_on_to_models_that_are_told_one(
    arguments, tmp_path, config, language, passed
):
    (tmp_path / "it's a [1] folder" / "my * exp" / "train.yaml").write_text(f"{config}\n")
    decode = ("decode.sh", "--dir", "my * exp", "--tests", "'my test'", "--language", language)
    decoded = arguments(*decode)
    last = decoded.index("--trust_recipe")
    assert decoded[decoded.index("--result_dir") + 2 : last] == passed


@pytest.mark.parametrize(
    ("modes", "config", "message"),
    [
        (
            "auto",
            "model_conf: {ctc_weight: 0}",
            "of 'attention' uses a language model; this model has none",
        ),
        (
            "ctc_greedy_search attention",
            "model_conf: {ctc_weight: 0.3}",
            "this model has attention_rescoring ctc_prefix_beam_search",
        ),
    ],
)
def test_a_language_model_that_no_mode_uses_is_refused_before_any_work(
    arguments, tmp_path, modes, config, message
):
    (tmp_path / "it's a [1] folder" / "my * exp" / "train.yaml").write_text(f"{config}\n")
    decode = ("decode.sh", "--dir", "my * exp", "--tests", "'my test'", "--lm_order", "3")
    with pytest.raises(FileNotFoundError, match="arguments"):  # nothing was called
        arguments(*decode, "--decode_modes", modes)
    assert message in (tmp_path / "messages").read_text()


def test_a_config_that_names_code_is_decoded_with_trust_only(arguments, tmp_path):
    (tmp_path / "it's a [1] folder" / "my * exp" / "train.yaml").write_text("model: no_such:TOY\n")
    decode = ("decode.sh", "--dir", "my * exp", "--tests", "'my test'")
    with pytest.raises(FileNotFoundError, match="arguments"):  # nothing was called
        arguments(*decode)
    assert "names code that would run: no_such:TOY" in (tmp_path / "messages").read_text()


def test_examples_are_those_of_the_development_set_or_none_if_they_are_private(arguments, tmp_path):
    for name in ("score.sh", "report_run.py"):
        (tmp_path / "bin" / name).write_text("""#!/bin/sh\nprintf '%s\\n' "$@" >reported\n""")
        (tmp_path / "bin" / name).chmod(0o755)
    folder = tmp_path / "it's a [1] folder"
    of_before = folder / "my * exp" / "examples.yaml"
    of_before.touch()
    decode = ("decode.sh", "--dir", "my * exp", "--tests", "'my test'")

    (folder / "data/dev/text").touch()
    arguments(*decode)
    reported = (folder / "reported").read_text().splitlines()
    assert reported[-5:] == ["--examples_of", "data/dev", "--data_type", "raw", "my * exp"]
    assert of_before.exists()

    arguments(*decode, "--examples", "false")
    assert "--examples_of" not in (folder / "reported").read_text()
    assert not of_before.exists()


def test_avg_chooses_what_is_averaged_and_decoded(arguments, tmp_path):
    decode = ("decode.sh", "--dir", "my * exp", "--tests", "'my test'")
    for options, chosen in (
        ((), ["--num", "5", "--val_best"]),
        (("--avg", "with_start"), ["--num", "5", "--val_best", "--with_start"]),
        (("--avg", "running"), ["--running"]),
    ):
        averaged = arguments(*decode, *options)
        first = averaged.index("--src_path") + 2
        assert averaged[first : averaged.index("-m", first)] == chosen
    with pytest.raises(FileNotFoundError, match="arguments"):  # nothing was called
        arguments(*decode, "--avg", "newest")
    message = "error: --avg newest: expected best, with_start or running"
    assert message in (tmp_path / "messages").read_text()


@pytest.mark.parametrize("complete", [False, True])
def test_decoding_a_run_that_sigterm_ended_early_warns(arguments, tmp_path, complete):
    if complete:
        (tmp_path / "it's a [1] folder" / "my * exp" / "final.pt").touch()
    arguments("decode.sh", "--dir", "my * exp", "--tests", "'my test'")
    warned = (
        "warning: my * exp: training is not complete (no final.pt)"
        in (tmp_path / "messages").read_text()
    )
    assert warned != complete


@pytest.mark.parametrize(
    ("options", "passed"),
    [
        ((), ["auto", "8"]),
        (
            ("--num_workers", "3", "--prefetch", "20", "--pin_memory", "true"),
            ["3", "20", "--pin_memory"],
        ),
        (("--pin_memory", "false"), ["auto", "8", "--no-pin_memory"]),
    ],
)
def test_train_passes_the_options_of_the_data_workers_on(arguments, options, passed):
    train = arguments(
        "train.sh", "--config", "my conf.yaml", "--dir", "x", "--nproc", "1", *options
    )
    found = [train[train.index(name) + 1] for name in ("--num_workers", "--prefetch")]
    assert [*found, *(word for word in train if word.endswith("pin_memory"))] == passed


def test_hours_bound_the_training_and_win_over_other_keys(arguments):
    call = ("train.sh", "--config", "my conf.yaml", "--dir", "x", "--nproc", "1")
    assert not [word for word in arguments(*call) if word.startswith("max_hours")]
    train = arguments(*call, "--override", "max_epoch=1 max_hours=9", "--hours", "0.5")
    first = train.index("--override_config")
    assert train[first + 1 : first + 4] == ["max_epoch=1", "max_hours=9", "max_hours=0.5"]
    alone = arguments(*call, "--hours", "2")
    assert alone[alone.index("--override_config") + 1] == "max_hours=2"


def test_data_in_override_replaces_the_training_list(arguments):
    call = ("train.sh", "--config", "my conf.yaml", "--dir", "x", "--nproc", "1")
    train = arguments(*call)
    assert train[train.index("--train_data") + 1] == "data/train/data.list"
    mixed = arguments(*call, "--override", "max_epoch=1 data='my mixture.yaml'")
    assert "--train_data" not in mixed
    assert "data='my mixture.yaml'" in mixed


@pytest.mark.parametrize(
    "verb", [("decode.sh", "--tests", "'my test'"), ("export.sh", "--check_part", "my test")]
)
def test_recipes_trust_their_own_code_unless_they_are_told_to_trust_any(arguments, verb):
    passed = arguments(*verb, "--dir", "my * exp")
    assert passed[passed.index("--trust_recipe") + 1] == "."
    assert "--trust_code" not in passed
    trusting = arguments(*verb, "--dir", "my * exp", "--trust_code", "true")
    assert "--trust_code" in trusting
    assert "--trust_recipe" not in trusting
