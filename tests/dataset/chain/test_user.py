# pyright: reportArgumentType=false, reportOperatorIssue=false
import json
from dataclasses import dataclass, replace

import pytest
import torch

from tests.support.data.loading import CONF, TOKENIZER, loader
from wenet_uio.base.executor import Executor
from wenet_uio.config.base import ConfigError, parse
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.chain.user import OperatorError
from wenet_uio.dataset.dataset import build_chain
from wenet_uio.dataset.types import SkipSample
from wenet_uio.prepare.cmvn_stats import cmvn_statistics

HERE = "tests.dataset.chain.test_user"


@dataclass(frozen=True)
class Gain:
    """A typical operator of a user."""

    factor: float = 1.0

    def __call__(self, example):
        return replace(example, waveform=example.waveform * self.factor)


@dataclass(frozen=True)
class FailOn:
    """Fails on one utterance, in the way that `how` names."""

    key: str
    how: str

    def __call__(self, example):
        if example.key != self.key:
            return example
        if self.how == "skip":
            raise SkipSample("too_noisy", "-3 dB")
        return None if self.how == "forget" else example.waveform + torch.zeros(3)


def conf_with(name, after="resample", evaluation=False, **conf):
    return {
        "operators": [
            {"use": f"{HERE}:{name}", "after": after, "evaluation": evaluation, "conf": conf}
        ]
    }


@pytest.mark.parametrize(
    ("after", "place"), [("decode", 0), ("resample", 3), ("spec_aug", 7), ("spec_trim", 9)]
)
def test_an_operator_runs_after_the_step_that_the_config_names(after, place):
    plain = build_chain(DatasetConf(**CONF), TOKENIZER, training=True)
    chain = build_chain(DatasetConf(**CONF, **conf_with("Gain", after)), TOKENIZER, training=True)
    assert chain[place].operator == Gain()
    assert chain[:place] + chain[place + 1 :] == plain


def test_an_operator_runs_in_training_and_in_evaluation_only_if_configured(make_lists):
    lists = make_lists(5)
    for evaluation in (False, True):
        plain, own = (
            next(iter(loader(lists["raw"], "raw", training=False, conf=conf)))
            for conf in ({}, conf_with("Gain", evaluation=evaluation, factor=2.0))
        )
        louder = own.feats[0] - plain.feats[0]  # logarithm of the squared factor
        assert float(louder.mean()) == pytest.approx(1.386 if evaluation else 0.0, abs=1e-3)


def test_cmvn_statistics_use_the_features_of_evaluation(make_utterances):
    lines = make_utterances(3)
    confs = DatasetConf(), DatasetConf(**conf_with("Gain", evaluation=True, factor=2.0))
    plain, own = (
        torch.tensor(cmvn_statistics(lines, conf, Executor())["mean_stat"]) for conf in confs
    )
    frames = cmvn_statistics(lines, confs[0], Executor())["frame_num"]
    torch.testing.assert_close((own - plain) / frames, torch.full((80,), 1.3863), atol=1e-3, rtol=0)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("how", "message"),
    [("break", "RuntimeError: The size of tensor"), ("forget", "returned NoneType")],
)
def test_an_error_of_an_operator_stops_the_run_and_names_the_utterance(
    how, message, workers, make_lists
):
    one = loader(
        make_lists(5)["raw"],
        "raw",
        num_workers=workers,
        conf=conf_with("FailOn", key="utt0003", how=how),
    )
    with pytest.raises(
        OperatorError, match=r"test_user:FailOn (failed on|returned \w+ for) utt0003"
    ):
        list(one)


def test_an_operator_can_leave_a_sample_out(make_lists):
    conf = conf_with("FailOn", key="utt0003", how="skip")
    skipped = [s for batch in loader(make_lists(5)["raw"], "raw", conf=conf) for s in batch.skipped]
    assert [(sample.key, sample.reason, sample.filtered) for sample in skipped] == [
        ("utt0003", "too_noisy", False)
    ]


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (
            {"use": "no_such_package:Gain"},
            "no_such_package:Gain: No module named 'no_such_package'; is its folder on",
        ),
        ({"use": f"{HERE}:Gian"}, "test_user.py has no Gian that can be called"),
        (
            {"use": f"{HERE}:Gain", "conf": {"facter": 2}},
            r"conf does not fit Gain\(factor.*'facter'",
        ),
        (
            {"use": f"{HERE}:conf_with", "conf": {"name": "Gain"}},
            "returned dict, which cannot be called",
        ),
    ],
)
def test_an_operator_that_cannot_be_loaded_is_named(operator, message):
    conf = DatasetConf(operators=[{"after": "resample", **operator}])
    with pytest.raises(ConfigError, match=rf"dataset_conf.operators: .*{message}"):
        build_chain(conf, TOKENIZER, training=True)


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        ({"use": "Gain", "after": "resample"}, "operators.0.use: String should match"),
        ({"use": "a:b", "after": "resampel"}, "operators.0.after: expected 'decode'"),
        ({"use": "a:b"}, "operators.0.after: required key is missing"),
        ({"use": "a:b", "after": "resample", "config": {}}, "did you mean 'conf'"),
    ],
)
def test_a_misspelt_operator_is_an_error_of_the_config(operator, message):
    with pytest.raises(ConfigError, match=message):
        parse(DatasetConf, json.loads(json.dumps({"operators": [operator]})), "train.yaml")


@pytest.mark.parametrize("after", ["features", "spec_trim"])
def test_an_operator_on_features_requires_features_in_the_workers(after):
    with pytest.raises(ValueError, match=f"comes after {after}, and needs feature_device: worker"):
        DatasetConf(feature_device="accelerator", **conf_with("Gain", after))
    DatasetConf(feature_device="accelerator", **conf_with("Gain", "resample"))


@dataclass(frozen=True)
class Reshape:
    """Returns a tensor of another shape, as a careless mean or slice does."""

    field: str
    shape: tuple[int, ...]

    def __call__(self, example):
        return replace(example, **{self.field: torch.zeros(self.shape)})


@pytest.mark.parametrize(
    ("after", "field", "shape", "message"),
    [
        (
            "features",
            "feats",
            (40, 1),
            r"features of shape \(40, 1\) for utt.*expected \(frames, 20\)",
        ),
        ("features", "feats", (40, 21), r"features of shape \(40, 21\)"),
        ("spec_aug", "feats", (20,), r"features of shape \(20,\)"),
        ("spec_aug", "feats", (1, 40, 20), r"features of shape \(1, 40, 20\)"),
        (
            "resample",
            "waveform",
            (1, 8000),
            r"a waveform of shape \(1, 8000\).*expected \(samples,\)",
        ),
        ("decode", "waveform", (), r"a waveform of shape \(\)"),
    ],
)
def test_a_wrong_shape_names_the_operator_and_the_utterance(
    make_lists, after, field, shape, message
):
    conf = conf_with("Reshape", after=after, field=field, shape=shape)
    with pytest.raises(OperatorError, match=rf"test_user:Reshape returned {message}"):
        list(loader(make_lists(5)["raw"], "raw", conf=conf))
