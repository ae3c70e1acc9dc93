"""Rank and world size of a loader, where the caller gives none."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wenet_uio.config import parse_config
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.options import LoaderOptions

ROOT = Path(__file__).resolve().parents[2]
LOOP = """
import json, sys
import torch.distributed as dist
from wenet_uio.config import parse_config
from wenet_uio.dataset import LoaderOptions, build_loader

data_list, meeting, rank, world_size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world_size)
config = parse_config({"output_dim": 9, "dataset_conf": {}}, "test")
loader = build_loader(data_list, "raw", config, lambda text: [1, 2], training=True)
keys = [key for batch in loader for key in batch.keys]
try:
    LoaderOptions(rank=(rank + 1) % world_size, world_size=world_size)
    refused = ""
except ValueError as error:
    refused = str(error)
print(json.dumps({"keys": keys, "steps": len(loader), "refused": refused}))
"""


@pytest.mark.all
def test_a_loop_under_torch_distributed_that_forgets_them_reads_every_utterance_once(
    make_lists, tmp_path
):
    data_list = make_lists(40)["raw"]
    command = [sys.executable, "-c", LOOP, data_list, str(tmp_path / "meeting")]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), "2"],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    first, second = (json.loads(rank.communicate()[0].splitlines()[-1]) for rank in ranks)
    assert len(set(first["keys"] + second["keys"])) == 40
    assert len(first["keys"] + second["keys"]) == 40
    assert "torch.distributed says that this is rank 0" in first["refused"]


def test_the_variables_of_a_launcher_count_where_there_is_no_group(make_lists, monkeypatch):
    data_list, keys = make_lists(20)["raw"], []
    config = parse_config({"output_dim": 9, "dataset_conf": {}}, "test")
    monkeypatch.setenv("WORLD_SIZE", "3")
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        loader = build_loader(data_list, "raw", config, lambda text: [1], training=False)
        keys += [key for batch in loader for key in batch.keys]
    assert len(keys) == len(set(keys)) == 20


@pytest.mark.parametrize(
    ("environment", "options", "message"),
    [
        ({"RANK": "0"}, {}, "RANK and WORLD_SIZE are '0' and ''"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, {}, "not two numbers"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, {}, "rank 2 is outside a world of 2"),
        ({}, {"rank": 1}, "rank and world_size belong together"),
        ({}, {"world_size": 2}, "rank and world_size belong together"),
        ({}, {"rank": 2, "world_size": 2}, "rank 2 is outside a world of 2"),
    ],
)
def test_what_does_not_fit_is_refused(environment, options, message, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        LoaderOptions(**options)


def test_what_the_caller_gives_counts_whatever_a_launcher_says(monkeypatch):
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "8")
    given = LoaderOptions(rank=0, world_size=1)
    assert (given.rank, given.world_size) == (0, 1)
    assert (LoaderOptions().rank, LoaderOptions().world_size) == (5, 8)
