"""A batch policy is added in two files.

The toy policy here bounds the padded letters of a batch, in exactly the places that
wenet_uio/dataset/plan/README.md names.
"""

import json
from dataclasses import replace

from tests.support.edited_package import edited_package, run_with

POLICY = '''
@dataclass(frozen=True)
class LettersPolicy(Policy):
    """A bound on padded letters."""

    bound: int

    def identity(self) -> dict[str, Any]:
        return {"kind": "letters", "bound": self.bound}

    def units(self, lengths: Lengths) -> np.ndarray:
        return np.maximum(lengths.tokens, 1).astype(np.int64)


def _audio_policy_of('''
EDITS = {
    "config/batch.py": [
        (
            'Literal["static", "dynamic", "bucket"] = "static"\n',
            'Literal["static", "dynamic", "bucket", "letters"] = "static"\n'
            "    max_letters: Positive = 100\n",
        )
    ],
    "dataset/plan/policies.py": [
        ("\ndef _audio_policy_of(", POLICY),
        (
            '    if conf.batch_type == "static":\n',
            '    if conf.batch_type == "letters":\n'
            "        return LettersPolicy(conf.max_letters)\n"
            '    if conf.batch_type == "static":\n',
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


def test_it_bounds_its_batches_and_loses_nothing(tmp_path, make_utterances):
    utterances = make_utterances(24)
    lines = [
        replace(line, text="a" * (1 + number)).to_json() for number, line in enumerate(utterances)
    ]
    data_list = tmp_path / "data.list"
    data_list.write_text("\n".join(lines) + "\n")
    package = edited_package(tmp_path / "package", EDITS)
    first, second = json.loads(run_with(package, SCRIPT, data_list))
    assert len(first) == len(second)  # steps
    batches = first + second
    keys = [key for keys, _ in batches for key in keys]
    assert sorted(keys) == sorted(set(keys))
    assert len(keys) == 24
    costs = [len(texts) * max(map(len, texts)) for _, texts in batches if texts]
    assert max(costs) <= 40
    assert len({len(texts) for _, texts in batches}) > 1  # not a fixed number
