"""This project's loader: shards, batches by length, the state of rank 0 serves every rank.

Set up as in docs/how-to/own-loop.md.
"""

from __future__ import annotations

import io
import json
import tarfile
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch  # noqa: F401 - loaded before the ranks are forked
from protocol import Adapter, Run, Step
from samples import Sample, shards

from wenet_uio.config import parse_config
from wenet_uio.dataset import LoaderOptions, build_loader, open_corpus

RATE = 1000
"""Hz. 10 samples are a frame of 10 ms."""


class Loader(Adapter):
    """wenet_uio: one plan for all ranks."""

    DISTRIBUTIONS = ("torch", "numpy")

    def write(self, folder: Path, samples: list[Sample]) -> None:
        """Write tars of wav and txt, their list and its index, as packing does."""
        paths = []
        for number, group in enumerate(shards(samples)):
            paths.append(folder / f"{number:06d}.tar")
            with tarfile.open(paths[-1], "w") as tar:
                for sample in group:
                    _add(tar, f"{sample.key}.wav", _wav(sample))
                    _add(tar, f"{sample.key}.txt", b"a")

        data_list = folder / "data.list"
        data_list.write_text("".join(f"{path}\n" for path in paths))
        open_corpus(str(data_list), "shard")

    def open(self, run: Run) -> Iterator[Step]:
        """Yield batches of at most `run.batch_frames` padded frames."""
        lists = [str(run.folder / source / "data.list") for source in run.sources]
        sources = [{"type": "shard", "data_list": path} for path in lists]
        mixture = run.folder / f"mixture_{run.rank}_{run.world}.yaml"
        mixture.write_text(json.dumps({"sources": sources}))
        conf = {
            "fbank_conf": {"num_mel_bins": 4, "snip_edges": False},
            "resample_conf": {"resample_rate": RATE},
            "batch_conf": {"batch_type": "dynamic", "max_frames_in_batch": run.batch_frames},
        }
        config = parse_config({"dataset_conf": conf}, "guarantees")
        options = LoaderOptions(
            rank=run.rank,
            world_size=run.world,
            num_workers=run.workers,
            seed=run.seed,
            empty_batches=True,  # equal steps on every rank
        )
        data_list = lists[0] if len(lists) == 1 else str(mixture)
        self._loader = build_loader(
            data_list, "shard", config, None, training=True, options=options
        )
        if run.states is not None:
            self._loader.load_state_dict(run.states[0])

        step: Step = []
        for batch in self._loader:
            step.append(list(zip(batch.keys, batch.feats_lengths.tolist(), strict=True)))
            if batch.closes_step:
                yield step
                step = []

    def state(self) -> Any:
        """Return the same on every rank."""
        return self._loader.state_dict()


def _wav(sample: Sample) -> bytes:
    with io.BytesIO() as file:
        with wave.open(file, "wb") as out:
            out.setparams((1, 2, RATE, 0, "NONE", ""))
            out.writeframes(bytes(sample.length * 20))
        return file.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
