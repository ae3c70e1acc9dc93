"""Write the page of a plan that the manual shows, from the recordings of fsdd.

WENET_UIO_CORPORA=/corpora python -m tests.support.docs.plan_page
"""

from __future__ import annotations

import os
import tempfile
from contextlib import chdir
from pathlib import Path

from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.corpus.passes import Passes
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.prepare.diagnose.plan_page import PlanFiles
from wenet_uio.prepare.diagnose.plan_report import report_plan
from wenet_uio.prepare.list_making import make_raw_list

PAGE = Path(__file__).parents[3] / "docs" / "assets" / "plan.html"
RANKS = 4
BATCHES = BatchConf(batch_type="dynamic", batch_duration=20)


def make_page(corpora: Path, path: Path) -> None:
    """Plan an epoch of the 3000 recordings, and write its page."""
    digits = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    lines = [
        RawLine(wav.stem, str(wav), digits[int(wav.stem[0])])
        for wav in sorted((corpora / "fsdd" / "recordings").glob("*.wav"))
    ]
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        make_raw_list(lines, "fsdd.list")
        corpus = open_list("fsdd.list", "raw")
        measure = measure_of(DatasetConf(batch_conf=BATCHES), training=True)
        files = PlanFiles(Passes(corpus).corpus_of(0), measure, RANKS)
        report = report_plan(
            corpus, measure, seed=777, epoch=0, world_size=RANKS, on_batch=files.collect
        )
        files.write(report, f"fsdd, epoch 0, {RANKS} ranks", page=str(path))


if __name__ == "__main__":
    make_page(Path(os.environ["WENET_UIO_CORPORA"]), PAGE)
