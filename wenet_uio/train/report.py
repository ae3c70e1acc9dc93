"""Report the progress of a run: progress bar or log lines, epoch summaries, TensorBoard and other
trackers; at its end, what add-ons show of it.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from wenet_uio.base.messages import is_quiet, warn_once
from wenet_uio.config.named_code import Loaded
from wenet_uio.config.train import ENDLESS
from wenet_uio.dataset.ledger import Account
from wenet_uio.train.observation import Observation
from wenet_uio.train.pictures import draw_pictures
from wenet_uio.train.trackers import Entry, Trackers

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

log = logging.getLogger(__name__)

POINTS = "points of TensorBoard"
REPORT = Loaded("wenet_uio.addons.publish.run_report:write_run_report")
"""`REPORT(folder, tensorboard_dir)` writes report.html, and returns its path."""
CARD = Loaded("wenet_uio.addons.publish.model_card:write_model_card")
"""`CARD(folder, trust_code=True)` writes README.md."""


@contextmanager
def only_shows(what: str) -> Iterator[None]:
    """Run what shows a training and what no result needs; also a decorator.

    An error in it is a warning, and training goes on without it.

    Args:
        what: what is left out then.
    """
    try:
        yield
    except Exception as error:  # whatever it is, it costs no training
        cause = str(error) or "no message"
        warn_once(f"{what} left out, training goes on: {type(error).__name__}: {cause}")


class Reporter:
    """Reports on rank 0; on other ranks (`enabled` False) every method does nothing.

    Points and pictures that cannot be written are a warning.
    """

    def __init__(
        self,
        enabled: bool,
        tensorboard_dir: str | Path,
        max_epoch: int,
        detokenize: Callable[[Sequence[int]], str] = str,
        trackers: Trackers | None = None,
    ) -> None:
        self.enabled = enabled
        self.tensorboard_dir = Path(tensorboard_dir)
        self.max_epoch = max_epoch
        self.detokenize = detokenize
        self._trackers = trackers or Trackers((), Path(), {})
        self._run = f"{time.time_ns():x}"
        """Suffix of the TensorBoard files of this run; the folder may have files of other runs."""
        self._bar: tqdm | None = None
        self._board: SummaryWriter | None = None

    def open(self, first_step: int, mark: Mapping[str, Any] | None) -> None:
        """Open TensorBoard's files; a resumed run continues at the `mark` of its state.

        Points after the mark are deleted, because the resumed run writes them again.
        """
        if not self.enabled:
            return

        with only_shows(POINTS):
            self._open_board(first_step, mark)
        if self._trackers:
            with only_shows("trackers"):
                self._trackers.open(None if mark is None else self._read_curves())

    def _open_board(self, first_step: int, mark: Mapping[str, Any] | None) -> None:
        """Open TensorBoard's files for the steps from `first_step` on.

        Args:
            mark: of a run that resumes: the lengths of the files when its state was saved. What was
                written later is cut off, because these steps come again.
        """
        if mark is not None:
            self._run = mark["run"]
            for path in self._event_files():
                length = mark["lengths"].get(path.name)
                if length is None:
                    path.unlink()
                else:
                    os.truncate(path, min(length, path.stat().st_size))

        # Takes a second to import; only one rank needs it
        from torch.utils.tensorboard import SummaryWriter

        folder = str(self.tensorboard_dir)
        self._board = SummaryWriter(folder, purge_step=first_step, filename_suffix=f".{self._run}")

    def mark(self) -> dict[str, Any]:
        """Return suffix and lengths of the TensorBoard files so far; part of the state of a run."""
        if self._board is not None:
            with only_shows(POINTS):
                self._board.flush()
        return {
            "run": self._run,
            "lengths": {path.name: path.stat().st_size for path in self._event_files()},
        }

    def _event_files(self) -> list[Path]:
        return sorted(self.tensorboard_dir.glob(f"events.out.tfevents.*.{self._run}"))

    def _read_curves(self) -> dict[str, list[tuple[int, float]]]:
        """Read the points (step, value) of all curves of this run from TensorBoard's files."""
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        curves: dict[str, list[tuple[int, float]]] = {}
        for path in self._event_files():
            events = EventAccumulator(str(path), size_guidance={"scalars": 0}).Reload()
            for name in events.Tags()["scalars"]:
                points = [(point.step, point.value) for point in events.Scalars(name)]
                curves.setdefault(name, []).extend(points)

        return curves

    def begin_epoch(self, epoch: int, done: int, steps: int) -> None:
        """Start the progress bar of an epoch.

        Args:
            done: optimizer steps of this epoch so far.
            steps: optimizer steps of the whole epoch.
        """
        if not self.enabled:
            return

        self._epoch, self._steps, self._done = epoch, steps, done

        if sys.stderr.isatty() and not is_quiet():
            self._bar = tqdm(
                total=steps,
                initial=done,
                desc=self._epoch_title(),
                unit="step",
                leave=False,
                dynamic_ncols=True,
            )

    def log_start(self, cv: Mapping[str, float]) -> None:
        """Log the validation before the first step of a fine-tuning, and write its points."""
        if not self.enabled:
            return

        log.info("before fine-tuning: %s", _validation_summary(cv))
        self._write_scalars("cv", cv, 0)

    def step(self) -> None:
        """Count a step."""
        if not self.enabled:
            return
        self._done += 1
        if self._bar is not None:
            self._bar.update()

    def interval(
        self, step: int, scalars: Mapping[str, float], seconds_to_go: float = math.inf
    ) -> None:
        """Show the means since the last call, and write them as train/*.

        Args:
            seconds_to_go: time to the end of the run; infinite if it is not known.
        """
        if not self.enabled:
            return

        remaining = ""
        if seconds_to_go < math.inf:
            remaining = f", {tqdm.format_interval(seconds_to_go)} to go"
        if self._bar is not None:
            self._bar.set_postfix_str(f"{_training_summary(scalars)}{remaining}")
        else:
            position = f"{self._epoch_title()}: step {self._done}/{self._steps}"
            log.info("%s, %s%s", position, _training_summary(scalars), remaining)
        self._write_scalars("train", scalars, step)

    def end_epoch(
        self,
        step: int,
        train: Mapping[str, float],
        cv: Mapping[str, float],
        account: Account,
        costs: Mapping[int, int],
    ) -> None:
        """Log the summary of an epoch and write its points.

        `cv` is written as cv/*, the account and a histogram of `costs` as data/*.
        """
        if not self.enabled:
            return
        if self._bar is not None:
            self._bar.close()
            self._bar = None

        log.info(
            "%s: %s, %s", self._epoch_title(), _training_summary(train), _validation_summary(cv)
        )
        log.info("%s: %s", self._epoch_title(), account)
        self._write_scalars("cv", cv, step)
        self._write_scalars("data", account.scalars(), step)
        self._write_costs(costs, step)

    def write_observation(
        self,
        step: int,
        observation: Observation | None,
        audio: tuple[np.ndarray, int] | None = None,
    ) -> None:
        """Write pictures and texts of an observation as dev/*.

        Args:
            audio: samples and rate of the utterance, once in a run.
        """
        if not self.enabled or observation is None:
            return

        pictures = draw_pictures(observation)
        drawn = {f"dev/{name}": picture for name, picture in pictures.items()}
        heard: dict[str, tuple[np.ndarray, int]] = {}
        if audio is not None:
            samples, rate = audio
            # Lossy formats decode to samples beyond -1 and 1.
            heard["dev/audio"] = np.clip(samples, -1, 1), rate

        texts: dict[str, str] = {}
        if observation.posteriors is not None:
            try:
                recognised = self.detokenize(observation.recognised)
            except ValueError:  # an untrained model may give a label without a symbol
                recognised = str(observation.recognised)
            text = f"{observation.key}\n\nreference: {observation.text}\n\nheard: {recognised}"
            texts["dev/text"] = text

        self._send_entry(Entry(step, {}, drawn, texts, heard))

    @only_shows(POINTS)
    def _write_costs(self, costs: Mapping[int, int], step: int) -> None:
        """Write a histogram of padded frames from counts by `metrics.cost_bin`."""
        if not costs or self._board is None:
            return

        # TensorBoard draws bars from the end of the first bin, which is therefore an empty one.
        bins = range(min(costs) - 1, max(costs) + 1)
        ends = [2 ** ((number + 1) / 8) for number in bins]
        counts = [costs.get(number, 0) for number in bins]
        total = sum(end * count for end, count in zip(ends, counts, strict=True))
        squares = sum(end**2 * count for end, count in zip(ends, counts, strict=True))
        self._board.add_histogram_raw(
            "data/padded_frames", ends[0], ends[-1], sum(counts), total, squares, ends, counts, step
        )

    def close(self, *, complete: bool = True) -> None:
        """Close the progress bar, TensorBoard's file and the trackers.

        Args:
            complete: whether the run has reached its end.
        """
        if self._bar is not None:
            self._bar.close()
        with only_shows(POINTS):
            if self._board is not None:
                self._board.close()
        with only_shows("trackers"):
            self._trackers.close(complete=complete)

    def _write_scalars(self, part: str, scalars: Mapping[str, float], step: int) -> None:
        self._send_entry(Entry(step, {f"{part}/{name}": value for name, value in scalars.items()}))

    def _send_entry(self, entry: Entry) -> None:
        """Write an entry to TensorBoard and send it to the trackers."""
        with only_shows(POINTS):
            self._write_board(entry)
        self._trackers.write(entry)

    def _write_board(self, entry: Entry) -> None:
        """Write the numbers, pictures, audio and texts of a step to TensorBoard."""
        if self._board is None:
            return
        for name, value in entry.scalars.items():
            self._board.add_scalar(name, value, entry.step)
        for name, picture in entry.pictures.items():
            self._board.add_image(name, picture, entry.step, dataformats="HWC")
        for name, (samples, rate) in entry.audio.items():
            self._board.add_audio(name, samples[None], entry.step, sample_rate=rate)
        for name, text in entry.texts.items():
            self._board.add_text(name, text, entry.step)
        self._board.flush()

    def _epoch_title(self) -> str:
        if self.max_epoch >= ENDLESS:
            return f"epoch {self._epoch}"
        return f"epoch {self._epoch}/{self.max_epoch - 1}"


def _validation_summary(cv: Mapping[str, float]) -> str:
    """Format the means of the validation in one line."""
    if not math.isfinite(cv["loss"]):
        return "cv loss not finite"
    accuracy = f", cv accuracy {cv['th_accuracy']:.3f}" if "th_accuracy" in cv else ""
    return f"cv loss {cv['loss']:.4g}{accuracy}"


def _training_summary(scalars: Mapping[str, float]) -> str:
    """Format the means of training in one line."""
    if "loss" not in scalars:
        return f"no train loss (no step was applied), lr {scalars['lr']:.3g}"

    speed, wait = scalars["audio_seconds_per_second"], scalars["data_wait"]
    return (
        f"train loss {scalars['loss']:.4g}, lr {scalars['lr']:.3g}, {speed:.0f} audio s/s, "
        f"data wait {wait:.0%}"
    )


def show_complete(folder: Path, tensorboard_dir: Path, *, report: bool) -> None:
    """Write the report and the model card of a complete run; none of an add-on that was taken away."""
    if report and REPORT.is_installed:
        with only_shows("report"):
            log.info("report: %s", REPORT(folder, tensorboard_dir))

    if CARD.is_installed:
        with only_shows("model card"):
            CARD(folder, trust_code=True)
