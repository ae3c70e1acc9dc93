"""Real ranks and workers, a real kill, and a resume on another number of both."""

import os
import subprocess
from pathlib import Path

from tests.support import preloaded
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.prepare.list_making import make_raw_list, make_shard_list
from wenet_uio.prepare.sharding import ShardOptions

ROOT = Path(__file__).parents[2]


def run_ranks(data_list, data_type, folder, world_size, workers, kill_after=-1):
    """Exit status of each rank."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [
        preloaded.python(),
        str(ROOT / "tests/support/data/consume.py"),
        data_list,
        data_type,
        str(folder),
    ]
    ranks = [
        subprocess.Popen(
            [*command, *map(str, (rank, world_size, workers, kill_after))], env=environment
        )
        for rank in range(world_size)
    ]
    return [rank.wait(timeout=200) for rank in ranks]


def keys_read(folder, world_size):
    """Keys of each rank, and the steps it says it took."""
    lines = [
        (folder / f"keys.{world_size}.{rank}").read_text().splitlines()
        for rank in range(world_size)
    ]
    keys = [[line for line in rank if not line.startswith("steps")] for rank in lines]
    steps = {line for rank in lines for line in rank if line.startswith("steps")}
    return [key for rank in keys for key in rank], steps


def test_an_epoch_killed_on_four_ranks_is_finished_by_three_and_every_utterance_is_read_once(
    corpora, tmp_path
):
    wavs = sorted((corpora / "fsdd" / "recordings").glob("*.wav"))[::2]
    utterances = [RawLine(wav.stem, str(wav), "abc"[int(wav.stem[0]) % 3]) for wav in wavs]
    raw, shard = str(tmp_path / "raw.list"), str(tmp_path / "shard.list")
    make_raw_list(utterances, raw, per_run=100)
    make_shard_list(utterances, tmp_path / "shards", shard, ShardOptions(per_shard=100))
    killed = run_ranks(shard, "shard", tmp_path, world_size=4, workers=2, kill_after=3)
    assert killed == [-9] * 4
    first, _ = keys_read(tmp_path, 4)
    assert run_ranks(raw, "raw", tmp_path, world_size=3, workers=1) == [0] * 3
    second, steps = keys_read(tmp_path, 3)
    assert len(steps) == 1
    assert 0 < len(first) < len(wavs)
    assert sorted(first + second) == sorted(wav.stem for wav in wavs)
