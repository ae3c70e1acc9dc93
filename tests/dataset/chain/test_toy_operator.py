"""An operator of the chain is added in three files.

The toy operator here turns the polarity of a waveform, in exactly the places that
wenet_uio/dataset/chain/README.md names.
"""

import json

from tests.support.edited_package import edited_package, run_with

OPERATOR = '''
@dataclass(frozen=True)
class TurnPolarity:
    """Turn the sign of every sample."""

    def __call__(self, example: Example) -> Example:
        return replace(example, waveform=-waveform_of(example))


def resample('''
EDITS = {
    "dataset/chain/waveform.py": [("\ndef resample(", OPERATOR)],
    "config/dataset.py": [
        ('    "gain",\n', '    "gain",\n    "polarity",\n'),
        (
            "    time_warp: bool = False\n",
            '    polarity: bool = False\n    """Turn the sign of waveforms."""\n'
            "    time_warp: bool = False\n",
        ),
    ],
    "dataset/dataset.py": [
        (
            "        **waveform_augmentations(conf, corpus,",
            '        "polarity": (),\n        **waveform_augmentations(conf, corpus,',
        ),
        (
            "    for operator in conf.operators:\n",
            "    if training and conf.polarity and signal == 'waveform':\n"
            '        chain["polarity"] = (TurnPolarity(),)\n'
            "    for operator in conf.operators:\n",
        ),
        (
            "from wenet_uio.dataset.chain.waveform import Resample, SpeedPerturb\n",
            "from wenet_uio.dataset.chain.waveform import Resample, SpeedPerturb, TurnPolarity\n",
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
    for polarity in (False, True):
        dataset_conf = {"polarity": polarity, "operators": [
            {"use": "own:Note", "after": "polarity", "evaluation": True}]}
        config = parse_config({"output_dim": 9, "dataset_conf": dataset_conf}, "test")
        loader = build_loader(sys.argv[1], "raw", config, lambda text: [1, 2], training=training)
        samples.append({key: extra["sample"] for batch in loader
                        for key, extra in zip(batch.keys, batch.extra)})
print(json.dumps(samples))
"""


def test_it_runs_in_training_at_its_place_and_operators_of_the_user_may_follow_it(
    tmp_path, make_lists
):
    package = edited_package(tmp_path / "package", EDITS)
    (package / "own.py").write_text(OWN)
    plain, turned, evaluated, also = json.loads(run_with(package, SCRIPT, make_lists(6)["raw"]))
    assert len(plain) == 6
    assert any(plain.values())
    assert turned == {key: -sample for key, sample in plain.items()}
    assert also == evaluated
