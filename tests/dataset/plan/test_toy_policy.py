"""A batch policy is added in two files.

The toy policy here bounds the padded letters of a batch, in exactly the places that
wenet_uio/dataset/plan/README.md names.
"""

import json
from dataclasses import replace
from typing import get_args

import pytest

from tests.support.edited_package import edited_package, run_with
from wenet_uio.config.batch import BatchConf
from wenet_uio.dataset.plan.policies import BATCH_TYPES

POLICY = '''
@dataclass(frozen=True)
class LettersPolicy(Policy):
    """A bound on padded letters."""

    bound: int

    def identity(self) -> dict[str, Any]:
        return {"kind": "letters", "bound": self.bound}

    def units(self, lengths: Lengths) -> np.ndarray:
        return np.maximum(lengths.tokens, 1).astype(np.int64)


BATCH_TYPES: '''
EDITS = {
    "config/batch.py": [
        (
            'Literal["static", "dynamic", "bucket"] = "static"\n',
            'Literal["static", "dynamic", "bucket", "letters"] = "static"\n'
            "    max_letters: Positive = 100\n"
            '    """letters: padded letters of a batch."""\n',
        )
    ],
    "dataset/plan/policies.py": [
        ("\nBATCH_TYPES: ", POLICY),
        (
            '    "static": BatchType(_static_policy_of, _static_limit),\n',
            '    "static": BatchType(_static_policy_of, _static_limit),\n'
            '    "letters": BatchType(\n'
            "        lambda conf: LettersPolicy(conf.max_letters),\n"
            '        lambda conf, frames, seconds: f"max_letters (now {conf.max_letters})",\n'
            "    ),\n",
        ),
    ],
}
SCRIPT = """
import json, sys
from wenet_uio.config import parse_config
from wenet_uio.dataset import build_loader
from wenet_uio.dataset.options import LoaderOptions

batch_conf = {"batch_type": "letters", "max_letters": 40}
config = parse_config({"output_dim": 9, "dataset_conf": {"batch_conf": batch_conf}}, "test")
ranks = []
for rank in range(2):
    options = LoaderOptions(rank=rank, world_size=2)
    loader = build_loader(sys.argv[1], "raw", config, lambda text: [1, 2], training=True,
                          options=options)
    ranks.append([(batch.keys, batch.texts) for batch in loader])
print(json.dumps(ranks))
"""
MEMORY_AND_MANUAL = """
import json
from docs.generator.keys import key_pages
from tests.support.train.tiny import tiny_batch
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.train.memory import SizeLimit

conf = DatasetConf(batch_conf={"batch_type": "letters", "max_letters": 40})
refusal = SizeLimit(conf).refusal([tiny_batch([5, 3], 1)], 1, "out of memory")
print(json.dumps([str(refusal), key_pages()["dataset_conf.md"]]))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The edited package, which all tests here run."""
    return edited_package(tmp_path_factory.mktemp("toy") / "package", EDITS)


@pytest.fixture(scope="module")
def refusal_and_page(package):
    """What is said of a batch that does not fit, and the page of the manual."""
    return json.loads(run_with(package, MEMORY_AND_MANUAL))


def test_it_bounds_its_batches_and_loses_nothing(package, tmp_path, make_utterances):
    utterances = make_utterances(24)
    lines = [
        replace(line, text="a" * (1 + number)).to_json() for number, line in enumerate(utterances)
    ]
    data_list = tmp_path / "data.list"
    data_list.write_text("\n".join(lines) + "\n")
    first, second = json.loads(run_with(package, SCRIPT, data_list))
    assert len(first) == len(second)  # steps
    batches = first + second
    keys = [key for keys, _ in batches for key in keys]
    assert sorted(keys) == sorted(set(keys))
    assert len(keys) == 24
    costs = [len(texts) * max(map(len, texts)) for _, texts in batches if texts]
    assert max(costs) <= 40
    assert len({len(texts) for _, texts in batches}) > 1  # not a fixed number


def test_a_batch_that_does_not_fit_in_memory_names_its_key(refusal_and_page):
    refusal, _ = refusal_and_page
    assert "lower batch_conf.max_letters (now 40) (out of memory)" in refusal


def test_the_manual_has_its_key_and_its_name(refusal_and_page):
    _, page = refusal_and_page
    assert "| `batch_type` | static or dynamic or bucket or letters |" in page
    assert (
        "| `max_letters` | integer above 0 | `100` | letters: padded letters of a batch. |" in page
    )


def test_every_name_of_a_batch_type_has_a_policy():
    names = get_args(BatchConf.model_fields["batch_type"].annotation)
    assert set(names) == set(BATCH_TYPES)
