"""What CAT's document on large data sets prints: features are packed by length, its patterns of tars
are trained, and the development set is read as it lies.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.support.data.kaldi_features import write_ark
from tests.support.ends.trained import TrainedRun, call
from tests.support.recipes.document_run import MODEL, use, walk
from wenet_uio.bin import make_dict, make_raw_list, make_shard_list

DOCUMENT = "004_cef6a57c65ee0754.txt"
EPOCHS, PER_TAR, BINS = 2, 4, 80
FRAMES = {f"u{number:03d}": 40 + 20 * number for number in range(60)}
"""Frames of each matrix; 48 have fewer than 1000."""
SHORT = [key for key, frames in FRAMES.items() if frames < 1000]
DEV = dict(list(FRAMES.items())[:10])
READ = [SHORT, list(FRAMES), SHORT[: 10 * PER_TAR]]
"""What the document says that its three patterns stand for, with so many utterances in a tar."""
WHOLE = 1
CELLS = [
    pytest.param(trset, ranks, marks=() if (trset, ranks) == (WHOLE, 2) else pytest.mark.all)
    for trset in range(len(READ))
    for ranks in (1, 2, 3)
]


def write_kaldi(name: str, frames: dict[str, int]) -> None:
    """Write features of Kaldi, and texts in which Chinese words have no blanks between them."""
    draw = np.random.default_rng(0)
    folder = Path(name)
    folder.mkdir()
    write_ark(
        folder,
        {key: draw.normal(size=(count, BINS)).astype(np.float32) for key, count in frames.items()},
    )
    (folder / "text").write_text("".join(f"{key} 而对楼市\n" for key in frames), encoding="utf-8")


@pytest.mark.all
@pytest.mark.parametrize(("trset", "ranks"), CELLS)
def test_the_trsets_of_cats_document_end_with_a_model(seeds, tmp_path, monkeypatch, trset, ranks):
    document = (seeds / DOCUMENT).read_text(encoding="utf-8")
    trsets = re.findall(r"^trset='(.+)'$", document, re.MULTILINE)
    assert len(trsets) == len(READ)
    folder, groups = re.findall(r"d_out='(.+?)', filter_group=\[(.+?)\]", document)[0]
    (form,) = re.findall(r'fmt: str = "(.+)"', document)

    monkeypatch.chdir(tmp_path)
    write_kaldi("train", FRAMES)
    write_kaldi("dev", DEV)
    options = ("--fmt", form, "--num_utts_per_shard", PER_TAR, "--filter_unit", "frames")
    options += ("--filter_group", *re.findall(r"'(.+?)'", groups))
    call(make_shard_list, "train/feats.scp", "train/text", folder, "data.list", *options)
    call(make_raw_list, "dev/feats.scp", "dev/text", "cv.list")
    call(make_dict, "train/text", "units.txt")
    Path("train.list").write_text(f"{trsets[trset]}\n")
    Path("cv.yaml").write_text("sources: [{type: raw, data_list: cv.list}]\n")
    batches = {"batch_type": "dynamic", "max_frames_in_batch": 6000}
    config = {
        **MODEL,
        "tokenizer": "char",
        "tokenizer_conf": {"symbol_table_path": "units.txt"},
        "dataset_conf": {"batch_conf": batches, "filter_conf": {"max_length": 2000}},
        "max_epoch": EPOCHS,
    }
    Path("train.yaml").write_text(yaml.safe_dump(config))
    data = ("--data_type", "shard", "--train_data", "train.list", "--cv_data", "cv.yaml")
    steps, _ = walk(("--config", "train.yaml", *data), ranks=ranks)
    read = use(TrainedRun(Path("exp"), "cv.list"), EPOCHS, steps, len(DEV))
    assert read == [dict.fromkeys(READ[trset], 1)] * EPOCHS
