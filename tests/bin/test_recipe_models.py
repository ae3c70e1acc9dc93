"""Every model of the recipe fsdd trains a few steps and recognises, with the commands that the
recipe calls.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from wenet_uio.base.files import written_aside
from wenet_uio.bin import recognize, train

CONF = Path(__file__).parents[2] / "examples/fsdd/s0/conf"
CTC_AND_ATTENTION = [
    "ctc_greedy_search",
    "ctc_prefix_beam_search",
    "attention",
    "attention_rescoring",
]
MODES = {
    "train_e_branchformer": CTC_AND_ATTENTION,
    "train_squeezeformer": CTC_AND_ATTENTION,
    "train_transducer": [*CTC_AND_ATTENTION, "rnnt_greedy_search", "rnnt_beam_search"],
}
UTTERANCES = 6
SHORTER = [
    "cmvn=null",
    "tokenizer_conf.symbol_table_path=units.txt",
    "tokenizer_conf.split_with_space=false",
    "dataset_conf.batch_conf.batch_size=2",
    "max_epoch=1",
    "epoch_steps=3",
    "log_interval=1",
]
WITHOUT_PICTURES = ["observe_interval=0", "report=false"]
"""Drawing takes as long as the rest; one of the models is enough."""


@pytest.fixture
def call() -> Callable[..., None]:
    def run(tool, *arguments: str) -> None:
        tool.main([*arguments, "--device", "cpu"])

    return run


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(name, marks=() if name == "train_transducer" else pytest.mark.all)
        for name in MODES
    ],
)
def test_it_trains_and_recognises(config, call, make_lists, tmp_path, monkeypatch):
    data = make_lists(UTTERANCES)["raw"]
    monkeypatch.chdir(tmp_path)
    with written_aside("units.txt", "w") as file:
        file.writelines(
            f"{unit} {place}\n"
            for place, unit in enumerate(("<blank>", "<unk>", "a", "b", "c", "<sos/eos>"))
        )
    shorter = [
        "--override_config",
        *SHORTER,
        *([] if config == "train_transducer" else WITHOUT_PICTURES),
    ]
    lists = ["--train_data", data, "--cv_data", data]
    call(train, "--config", str(CONF / f"{config}.yaml"), *lists, "--model_dir", "exp", *shorter)
    record = yaml.safe_load(Path("exp/epoch_0.yaml").read_text())
    assert record["step"] == 3
    modes = MODES[config]
    model = ["--config", "exp/train.yaml", "--checkpoint", "exp/final.pt"]
    call(
        recognize,
        *model,
        "--test_data",
        data,
        "--modes",
        *modes,
        "--beam_size",
        "3",
        "--result_dir",
        "out",
    )
    for mode in modes:
        assert len(Path("out", mode, "text").read_text().splitlines()) == UTTERANCES
