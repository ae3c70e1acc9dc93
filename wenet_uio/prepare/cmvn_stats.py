"""Sum features for global mean and variance normalisation, by the operators of evaluation."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.read import audio_info, read_signal
from wenet_uio.base.executor import Executor, chunks
from wenet_uio.base.files import written_aside
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.dataset import build_chain
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.kinds.audio import wrong_width
from wenet_uio.dataset.types import Example, Operator, SkipSample, feats_of

Chain = tuple[Operator, ...]
UTTERANCES_PER_JOB = 64
"""A worker reads this many utterances in one job."""


def cmvn_statistics(
    lines: Sequence[RawLine], conf: DatasetConf, executor: Executor, allow_bad: bool = False
) -> dict[str, object]:
    """Sum features over all frames of the utterances, in float64.

    Args:
        conf: what features are computed; filters and augmentation are not applied.
        allow_bad: print utterances without features on stderr instead of raising an error.

    Returns:
        `mean_stat` (sums of features), `var_stat` (sums of squares), `frame_num` (number of
        frames).

    Raises:
        AudioError: audio cannot be read or is too short for a frame, and `allow_bad` is not given
            or no utterance has features. The message names every such utterance.
    """
    jobs = [(chunk, conf) for chunk in chunks(list(lines), UTTERANCES_PER_JOB)]
    total = np.zeros((2, conf.feature_dim))
    frames = 0
    failures: list[str] = []

    results = executor.map(_sum_features, jobs, "cmvn", len(lines), lambda job: len(job[0]))
    for sums, count, failed in results:
        total += sums
        frames += count
        failures.extend(failed)

    if failures:
        title = f"{len(failures)} of {len(lines)} utterances have no features:"
        message = "\n  ".join([title, *failures])
        if not allow_bad or not frames:
            raise AudioError(message)
        print(message, file=sys.stderr)

    return {"mean_stat": total[0].tolist(), "var_stat": total[1].tolist(), "frame_num": frames}


def stack_statistics(statistics: dict[str, Any], frames: int) -> dict[str, Any]:
    """Return statistics of frames side by side, from those of single frames.

    Models that stack frames need them.
    """
    return {
        name: value * frames if isinstance(value, list) else value
        for name, value in statistics.items()
    }


def write_cmvn(statistics: dict[str, object], path: str) -> None:
    """Write statistics as WeNet's JSON: `mean_stat`, `var_stat`, `frame_num`."""
    with written_aside(path, "w") as file:
        json.dump(statistics, file)


def _sum_features(job: tuple[Sequence[RawLine], DatasetConf]) -> tuple[np.ndarray, int, list[str]]:
    """Return sums and sums of squares (2, dim), frames, and the utterances without features."""
    lines, conf = job
    torch.set_num_threads(1)
    chains = (
        build_chain(conf, None, training=False),
        build_chain(conf, None, training=False, signal="features"),
    )
    sums = np.zeros((2, conf.feature_dim))
    frames = 0
    failures: list[str] = []

    for line in lines:
        try:
            feats = _compute_features(line, conf, chains)
        except (AudioError, SkipSample) as error:
            failures.append(f"{line.key} {line.wav}: {error}")
            continue

        sums += np.stack([feats.sum(0).numpy(), feats.square().sum(0).numpy()])
        frames += len(feats)

    return sums, frames, failures


def _compute_features(
    line: RawLine, conf: DatasetConf, chains: tuple[Chain, Chain]
) -> torch.Tensor:
    """Return features (frames, dim) of an utterance in float64.

    `chains` are the operators for audio and those for stored features.
    """
    audio_info(line.wav).samples_between(line.start, line.end)  # refuses audio that is cut short
    channel = line.extra.get("channel", conf.singal_channel_conf.channel)
    signal, rate = read_signal(line.wav, line.start, line.end, channel)
    example = Example(line.key, "", None, rate, random=0)
    audio_chain, feature_chain = chains
    if signal.ndim == 2:  # stored features
        example, chain = replace(example, feats=torch.from_numpy(signal)), feature_chain
    else:
        example, chain = replace(example, waveform=torch.from_numpy(signal)), audio_chain

    for operator in chain:
        example = operator(example)

    feats = feats_of(example)
    if feats.size(1) != conf.feature_dim:
        raise AudioError(wrong_width(feats.size(1), conf.feature_dim))

    return feats.double()
