"""What NeMo's document on data sets prints is trained: its data sections, its overrides, and its sets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.support.ends.trained import TrainedRun
from tests.support.recipes.document_run import MODEL, check_passes, use, walk
from tests.support.recipes.nemos_document import EXAMPLES, WORDS, lhotse, write_set
from tests.support.storage.ais_server import serving_ais
from wenet_uio.text.spm import SentencepieceOptions, train_sentencepiece

EPOCHS, DEV = 2, 6
CELLS = [
    pytest.param(
        example,
        ranks,
        id=f"{example.__name__}-{ranks}",
        marks=() if (example, ranks) == (lhotse, 2) else pytest.mark.all,
    )
    for example in EXAMPLES
    for ranks in (1, 2, 3)
]


@pytest.mark.parametrize(("write", "ranks"), CELLS)
def test_an_example_of_nemos_document_ends_with_a_model(
    nemo_examples, tmp_path, monkeypatch, write, ranks
):
    monkeypatch.chdir(tmp_path)
    write_set("dev", DEV)
    Path("tokenizer").mkdir()
    train_sentencepiece(WORDS * 9, Path("tokenizer/tokenizer"), SentencepieceOptions(8))
    example = write(nemo_examples)
    config = {
        **MODEL,
        "dataset_conf": {"fbank_conf": {"num_mel_bins": 24}},
        "tokenizer": {"type": "bpe", "dir": "tokenizer"},
        # What an experiment has before a user adds the lines of the document
        "train_ds": {"sample_rate": 8000, "batch_size": 4, "shuffle": True, **example.train_ds},
        "validation_ds": {"manifest_filepath": "dev.json", "sample_rate": 8000},
        "trainer": {"max_epochs": EPOCHS},
        **example.keys,
    }
    Path("train.yaml").write_text(yaml.safe_dump(config))
    options = ["--config", "train.yaml"]
    if example.overrides:
        options += ["--override_config", *example.overrides]

    with serving_ais(Path("buckets"), monkeypatch):
        steps, said = walk(options, ranks=ranks, stop=1)
    run = TrainedRun(Path("exp"), "dev.json", trusts_code="model" in example.keys)
    read = [audio_of(epoch) for epoch in use(run, EPOCHS, steps, DEV)]
    if example.is_nominal:
        check_passes(read, set(example.read))
        assert example.told in said
    else:
        assert read == [example.read] * EPOCHS


def audio_of(epoch: Counter[str]) -> Counter[str]:
    """Return the times of utterances, by the names of their files, without lines of texts."""
    return Counter(
        {key.removesuffix(".wav"): times for key, times in epoch.items() if ":" not in key}
    )
