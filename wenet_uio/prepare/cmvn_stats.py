"""Global mean and variance statistics of features, over the same chain that evaluation uses."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import numpy as np
import torch

from wenet_uio.audio.read import AudioError, read_audio
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.dataset import build_chain
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.types import Example, SkipSample
from wenet_uio.executor import Executor, chunks
from wenet_uio.files import written_aside

UTTERANCES_PER_JOB = 64


def cmvn_statistics(
    lines: Sequence[RawLine], conf: DatasetConf, executor: Executor, allow_bad: bool = False
) -> dict[str, object]:
    """Sums over all frames of the utterances' audio, in float64: `mean_stat`, `var_stat` (of squares), `frame_num`.

    Utterances that cannot be read or are too short for a frame are named on stderr; they are an error unless
    `allow_bad`, and one in any case where none is left.

    Raises:
        AudioError: naming every one of them.
    """
    jobs = [(some, conf) for some in chunks(list(lines), UTTERANCES_PER_JOB)]
    total = np.zeros((2, conf.feature_dim))
    frames = 0
    failures: list[str] = []
    for sums, count, failed in executor.map(_sum, jobs, "cmvn", len(lines), lambda job: len(job[0])):
        total += sums
        frames += count
        failures.extend(failed)
    if failures:
        message = f"{len(failures)} of {len(lines)} utterances have no features:\n  " + "\n  ".join(failures)
        if not allow_bad or not frames:
            raise AudioError(message)
        print(message, file=sys.stderr)
    return {"mean_stat": total[0].tolist(), "var_stat": total[1].tolist(), "frame_num": frames}


def write_cmvn(statistics: dict[str, object], path: str) -> None:
    """Write statistics in WeNet's JSON form."""
    with written_aside(path, "w") as file:
        json.dump(statistics, file)


def _sum(job: tuple[Sequence[RawLine], DatasetConf]) -> tuple[np.ndarray, int, list[str]]:
    lines, conf = job
    torch.set_num_threads(1)
    chain = build_chain(conf, None, training=False)
    sums = np.zeros((2, conf.feature_dim))
    frames = 0
    failures: list[str] = []
    for line in lines:
        try:
            waveform, rate = read_audio(line.wav, line.start, line.end, conf.singal_channel_conf.channel)
            example = Example(line.key, "", torch.from_numpy(waveform), rate, random=0)
            for operator in chain:
                example = operator(example)
        except (AudioError, SkipSample) as error:
            failures.append(f"{line.key} {line.wav}: {error}")
            continue
        feats = example.feats.double()
        sums += np.stack([feats.sum(0).numpy(), feats.square().sum(0).numpy()])
        frames += len(feats)
    return sums, frames, failures
