"""Weights of a trained model for a new one with other units."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.families.transducer.test_model import KINDS, PREDICTOR_CONFS
from tests.support.models.tiny_paraformer import tiny_paraformer
from tests.support.models.tiny_whisper import tiny_config
from wenet_uio.config import Config, parse_config
from wenet_uio.config.train import ENDLESS
from wenet_uio.models.build import build_trainable
from wenet_uio.train import start
from wenet_uio.train.schedules import build_schedule
from wenet_uio.train.start import FineTune, Fresh, Resume, WeightFiles
from wenet_uio.train.trained_model import TrainedModel

SMALL = {"attention_heads": 2, "linear_units": 16, "num_blocks": 1}
IDS = {"special_tokens": {"<sos>": 8, "<eos>": 8}}
HYBRID = {
    "encoder": "conformer",
    "encoder_conf": {**SMALL, "output_size": 16},
    "decoder_conf": SMALL,
    "tokenizer_conf": IDS,
    "input_dim": 20,
    "output_dim": 9,
}
TRANSDUCER = {
    "model": "transducer",
    "model_conf": {"transducer_weight": 0.5, "ctc_weight": 0.2, "attention_weight": 0.3},
    "joint": "transducer_joint",
}
CONFIGS: dict[str, dict[str, Any]] = {
    "hybrid": HYBRID,
    "two decoders": {
        **HYBRID,
        "decoder": "bitransformer",
        "decoder_conf": {**SMALL, "r_num_blocks": 1},
        "model_conf": {"reverse_weight": 0.3},
        "use_lora": True,
    },
    "interctc": {
        **HYBRID,
        "encoder_conf": {**SMALL, "output_size": 16, "num_blocks": 2},
        "interctc_layer_idx": [1],
        "interctc_weight": 0.3,
        "interctc_conditioning": True,
    },
    "zipformer": {**HYBRID, "encoder": "zipformer", "encoder_conf": {}},
    "paraformer": tiny_paraformer(),
    **{
        f"transducer {kind}": {
            **HYBRID,
            **TRANSDUCER,
            "encoder_conf": {**SMALL, "output_size": 12},
            "predictor": predictor,
            "predictor_conf": PREDICTOR_CONFS[predictor],
            "joint_conf": {"join_dim": 14, **joint},
        }
        for kind, (predictor, joint) in KINDS.items()
    },
}


def all_configs(folder: Path) -> dict[str, Config]:
    """CONFIGS, and those that need more than a yaml."""
    cmvn = {"mean_stat": [0.0] * 20, "var_stat": [1.0] * 20, "frame_num": 1}
    (folder / "cmvn").write_text(json.dumps(cmvn))
    statistics = {"cmvn": "global_cmvn", "cmvn_conf": {"cmvn_file": str(folder / "cmvn")}}
    made = {name: parse_config(values, name) for name, values in CONFIGS.items()}
    made["cmvn"] = parse_config(HYBRID | statistics, "cmvn")
    made["whisper"] = tiny_config(output_dim=1530)
    return made


@pytest.mark.parametrize("epoch_steps", [1, 2, 3, 10, 29, 75, 1000])
@pytest.mark.parametrize(
    "keys", [{}, {"accum_grad": 4}, {"max_steps": 7}, {"max_epoch": ENDLESS, "max_steps": 600}]
)
def test_the_rate_of_a_fine_tuning_is_highest_after_a_third_of_a_short_run(
    epoch_steps: int, keys: dict[str, int]
) -> None:
    config = tiny_run(max_epoch=2, **keys) if "max_epoch" not in keys else tiny_run(**keys)
    filled = fine_tuning(config).fill_in_warm_up(config, epoch_steps)
    passes = -(-epoch_steps // config.accum_grad) * config.max_epoch
    steps = min(passes, config.max_steps or passes)
    schedule = build_schedule(filled)

    factors = [schedule(step, 0) for step in range(1, steps + 1)]
    highest = factors.index(max(factors)) + 1
    assert max(factors) == pytest.approx(1)
    assert highest == max(1, min(50, steps // 3))


def test_a_warm_up_that_is_stated_stays_and_a_run_that_resumes_keeps_its_own() -> None:
    stated = tiny_run(scheduler_conf={"warmup_steps": 25000})
    assert fine_tuning(stated).fill_in_warm_up(stated, 5) is stated
    lengths = {"warmup_steps": 5, "hold_steps": 5, "decay_steps": 5}
    other = tiny_run(scheduler="tri_stage", scheduler_conf=lengths)
    assert fine_tuning(other).fill_in_warm_up(other, 5) is other
    began = tiny_run(scheduler_conf={"warmup_steps": 4})
    resumed = Resume({}, began, {}, WeightFiles())
    assert resumed.fill_in_warm_up(tiny_run(), 5000).scheduler_conf == began.scheduler_conf


def test_a_run_that_begins_from_no_model_keeps_the_warm_up_of_its_yaml_also_when_it_resumes() -> (
    None
):
    config = tiny_run()
    assert Fresh(WeightFiles()).fill_in_warm_up(config, 5) is config
    assert Resume({}, None, {}, WeightFiles()).fill_in_warm_up(config, 5) is config


def test_a_ctc_layer_that_the_trained_model_lacks_is_detached_and_a_resumed_run_keeps_that() -> (
    None
):
    without_ctc = tiny_run(model_conf={"ctc_weight": 0.0})
    config = tiny_run()
    assert fine_tuning(without_ctc).detach_new_ctc(config).ctc_detach_steps == ENDLESS
    assert fine_tuning(config).detach_new_ctc(config) is config
    stated = tiny_run(ctc_detach_steps=7)
    assert fine_tuning(without_ctc).detach_new_ctc(stated) is stated
    resumed = Resume({}, stated, {}, WeightFiles())
    assert resumed.detach_new_ctc(config).ctc_detach_steps == 7


def fine_tuning(of: Config) -> FineTune:
    """The start of a run from a trained model with the config `of`."""
    return FineTune(TrainedModel(Path("model"), Path("model/final.pt"), of), {}, WeightFiles())


def tiny_run(**keys: Any) -> Config:
    return parse_config({**HYBRID, **keys}, "run")


def test_the_layers_with_a_row_a_unit_are_those_whose_shape_a_larger_vocabulary_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices: set[str] = set()

    def built(config: Config) -> Any:
        model = build_trainable(config)
        devices.update(weight.device.type for weight in model.parameters())
        return model

    monkeypatch.setattr(start, "build_trainable", built)

    for name, config in all_configs(tmp_path).items():
        model = build_trainable(config)
        size = config.family.vocabulary(config).size
        larger = config.model_copy(update={"output_dim": size + 3, "vocab_size": size + 3})
        shapes = {key: value.shape for key, value in build_trainable(larger).state_dict().items()}
        wanted = model.state_dict()
        changed = {key for key, value in wanted.items() if value.shape != shapes[key]}
        random = torch.get_rng_state()

        tables = start._tables_of_units(wanted, config)

        assert tables.keys() == changed, name
        assert changed, name
        assert all(wanted[key].size(dim) in (size, size - 1) for key, dim in tables.items()), name
        assert torch.equal(torch.get_rng_state(), random), name

    assert devices == {"meta"}
