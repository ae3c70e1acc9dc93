"""Frames of a frozen encoder on disk: what each rank finds, and damaged files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from wenet_uio.train.frame_store import FrameStore

WIDTH = 3
LENGTHS = {"a": 4, "b": 0, "c": 1}


def store_of(folder: Path, rank: int, epoch: int, dtype: torch.dtype = torch.float32) -> FrameStore:
    store = FrameStore(folder, rank, WIDTH, dtype)
    store.begin_epoch(epoch)
    return store


def frames(value: float) -> dict[str, torch.Tensor]:
    return {digest: torch.full((length, WIDTH), value) for digest, length in LENGTHS.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_frames_are_found_as_they_were_stored_by_this_process_and_a_later_one(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    first = store_of(tmp_path, 0, 0, dtype)
    first.add({"x": torch.rand(5, WIDTH)})
    stored = {digest: value.to(dtype) for digest, value in frames(0.3).items()}
    first.add(stored)
    for store in (first, store_of(tmp_path, 0, 0, dtype), store_of(tmp_path, 1, 7, dtype)):
        for digest, expected in stored.items():
            found = store.find(digest)
            assert found is not None
            assert found.dtype == dtype
            assert torch.equal(found, expected), digest
        assert store.find("y") is None


def test_a_rank_finds_its_own_frames_at_once_and_those_of_others_from_the_next_epoch_on(
    tmp_path: Path,
) -> None:
    ranks = [store_of(tmp_path, rank, 2) for rank in range(3)]
    ranks[1].add(frames(1.0))
    assert ranks[1].find("a") is not None
    for rank in (0, 2):
        assert ranks[rank].find("a") is None
        assert store_of(tmp_path, rank, 2).find("a") is None, "started again within the epoch"
        ranks[rank].begin_epoch(3)
        assert ranks[rank].find("a") is not None


def test_of_frames_that_several_ranks_stored_all_take_those_of_the_lowest(tmp_path: Path) -> None:
    for rank in (2, 1):
        store_of(tmp_path, rank, 0).add(frames(float(rank)))
    for rank in range(12):
        found = store_of(tmp_path, rank, 1).find("a")
        assert found is not None
        assert found.eq(1.0).all()


def test_an_unfinished_write_is_written_again(tmp_path: Path) -> None:
    store_of(tmp_path, 0, 0).add(frames(1.0))
    data, index = tmp_path / "rank_0.bin", tmp_path / "rank_0.jsonl"
    with open(data, "ab") as file:
        file.write(b"\1" * 7)  # killed between the frames and their line
    with open(index, "ab") as file:
        file.write(b'{"epoch": 0, "off')  # or within the line
    store = store_of(tmp_path, 0, 0)
    store.add({"d": torch.full((2, WIDTH), 4.0)})
    for again in (store, store_of(tmp_path, 0, 0)):
        for digest, expected in {"d": torch.full((2, WIDTH), 4.0), **frames(1.0)}.items():
            found = again.find(digest)
            assert found is not None
            assert torch.equal(found, expected)


@pytest.mark.parametrize("damage", ["other bytes", "cut"])
def test_damaged_frames_are_one_line_with_their_file(tmp_path: Path, damage: str) -> None:
    store_of(tmp_path, 0, 0).add(frames(1.0))
    data = tmp_path / "rank_0.bin"
    content = data.read_bytes()
    data.write_bytes(content[:5] if damage == "cut" else b"\0" * len(content))
    with pytest.raises(ValueError, match=r"rank_0\.bin: damaged at byte 0; remove the folder"):
        store_of(tmp_path, 1, 1).find("a")


def test_a_full_disk_is_an_error_with_the_name_of_the_file(tmp_path: Path) -> None:
    class Full(FrameStore):
        def _data(self, rank: int) -> Path:
            return Path("/dev/full")

    store = Full(tmp_path, 0, WIDTH, torch.float32)
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        store.add(frames(1.0))
