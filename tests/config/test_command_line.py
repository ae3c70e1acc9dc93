"""Options of WeNet's commands: their meaning, and the line for those without effect."""

from __future__ import annotations

import argparse

import pytest

from wenet_uio.config import ConfigError, load_config
from wenet_uio.config.command_line import (
    add_config_options,
    add_gpu_option,
    add_lora_options,
    change_nothing,
    config_overrides,
    device_of,
)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="tool")
    made.add_argument("--device", default="auto")
    add_config_options(made, cmvn=True)
    add_lora_options(made, training=True)
    add_gpu_option(made)
    change_nothing(made, {"--jit": "no tracing", "--deepspeed.save_states": "always all"})
    return made


def changes(*arguments: str) -> list[str]:
    return config_overrides(parser().parse_args(arguments))


def test_files_of_the_command_line_replace_those_of_the_config(tmp_path):
    (tmp_path / "a.yaml").write_text("tokenizer_conf: {symbol_table_path: other}\n")
    files = (
        "--dict",
        "my: units",
        "--bpe_model",
        "b 1.model",
        "--non_lang_syms",
        "5",
        "--cmvn",
        "übung",
    )
    config = load_config(tmp_path / "a.yaml", changes(*files))
    conf = config.tokenizer_conf
    assert (conf.symbol_table_path, conf.bpe_path, conf.non_lang_syms_path) == (
        "my: units",
        "b 1.model",
        "5",
    )
    assert (config.tokenizer, config.cmvn, config.cmvn_conf.cmvn_file) == (
        "bpe",
        "global_cmvn",
        "übung",
    )


def test_nothing_is_changed_without_options():
    assert changes() == []


def test_override_config_may_be_repeated_and_wins():
    given = (
        "--symbol_table",
        "a",
        "--override_config",
        "max_epoch=2",
        "--override_config",
        "tokenizer_conf.x=1",
        "y=2",
    )
    assert changes(*given)[1:] == ["max_epoch=2", "tokenizer_conf.x=1", "y=2"]


@pytest.mark.parametrize(
    "override", ["max_epoch 3", " max_epoch  3 ", "max_epoch=3", "max_epoch = 3"]
)
def test_overrides_have_our_form_or_wenets(override, tmp_path):
    (tmp_path / "a.yaml").write_text("max_epoch: 1\n")
    assert load_config(tmp_path / "a.yaml", [override]).max_epoch == 3


def test_a_value_of_wenets_form_may_have_an_equals_sign(tmp_path):
    (tmp_path / "a.yaml").write_text("max_epoch: 1\n")
    overridden = load_config(tmp_path / "a.yaml", ["tokenizer_conf.symbol_table_path a=b/c d"])
    assert overridden.tokenizer_conf.symbol_table_path == "a=b/c d"
    with pytest.raises(
        ConfigError, match=r"--override_config max_epoch: expected key.subkey=value"
    ):
        load_config(tmp_path / "a.yaml", ["max_epoch"])


@pytest.mark.parametrize("switch", [("--use_lora",), ("--use_lora", "True")])
def test_lora_options_change_its_section(switch, tmp_path):
    (tmp_path / "a.yaml").write_text("lora_conf: {lora_alpha: 3}\n")
    more = (
        "--only_optimize_lora",
        "true",
        "--lora_list",
        "linear_q,linear_out",
        "--lora_rank",
        "4",
    )
    config = load_config(tmp_path / "a.yaml", changes(*switch, *more))
    assert (config.use_lora, config.only_optimize_lora) == (True, True)
    conf = config.lora_conf
    assert (conf.lora_list, conf.lora_rank, conf.lora_alpha) == (("linear_q", "linear_out"), 4, 3)


def test_a_model_with_lora_is_used_without_it_by_one_option(tmp_path):
    (tmp_path / "a.yaml").write_text("use_lora: true\nonly_optimize_lora: true\n")
    config = load_config(tmp_path / "a.yaml", changes("--use_lora", "false"))
    assert (config.use_lora, config.only_optimize_lora) == (False, False)


@pytest.mark.parametrize(
    ("arguments", "visible", "device"),
    [
        ((), "0,1", "auto"),
        (("--device", "cpu"), None, "cpu"),
        (("--gpu", "-1", "--device", "cuda"), "0", "cpu"),
        (("--gpu", "1"), None, "cuda:1"),
        (("--gpu", "1"), "0,1", "cuda:1"),
        (("--gpu", "5"), "4,5", "cuda:1"),
        (("--gpu", "0"), "4,5", "cuda:0"),
        (("--gpu", "0"), "GPU-3f,GPU-70", "cuda:0"),
    ],
)
def test_the_gpu_is_that_of_its_number(arguments, visible, device):
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    args = parser().parse_args(arguments)
    assert device_of(args, has_gpu=True, environment=environment) == device


def test_the_gpu_of_wenets_run_sh_is_the_cpu_on_a_machine_without_one_and_is_said(capsys):
    args = parser().parse_args(["--gpu", "0"])
    assert device_of(args, has_gpu=False) == "cpu"
    assert capsys.readouterr().err == "--gpu 0: no GPU is found; the CPU is used\n"
    named = parser().parse_args(["--device", "cuda:0"])
    assert device_of(named, has_gpu=False) == "cuda:0"


@pytest.mark.parametrize(
    "values", [("--jit",), ("--jit", "x"), ("--deepspeed.save_states", "model_only")]
)
def test_an_option_without_effect_is_one_line_and_leaves_no_trace(values, capsys):
    assert vars(parser().parse_args([*values, "--gpu", "2"])) == vars(
        parser().parse_args(["--gpu", "2"])
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{values[0]} changes nothing here: ")


def test_options_without_effect_are_not_in_the_help_and_others_are_silent(capsys):
    assert "--jit" not in parser().format_help()
    parser().parse_args(["--gpu", "2"])
    assert capsys.readouterr().err == ""
