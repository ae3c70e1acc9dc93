"""How much quiet training utterances have before and behind the speech.

A model knows as much quiet as its training had. Transcription keeps as much around what it
recognises, so the same detector measures the one and cuts the other.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import numpy as np
import torch

from wenet_uio.addons.listen.speech import Margins, measure_levels, speech_segments
from wenet_uio.base.crashes import careful
from wenet_uio.config.dataset import HeardQuiet
from wenet_uio.dataset.cursor import works
from wenet_uio.dataset.loader import Loader
from wenet_uio.dataset.reader import BatchReader
from wenet_uio.dataset.types import Example, SampleRef, SkipSample

BATCHES = 32
"""First batches of the plan from which utterances are taken: training reads them first, so nothing
else of a remote list is fetched."""
OF_A_BATCH = 8
"""Utterances of a batch: those of a batch may be of one length."""
MOST_SECONDS = 10.0
"""No further utterance is read after this time."""
PAUSE = 0.4
"""Seconds; see `speech_segments`. Pauses inside the utterance do not matter."""

log = logging.getLogger(__name__)


def measure_quiet(loader: Loader) -> HeardQuiet | None:
    """Measure the quiet around the speech of some training utterances, as the model will hear them.

    The loader does not move, and random numbers that are drawn elsewhere do not change.

    Returns:
        Medians; None if no utterance has audio with speech.
    """
    begun = time.perf_counter()
    measured: list[Margins] = []
    # Audio that crashes its decoder must not end the rank: in a careful process it is a skipped sample.
    with careful(), same_random_numbers():
        for example in heard_examples(loader):
            assert example.waveform is not None
            quiet = quiet_around(example.waveform.float().numpy(), example.sample_rate)
            if quiet is not None:
                measured.append(quiet)
            if time.perf_counter() - begun > MOST_SECONDS:
                break

    if not measured:
        return None

    before, behind = np.median(np.array(measured), axis=0).round(2).tolist()
    log.info(
        "quiet around speech in training: %.2f s before, %.2f s behind (medians of %d utterances)",
        before,
        behind,
        len(measured),
    )
    return HeardQuiet(before=before, behind=behind)


def quiet_around(waveform: np.ndarray, rate: int) -> Margins | None:
    """Return the seconds before and behind the speech of a waveform (samples,) on the scale of
    int16; None if there is no speech.
    """
    if not len(waveform):
        return None

    levels = measure_levels(waveform, rate)
    segments = speech_segments(levels, PAUSE, margins=Margins(0.0, 0.0))
    if not segments:
        return None
    return Margins(segments[0].start, max(0.0, len(waveform) / rate - segments[-1].end))


def heard_examples(loader: Loader) -> Iterator[Example]:
    """Yield examples of the first batches, each with the waveform of which features are computed."""
    plan, reader = loader.cursor.plan, loader.reader
    assert isinstance(reader, BatchReader)
    for index in range(min(BATCHES, plan.num_batches)):
        planned = (
            (SampleRef(int(shard), int(row), float(speed)), int(seed))
            for work in works(plan, plan.batch(index))
            for shard, row, speed, seed in zip(
                work.shards, work.rows, work.speeds, work.seeds, strict=True
            )
        )
        for ref, seed in islice(planned, OF_A_BATCH):
            example = _before_features(reader, ref, seed)
            if example is not None and example.waveform is not None:
                yield example


def _before_features(reader: BatchReader, ref: SampleRef, seed: int) -> Example | None:
    """Read a sample and run the operators that come before the features.

    None for a sample without features, such as a text, and for one that is left out.
    """
    try:
        example, operators = reader.begin_sample(ref, seed, lambda: reader.corpus.read(ref))
        for operator in operators:
            changed = operator(example)
            if changed.feats is not None or changed.deferred is not None:
                return example
            example = changed
    except SkipSample:  # training names it
        pass

    return None


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """Restore the states of the global random generators, which operators of users may use."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
