"""Sub-word regularisation in a loader: on any worker, after a resume, in evaluation, in the
plan.
"""

import json
import random

import pytest

from tests.support.data.loading import FakeConfig
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.text.bpe import SentencepieceSplitter
from wenet_uio.text.labels import Tokenizer
from wenet_uio.text.sampling import Sampling
from wenet_uio.text.spm import SentencepieceOptions, train_sentencepiece


@pytest.fixture(scope="module")
def splitter(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("spm") / "bpe"
    chosen = random.Random(0)
    texts = ["".join(chosen.choices("abc", k=12)) for _ in range(100)]
    train_sentencepiece(texts, prefix, SentencepieceOptions(vocab_size=24, model_type="bpe"))
    return SentencepieceSplitter(f"{prefix}.model", (), Sampling(0.4, 8))


@pytest.fixture
def data_list(make_lists, tmp_path):
    """A raw list whose texts have several segmentations."""
    lines = [json.loads(line) for line in open(make_lists(24)["raw"])]
    chosen = random.Random(1)
    path = tmp_path / "texts.list"
    path.write_text(
        "".join(
            json.dumps(line | {"txt": "".join(chosen.choices("abc", k=8))}) + "\n" for line in lines
        )
    )
    return str(path)


def loader(data_list, splitter, training=True, conf=None, **options):
    tokenizer = Tokenizer(splitter, splitter.symbols)
    config = FakeConfig(**(conf or {}))
    return build_loader(
        data_list, "raw", config, tokenizer, training=training, options=LoaderOptions(**options)
    )


def labels(batches):
    return {
        key: row.tolist()
        for batch in batches
        for key, row in zip(batch.keys, batch.target, strict=True)
    }


def test_drawn_labels_are_equal_on_any_worker_and_after_a_resume_and_differ_between_epochs(
    data_list, splitter
):
    one = loader(data_list, splitter)
    expected = list(one)
    assert labels(loader(data_list, splitter, num_workers=2)) == labels(expected)
    begun, other = loader(data_list, splitter), loader(data_list, splitter)
    for _ in zip(range(2), begun, strict=False):
        pass
    other.load_state_dict(json.loads(json.dumps(begun.state_dict())))
    assert labels(other) == labels(expected[2:])
    later = labels(one)
    differ = [key for key, row in labels(expected).items() if drawn(later[key]) != drawn(row)]
    assert len(differ) > len(later) / 2


def drawn(row):
    return [unit for unit in row if unit >= 0]


def test_evaluation_has_the_best_pieces(data_list, splitter):
    plain = SentencepieceSplitter(splitter.path)
    expected = labels(loader(data_list, plain, training=False))
    assert labels(loader(data_list, splitter, training=False)) == expected
    assert {key: drawn(row) for key, row in labels(loader(data_list, splitter)).items()} != {
        key: drawn(row) for key, row in expected.items()
    }


@pytest.mark.parametrize("filters", [{"max_tps": 50}, {"min_tps": 0.1}])
def test_a_plan_that_counts_tokens_is_refused(data_list, splitter, filters):
    with pytest.raises(
        ListError, match="sample_alpha changes the number of tokens in each epoch, but batch_tokens"
    ):
        loader(data_list, splitter, conf={"filter_conf": filters})
    loader(data_list, splitter, conf={"filter_conf": filters}, training=False)
