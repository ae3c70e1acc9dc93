"""Steps and validations whose numbers are infinite or NaN: they are skipped, or end the run.

The log names some of their utterances, and a file has all.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

from wenet_uio.base.files import append_line, read_lines, written_aside
from wenet_uio.base.messages import listed
from wenet_uio.config import Config
from wenet_uio.train.engine import Engine
from wenet_uio.train.metrics import TRAINING_LOSSES, Totals
from wenet_uio.train.progress import Progress
from wenet_uio.train.update import StepOutcome

NAMED = 3
"""Utterances that a message names."""

log = logging.getLogger(__name__)


class NonfiniteFile:
    """A line of JSON for each event: `what` is not finite, `step`, and `utterances` of all ranks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._earlier: list[dict[str, Any]] = []
        """Lines of an earlier start of the run that may come again: those of its last step."""

    def begin(self, last_step: int) -> None:
        """Delete the lines of steps after the last one, which will come again or be others."""
        records = read_lines(self.path, ("step",))
        kept = [record for record in records if record["step"] <= last_step]
        if not kept:
            self.path.unlink(missing_ok=True)
        elif len(kept) < len(records):
            with written_aside(self.path, "w") as file:
                file.writelines(f"{json.dumps(record, ensure_ascii=False)}\n" for record in kept)

        self._earlier = [record for record in kept if record["step"] == last_step]

    def add(self, what: str, step: int, keys: Sequence[str]) -> None:
        """Add a line, unless it is there from an earlier start."""
        record = {"step": step, "what": what, "utterances": [*keys]}
        if record not in self._earlier:
            append_line(self.path, record)

    def name_some(self, keys: Sequence[str]) -> str:
        """Name some utterances, and the file that has all of them."""
        return f"utterances: {listed(keys, NAMED, ' ')}; all in {self.path}"


class NonfiniteGuard:
    """Accounts for numbers of a run that are infinite or NaN; all ranks call it together."""

    def __init__(self, engine: Engine, config: Config, path: Path) -> None:
        """Note the events in the file `path`."""
        self.engine, self.world, self.config = engine, engine.world, config
        self.file = NonfiniteFile(path)
        self._newest_applied: tuple[int, list[str]] = (0, [])
        """Number and utterances, of this rank, of the newest step that changed the weights."""

    def check(self, outcome: StepOutcome, keys: list[str], progress: Progress) -> None:
        """Count a step that was skipped; `keys` are its utterances on this rank.

        Raises:
            ValueError: weights or statistics are not finite, or too many steps in a row were skipped.
        """
        if outcome.spoilt_weights:
            self.refuse_spoilt_weights()
        if outcome.spoilt_statistics:
            self._end_run("statistics, such as those of batch norms", outcome.number, keys)

        if outcome.applied:
            self._newest_applied = (outcome.number, keys)
            progress.nonfinite = 0
        else:
            progress.nonfinite += 1
            progress.nonfinite_in_epoch += 1
            self._log_skipped(outcome.number, keys, skipped_before=progress.nonfinite - 1)

    def refuse_spoilt_weights(self) -> None:
        """Raise a ValueError if weights are not finite."""
        if names := self.engine.spoilt_weights():
            self._end_run(f"weights ({listed(names, 3)})", *self._newest_applied)

    def finite_losses(
        self, validation: Totals, nonfinite: Sequence[str], step: int
    ) -> dict[str, float]:
        """Return the mean losses of a validation; NaN if most utterances have no finite loss.

        Args:
            nonfinite: the utterances of all ranks that have none, which the log names.
            step: steps before the validation.
        """
        counted = validation.sums["utterances"]
        if self.world.rank == 0 and nonfinite:
            self.file.add("validation loss", step, nonfinite)
            log.warning(
                "validation after step %d left out %d of %d utterances, whose loss is not finite (%s)",
                step,
                len(nonfinite),
                counted + len(nonfinite),
                self.file.name_some(nonfinite),
            )
        if counted >= len(nonfinite):
            return validation.losses()

        log.warning(
            "validation after step %d is not finite: most utterances have no finite loss; final.pt and "
            "averages leave this epoch out",
            step,
        )
        return {name: math.nan for name in self.engine.names if name not in TRAINING_LOSSES}

    def _log_skipped(self, number: int, keys: list[str], *, skipped_before: int) -> None:
        """Log a step whose gradient is not finite; raise if too many before it were skipped."""
        named = self._name_utterances("gradient", number, keys)
        most = self.config.max_nonfinite_steps
        if skipped_before >= most:
            raise ValueError(
                f"step {number}: its gradient is not finite, after {skipped_before} steps in a row that "
                f"were skipped (max_nonfinite_steps is {most}): lower optim_conf.lr, or check the "
                f"data ({named})"
            )

        if self.world.rank == 0:
            scaled = "; fp16: its loss scale becomes lower" if self.config.dtype == "fp16" else ""
            log.warning("step %d skipped: its gradient is not finite (%s)%s", number, named, scaled)

    def _end_run(self, what: str, number: int, keys: list[str]) -> NoReturn:
        """End the run at step `number`, which made weights or statistics infinite or NaN."""
        named = self._name_utterances(what, number, keys)
        raise ValueError(
            f"step {number}: {what} are infinite or NaN since this step. States and epochs in "
            f"{self.file.path.parent} are of steps before: lower optim_conf.lr or grad_clip, or check "
            f"the data, and start again ({named})"
        )

    def _name_utterances(self, what: str, number: int, keys: list[str]) -> str:
        """Write the utterances of all ranks to the file, and name some; `keys` are of this rank."""
        all_keys = list(chain.from_iterable(self.world.gather(keys)))
        if self.world.rank == 0:
            self.file.add(what, number, all_keys)
        return self.file.name_some(all_keys)
