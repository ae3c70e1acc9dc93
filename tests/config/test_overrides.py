"""An error of a config names the overrides that it comes from."""

import logging
import random
import re

import pytest

from wenet_uio.config import ConfigError, load_config

KEYS = {  # key: a good value, a bad value
    "max_epoch": ("5", "many"),
    "accum_grad": ("2", "x"),
    "optim_conf.lr": ("0.1", "fast"),
    "optim_conf.nothing": (None, "1"),
    "encoder_conf.num_blocks": ("3", "-1"),
    "encoder_conf.output_size": ("64", "two"),
    "dataset_conf.batch_conf.batch_size": ("4", "[1]"),
    "ctc": ("ctc", "ctcc"),
    "nothing": (None, "1"),
}


def message_of(path, overrides=()):
    with pytest.raises(ConfigError) as error:
        load_config(path, overrides)
    return str(error.value)


@pytest.mark.parametrize("seed", range(40))
def test_a_problem_names_the_override_that_gave_it_and_only_that(seed, tmp_path):
    drawn = random.Random(seed)
    kinds = {key: drawn.choice(("left", "good", "bad", "bad in yaml")) for key in KEYS}
    kinds["max_epoch"] = "bad"
    path = tmp_path / "a.yaml"
    in_yaml = [key for key in KEYS if kinds[key] == "bad in yaml" and "." not in key]
    path.write_text("".join(f"{key}: {KEYS[key][1]}\n" for key in in_yaml) or "{}")
    overrides = [
        f"{key}={good if kinds[key] == 'good' else bad}"
        for key, (good, bad) in KEYS.items()
        if kinds[key] == "bad" or (kinds[key] == "good" and good)
    ]
    drawn.shuffle(overrides)
    overrides += drawn.sample(overrides, drawn.randint(0, len(overrides)))

    header, *lines = message_of(path, overrides).split("\n  ")
    lines = lines or [header]
    named = {}
    for line in lines:
        found = re.fullmatch(r"(?:--override_config (\S+): )?([\w.]+): .*", line)
        assert found, line
        named[found[2]] = found[1]

    expected = {key: f"{key}={KEYS[key][1]}" for key in KEYS if kinds[key] == "bad"}
    assert named == expected | dict.fromkeys(in_yaml)
    assert header == lines[0] or header == f"{path}: {len(lines)} problems"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["max_epoch x"], "--override_config max_epoch x: max_epoch: expected an integer"),
        (["max_epoch=x", "max_epoch=y"], "--override_config max_epoch=y: max_epoch: expected an"),
        (["trainer.max_epochs=x"], "--override_config trainer.max_epochs=x: trainer.max_epochs: "),
        (
            ["encoder=transformer", "encoder_conf.cnn_module_kernel=15"],
            "--override_config encoder=transformer encoder_conf.cnn_module_kernel=15: encoder_conf.",
        ),
        (
            ["encoder_conf.attention_heads=3", "max_epoch=2"],
            "--override_config encoder_conf.attention_heads=3: encoder_conf: output_size 256 is not",
        ),
        (["max_epoch"], "--override_config max_epoch: expected key.subkey=value"),
    ],
)
def test_whatever_finds_the_problem_it_names_the_overrides(overrides, message, tmp_path):
    (tmp_path / "a.yaml").write_text("max_epoch: 3\n")
    assert message_of(tmp_path / "a.yaml", overrides).startswith(message)


def test_problems_of_the_file_alone_are_those_without_overrides(tmp_path):
    path = tmp_path / "a.yaml"
    for content in ("max_epoch: x\n", "max_epoch: x\naccum_grad: y\n", "encoder: [\n", "- a\n"):
        path.write_text(content)
        assert message_of(path, ["optim_conf.lr=0.1"]) == message_of(path)


def test_notes_of_a_config_come_once(tmp_path, caplog):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a.yaml").write_text(
        "tokenizer_conf: {symbol_table_path: data/units.txt}\n"
    )
    (tmp_path / "elsewhere/units.txt").write_text("<blank> 0\n")
    with caplog.at_level(logging.INFO):
        message_of(tmp_path / "elsewhere/a.yaml", ["max_epoch=x", "accum_grad=2", "ctc=ctc"])
    assert [record.getMessage().count("is taken") for record in caplog.records] == [1]
