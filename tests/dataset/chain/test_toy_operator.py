"""An operator of the chain is added in four files.

The toy operator here turns the polarity of a waveform, in exactly the places that
wenet_uio/dataset/chain/README.md names for a change of waveforms.
"""

import ast
import json

import numpy as np
import pytest
from radon.complexity import cc_rank, cc_visit_ast

from tests.support.edited_package import edited_package, run_with

OPERATOR = '''
@dataclass(frozen=True)
class TurnPolarity:
    """Turn the sign of every sample."""

    def __call__(self, example: Example) -> Example:
        return replace(example, waveform=-waveform_of(example))


def resample('''
SECTION = '''
class PolarityConf(Section):
    """Turned sign of waveforms."""


class AugmentationKeys('''
EDITS = {
    "dataset/chain/waveform.py": [("\ndef resample(", OPERATOR)],
    "config/augmentation.py": [
        ("\nclass AugmentationKeys(", SECTION),
        (
            "    gain_conf: GainConf | None = None\n",
            "    gain_conf: GainConf | None = None\n    polarity_conf: PolarityConf | None = None\n",
        ),
    ],
    "config/dataset.py": [('    "gain",\n', '    "gain",\n    "polarity",\n')],
    "dataset/chain/waveform_augment.py": [
        ('    "gain",\n)\n', '    "gain",\n    "polarity",\n)\n'),
        (
            "    if conf.gain_conf:\n",
            '    if conf.polarity_conf:\n        chain["polarity"] = (TurnPolarity(),)\n'
            "    if conf.gain_conf:\n",
        ),
        (
            "from wenet_uio.dataset.corpus.base import Corpus\n",
            "from wenet_uio.dataset.chain.waveform import TurnPolarity\n"
            "from wenet_uio.dataset.corpus.base import Corpus\n",
        ),
    ],
}
OWN = """
from dataclasses import replace

class Note:
    def __call__(self, example):
        return replace(example, extra={**example.extra, "sample": float(example.waveform[100])})
"""
SCRIPT = """
import json, sys
from wenet_uio.config import parse_config
from wenet_uio.dataset import build_loader

samples = []
for training in (True, False):
    for polarity in ({}, {"polarity_conf": {}}):
        dataset_conf = {**polarity, "operators": [
            {"use": "own:Note", "after": "polarity", "evaluation": True}]}
        config = parse_config({"output_dim": 9, "dataset_conf": dataset_conf}, "test")
        loader = build_loader(sys.argv[1], "raw", config, lambda text: [1, 2], training=training)
        samples.append({key: extra["sample"] for batch in loader
                        for key, extra in zip(batch.keys, batch.extra)})
print(json.dumps(samples))
"""
FEATURES = """
import logging, sys
from wenet_uio.config import parse_config
from wenet_uio.dataset import build_loader

logging.basicConfig(stream=sys.stdout)
conf = {"polarity_conf": {}, "fbank_conf": {"num_mel_bins": 20}}
config = parse_config({"output_dim": 9, "dataset_conf": conf}, "test")
build_loader(sys.argv[1], "raw", config, lambda text: [1, 2], training=True)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The folder of the edited package."""
    folder = edited_package(tmp_path_factory.mktemp("toy") / "package", EDITS)
    (folder / "own.py").write_text(OWN)
    return folder


def test_it_runs_in_training_at_its_place_and_operators_of_the_user_may_follow_it(
    package, make_lists
):
    plain, turned, evaluated, also = json.loads(run_with(package, SCRIPT, make_lists(6)["raw"]))
    assert len(plain) == 6
    assert any(plain.values())
    assert turned == {key: -sample for key, sample in plain.items()}
    assert also == evaluated


def test_a_list_of_stored_features_says_that_it_is_left_out(package, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((50, 20), np.float32))
    line = {"key": "a", "wav": str(tmp_path / "a.npy"), "txt": "b"}
    (tmp_path / "data.list").write_text(json.dumps(line) + "\n")
    printed = run_with(package, FEATURES, tmp_path / "data.list")
    assert "what needs audio is left out: polarity_conf" in printed


def test_the_functions_that_get_its_lines_have_room_for_them(package):
    """An operator of three conditions must not exceed the limit of test_architecture.py."""
    for name in ("dataset/dataset.py", "dataset/chain/waveform_augment.py"):
        tree = ast.parse((package / "wenet_uio" / name).read_text(encoding="utf-8"))
        for block in cc_visit_ast(tree):
            assert cc_rank(block.complexity + 3) <= "C", f"{name}: {block.fullname}"
