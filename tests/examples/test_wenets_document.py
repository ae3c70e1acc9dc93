"""The six stages of WeNet's AISHELL run-through, as a document for its users prints them, from their
first command to their last file.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support import preloaded
from tests.support.recipes.miniatures import aishell
from tests.support.recipes.wenets_document import script_of

ROOT = Path(__file__).parents[2]
DOCUMENT = "002_4c8f79df3fe4f298.txt"
MODES = ("ctc_greedy_search", "ctc_prefix_beam_search", "attention", "attention_rescoring")
SMALL = {"attention_heads": 2, "linear_units": 32, "num_blocks": 1}
CONFIG = {
    "encoder": "conformer",
    "encoder_conf": SMALL | {"output_size": 16, "cnn_module_kernel": 15},
    "decoder": "transformer",
    "decoder_conf": SMALL,
    "tokenizer": "char",
    "tokenizer_conf": {"symbol_table_path": "data/dict/lang_char.txt", "split_with_space": False},
    "cmvn": "global_cmvn",
    "cmvn_conf": {"cmvn_file": "data/train/global_cmvn", "is_json_cmvn": True},
    "model": "asr_model",
    "model_conf": {"ctc_weight": 0.3, "lsm_weight": 0.1, "length_normalized_loss": False},
    "dataset_conf": {
        "speed_perturb": True,
        "spec_aug": True,
        "shuffle": True,
        "shuffle_conf": {"shuffle_size": 1500},
        "batch_conf": {"batch_type": "static", "batch_size": 16},
    },
    "accum_grad": 4,
    "max_epoch": 2,
}
"""A small model with the keys of WeNet's train_conformer.yaml."""


@pytest.fixture
def walk(seeds, tmp_path, monkeypatch):
    """A function that runs stages of the document in the folder of a recipe of WeNet."""
    (tmp_path / "bin").mkdir()
    torchrun = tmp_path / "bin/torchrun"
    torchrun.write_text('#!/bin/sh\nexec python -m torch.distributed.run "$@"\n')
    torchrun.chmod(0o755)
    environment = preloaded.on_path() | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{tmp_path}/bin:{environment['PATH']}"

    for name in ("tools", "wenet_uio"):
        (tmp_path / name).symlink_to(ROOT / name)
    folder = tmp_path / "examples/aishell/s0"
    (folder / "conf").mkdir(parents=True)
    (folder / "conf/train_conformer.yaml").write_text(yaml.safe_dump(CONFIG))
    aishell(folder / "corpus")
    prepare = ROOT / "examples/aishell/s0/local/prepare_data.py"
    (folder / "local").mkdir()
    stage_0 = folder / "local/aishell_data_prep.sh"  # WeNet's; the corpus is prepared by ours
    stage_0.write_text(f'#!/bin/sh\nexec {prepare} "$(dirname "$1")/.." data\n')
    stage_0.chmod(0o755)
    script = script_of((seeds / DOCUMENT).read_text(encoding="utf-8"))
    monkeypatch.chdir(folder)

    def call(first: int, last: int, data_type: str, ranks: int, name: str = "conformer") -> str:
        Path("run.sh").write_text(script.replace("dir=exp/conformer", f"dir=exp/{name}"))
        command = ["bash", "run.sh", str(first), str(last), data_type]
        gpus = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(ranks)))}
        done = subprocess.run(command, env=environment | gpus, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout + done.stderr

    return call


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param([(2, "shard")], id="2 ranks"),
        pytest.param([(1, "raw"), (2, "shard"), (3, "raw")], id="1-3 ranks", marks=pytest.mark.all),
    ],
)
def test_the_stages_of_wenets_document_end_with_all_their_files(runs, walk):
    walk(0, 2, "raw", 1)
    for ranks, data_type in runs:
        name = f"conformer_{ranks}"
        told = walk(3, 6, data_type, ranks, name)
        run = Path("exp", name)
        starts = yaml.safe_load((run / "environment.yaml").read_text())
        assert starts[0]["ranks"] == ranks
        assert told.count("nccl is for GPUs; ranks on the CPU exchange by gloo") == (ranks > 1)
        assert told.count("reverse_weight 0.5 is 0 for this model") == 1
        assert told.count("checked with data/dev/data.list, the validation set of the run") == 1

        for mode in MODES:
            assert len((run / mode / "text").read_text(encoding="utf-8").splitlines()) == 2
            assert re.search(r"^Overall -> ", (run / mode / "wer").read_text(), re.MULTILINE)
        files = ("epoch_0.pt", "epoch_1.pt", "final.pt", "avg_30.pt", "report.html")
        exported = ("final.zip", "final_quant.zip")
        assert [file for file in (*files, *exported) if not (run / file).exists()] == []
        # Each run has its own curves below the folder that all runs of the document share.
        (events,) = Path("tensorboard", name).iterdir()
        assert events.name.startswith("events.out.tfevents.")
    assert len(list(Path("tensorboard").iterdir())) == len(runs)
