"""What SpeechBrain's document on WebDataset prints: its shards are written and trained, in its batches
and its nominal epochs.
"""

from __future__ import annotations

import pathlib
import random
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
import torch
import webdataset
import yaml

from tests.support.ends.trained import TrainedRun, call
from tests.support.recipes.document_run import MODEL, RANKS, check_passes, use, walk
from wenet_uio.bin import make_dict

DOCUMENT = "001_17bf0e17a88a4de1.txt"
CORPUS = Path("LibriSpeech/dev-clean-2")
RATE, SHARDS, PER_SHARD = 16000, 11, 12
KEYS = [f"{spk}-{doc}-{n:04d}" for spk in (84, 174) for doc in (7, 9) for n in range(33)]


def write_corpus() -> None:
    """Write utterances of 1 to 5 s in the layout of Mini Librispeech."""
    assert len(KEYS) == SHARDS * PER_SHARD
    draw = np.random.default_rng(0)
    for key in KEYS:
        speaker, chapter, number = key.split("-")
        folder = CORPUS / speaker / chapter
        folder.mkdir(parents=True, exist_ok=True)
        samples = draw.uniform(-0.1, 0.1, round((1 + int(number) / 8) * RATE))
        soundfile.write(folder / f"{key}.flac", samples, RATE)
        with open(folder / f"{speaker}-{chapter}.trans.txt", "a") as texts:
            texts.write(f"{key} {('A WORD', 'A WORD SAID')[int(number) % 2]}\n")


def write_shards(document: str) -> None:
    """Run the code of the document that writes shards, with fewer utterances in each."""
    code = document[document.index("DATAROOT = ") : document.index("! cd DATA-SHARDS/")]
    assert code.count("maxcount = 100") == 1

    def read_audio(path: str) -> torch.Tensor:
        return torch.from_numpy(soundfile.read(path, dtype="float32")[0])

    speechbrain = SimpleNamespace(
        dataio=SimpleNamespace(dataio=SimpleNamespace(read_audio=read_audio))
    )
    modules = {"pathlib": pathlib, "random": random, "wds": webdataset, "sb": speechbrain}
    exec(code.replace("maxcount = 100", f"maxcount = {PER_SHARD}"), modules)


def printed(pattern: str, document: str) -> str:
    """Return what the document prints at a place, the same wherever it has this place."""
    (found,) = set(re.findall(pattern, document))
    return found


@pytest.mark.all
@RANKS
def test_the_nominal_epochs_of_speechbrains_document_end_with_a_model(
    seeds, tmp_path, monkeypatch, ranks
):
    document = (seeds / DOCUMENT).read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    write_corpus()
    write_shards(document)
    shards = printed(r'wds\.WebDataset\(str\(SHARDSDIR\)\+"(.+)"\)', document)
    Path("train.list").write_text(f"DATA-SHARDS{shards}\n")
    Path("cv.list").write_text("DATA-SHARDS/shard-000000.tar\n")
    texts = (path.read_text() for path in CORPUS.glob("*/*/*.trans.txt"))
    Path("text").write_text("".join(texts))
    call(make_dict, "--split_with_space", "text", "units.txt")  # text_mapping of the document

    epochs = int(printed(r"for epoch in range\(1,(\d+)\)", document)) - 1
    batches = {
        "batch_type": "dynamic",
        "batch_target": int(printed(r'"target_batch_numel":16000\*(\d+)\.', document)),
        "batch_duration": int(printed(r'"max_batch_numel": +16000\*(\d+)\.', document)),
    }
    config = {
        **MODEL,
        "tokenizer": "char",
        "tokenizer_conf": {"symbol_table_path": "units.txt", "split_with_space": True},
        "dataset_conf": {"fbank_conf": {"num_mel_bins": 24}, "batch_conf": batches},
        "epoch_steps": int(printed(r"looped_nominal_epoch=(\d+)", document)),
        "max_epoch": epochs,
    }
    Path("train.yaml").write_text(yaml.safe_dump(config))
    data = ("--data_type", "shard", "--train_data", "train.list", "--cv_data", "cv.list")
    steps, _ = walk(("--config", "train.yaml", *data), ranks=ranks)
    read = use(TrainedRun(Path("exp"), "cv.list", "shard"), epochs, steps, PER_SHARD)
    assert len(steps) == epochs * config["epoch_steps"]
    check_passes(read, set(KEYS))
