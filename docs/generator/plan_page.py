"""The page of a plan that the manual shows, which `plan_report.py --html` would write."""

from __future__ import annotations

import random
import tempfile
import wave
from functools import cache
from pathlib import Path

from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.corpus.mixture import Passes
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.prepare.diagnose.plan_page import PlanPage
from wenet_uio.prepare.diagnose.plan_report import report_plan
from wenet_uio.prepare.list_making import make_raw_list

UTTERANCES = 3000
RANKS = 4
SAMPLE_RATE = 8000
SHORTEST, LONGEST, USUAL = 0.15, 2.0, 0.4
"""Seconds of an utterance: a spoken digit."""
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
BATCHES = BatchConf(batch_type="dynamic", batch_duration=20)


@cache
def plan_page() -> str:
    """Plan an epoch of short silent recordings, and return its page."""
    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        lines = []
        for number in range(UTTERANCES):
            digit = number % len(DIGITS)
            path = Path(folder, f"{digit}_{number // len(DIGITS):03d}.wav")
            seconds = draw.triangular(SHORTEST, LONGEST, USUAL)
            with wave.open(str(path), "wb") as file:
                file.setparams((1, 2, SAMPLE_RATE, 0, "NONE", ""))
                file.writeframes(bytes(2 * int(seconds * SAMPLE_RATE)))
            lines.append(RawLine(path.stem, str(path), DIGITS[digit]))

        data_list = str(Path(folder, "digits.list"))
        make_raw_list(lines, data_list)
        corpus = open_list(data_list, "raw")
        measure = measure_of(DatasetConf(batch_conf=BATCHES), training=True)
        collected = PlanPage(Passes(corpus).corpus_of(0), measure, RANKS)
        report = report_plan(
            corpus, measure, seed=777, epoch=0, world_size=RANKS, on_batch=collected.collect
        )
        page = Path(folder, "plan.html")
        collected.write(report, f"digits, epoch 0, {RANKS} ranks", str(page))
        return page.read_text(encoding="utf-8").replace(f"{folder}/", "")
