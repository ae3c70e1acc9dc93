"""From utterances to data lists: raw lists with their index, and shards packed in parallel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from wenet_uio.dataset.audio import AudioError, audio_info, encode_wav, read_audio
from wenet_uio.dataset.data_list import RawLine
from wenet_uio.dataset.index import Rows
from wenet_uio.dataset.indexing import UTTERANCES_PER_RUN, build_index
from wenet_uio.dataset.shard import PackedSample, sidecar_of, write_shard
from wenet_uio.files import written_aside

Failure = tuple[str, str]
"""Key of an utterance, and why it was left out."""


def make_raw_list(utterances: Sequence[RawLine], data_list: str, per_run: int = UTTERANCES_PER_RUN) -> list[Failure]:
    """Write a raw list and its index.

    Returns:
        the utterances whose audio cannot be read; they stay in the list, and out of its index.
    """
    with written_aside(data_list, "w") as file:
        file.writelines(utterance.to_json() + "\n" for utterance in utterances)
    return build_index(data_list, "raw", per_run)


@dataclass(frozen=True)
class ShardJob:
    """One shard to pack."""

    path: str
    utterances: Sequence[RawLine]
    resample_rate: int | None = None
    """Hz; None keeps the audio as it is encoded."""


def make_shard_list(
    utterances: Sequence[RawLine],
    shards_dir: str | Path,
    data_list: str,
    *,
    prefix: str = "shards",
    per_shard: int = UTTERANCES_PER_RUN,
    resample_rate: int | None = None,
    processes: int = 1,
) -> list[Failure]:
    """Pack utterances into `shards_dir/prefix_%09d.tar`, each with its index, and list them.

    Audio keeps its encoded bytes unless it is resampled or is a segment of a recording. Shards of an earlier, longer
    run are removed.

    Returns:
        the utterances that could not be packed.
    """
    folder = Path(shards_dir)
    folder.mkdir(parents=True, exist_ok=True)
    jobs = [
        ShardJob(str(folder / f"{prefix}_{number:09d}.tar"), utterances[first : first + per_shard], resample_rate)
        for number, first in enumerate(range(0, len(utterances), per_shard))
    ]
    failures: list[Failure] = []
    with ProcessPoolExecutor(processes) as pool, tqdm(None, "pack", len(utterances), unit="utt", disable=None) as bar:
        for job, failed in zip(jobs, pool.map(pack_shard, jobs), strict=True):
            failures.extend(failed)
            bar.update(len(job.utterances))
    for stale in set(folder.glob(f"{prefix}_*.tar")) - {Path(job.path) for job in jobs}:
        sidecar_of(stale).unlink(missing_ok=True)
        stale.unlink()
    with written_aside(data_list, "w") as file:
        file.writelines(f"{job.path}\n" for job in jobs)
    build_index(data_list, "shard")
    return failures


def pack_shard(job: ShardJob) -> list[Failure]:
    """Write one shard; returns the utterances that could not be packed."""
    failures: list[Failure] = []

    def samples() -> Iterator[PackedSample]:
        for utterance in job.utterances:
            try:
                yield pack(utterance, job.resample_rate)
            except (AudioError, OSError) as error:
                failures.append((utterance.key, str(error)))

    rows: Rows = write_shard(job.path, samples())
    assert len(rows) + len(failures) == len(job.utterances)
    return failures


def pack(utterance: RawLine, resample_rate: int | None = None) -> PackedSample:
    """Read an utterance's audio for a shard.

    Raises:
        AudioError: it cannot be read.
    """
    if resample_rate is None and not utterance.start and utterance.end is None:
        audio = Path(utterance.wav).read_bytes()
        info = audio_info(audio)
        suffix = Path(utterance.wav).suffix[1:].lower() or "wav"
        return PackedSample(utterance.key, utterance.text, audio, suffix, info.num_samples, info.sample_rate)
    waveform, rate = read_audio(utterance.wav, utterance.start, utterance.end)
    if resample_rate is not None and rate != resample_rate:
        waveform, rate = _resample(waveform, rate, resample_rate), resample_rate
    return PackedSample(utterance.key, utterance.text, encode_wav(waveform, rate), "wav", len(waveform), rate)


def _resample(waveform: np.ndarray, rate: int, target: int) -> np.ndarray:
    import torch  # a second and 200 MB that other packing does without

    from wenet_uio.dataset.operators.waveform import resample

    return resample(torch.from_numpy(waveform), rate, target).numpy()
