"""The position of one rank in its data, the batches from there on, and the remote objects to fetch for
them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice
from typing import Any, Protocol

import numpy as np

from wenet_uio.dataset.corpus.base import Corpus, RemoteObject
from wenet_uio.dataset.corpus.mixture import Passes
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.plan.epoch_plan import EpochPlan, divide
from wenet_uio.dataset.plan.groups import PlannedBatch
from wenet_uio.dataset.plan.lanes import Division
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.dataset.randomness import key_of

STATE_KEYS = frozenset(
    (
        "epoch",
        "data_pass",
        "position",
        "micro_batches",
        "steps_done",
        "seed",
        "lanes",
        "synced",
        "group_shards",
        "turns_by_step",
        "offsets",
        "owed",
        "planner",
        "corpus",
        "measure",
        "counts",
        "partition",
        "reshuffle",
    )
)
"""Keys of a state."""


@dataclass(frozen=True)
class Work:
    """A planned micro-batch, as a worker receives it."""

    index: int
    """t: the number of the batch in its epoch."""
    closes_step: bool
    """True for the last micro-batch of a step."""
    shards: np.ndarray
    """(samples,) shard of each sample in the opened corpus."""
    rows: np.ndarray
    """(samples,) row of each sample in its shard."""
    speeds: np.ndarray
    """(samples,) float32: 1.1 is 10 % faster."""
    seeds: np.ndarray
    """(samples,) uint64: seed of all random draws for a sample."""


class Cursor:
    """The position of one rank: epoch, pass over the data, batch. It plans the passes and saves its
    state.

    An epoch is one pass over the data. With `epoch_steps` an epoch is that many steps, and the next
    epoch continues where the last one stopped. When the last step of a pass or an epoch has been
    yielded, the cursor is at the start of the next one.
    """

    def __init__(
        self,
        corpus: Corpus,
        measure: Measure,
        options: LoaderOptions,
        *,
        reshuffle: bool = True,
        partition: bool = True,
    ) -> None:
        """Start at the first batch of the first epoch.

        Args:
            reshuffle: every pass over the data has an order of its own; otherwise all have the
                order of the first.
            partition: the ranks share the data; otherwise every rank reads all of it, in its own
                order.
        """
        self.corpus, self.measure = corpus, measure
        self.passes = Passes(corpus, reshuffle)
        self.rank, self.world_size = (options.rank, options.world_size) if partition else (0, 1)
        self.seed, self.epoch_steps = options.seed, options.epoch_steps
        self.reshuffle, self.partition = reshuffle, partition
        self._own_order = () if partition else (options.rank,)
        self._alone = options.world_size == 1
        self._fresh_division = self.division = divide(self.passes.corpus_of(0), self.world_size)
        self.set_epoch(0)
        self._plans: dict[int, EpochPlan] = {}

    @property
    def plan(self) -> EpochPlan:
        """The plan of the current pass."""
        return self.plan_of(self.data_pass)

    def plan_of(self, data_pass: int) -> EpochPlan:
        """Return the plan of a pass over the data; the plans of the current and the next pass are
        kept.
        """
        division = self.division if data_pass == self.data_pass else self._fresh_division
        planned = self._plans.get(data_pass)
        if planned is None or planned.division != division:
            planned = self._plan_pass(data_pass, division)
            current = {
                number: plan for number, plan in self._plans.items() if number == self.data_pass
            }
            self._plans = {**current, data_pass: planned}

        return planned

    def _plan_pass(self, data_pass: int, division: Division) -> EpochPlan:
        """Plan a pass; a plan of the same corpus and division lends it the costs of the shards."""
        corpus = self.passes.corpus_of(data_pass)
        seed = key_of(self.seed, *self._own_order) if self._own_order else self.seed
        epoch = data_pass if self.reshuffle else 0
        for plan in self._plans.values():
            if plan.corpus is corpus and plan.division == division:
                return plan.of_epoch(seed, epoch)

        return EpochPlan(
            corpus,
            self.measure,
            seed=seed,
            epoch=epoch,
            division=division,
            same_length=not self.partition,
        )

    def __len__(self) -> int:
        """Steps from here to the end of the epoch; equal on every rank."""
        if self.epoch_steps is not None:
            return max(0, self.epoch_steps - self.steps_done)
        return self.plan.steps_from(self.position, self.world_size)

    def steps_of_epoch(self) -> int:
        """Return steps of the current epoch from its first batch on; equal on every rank."""
        if self.epoch_steps is not None:
            return self.epoch_steps
        # A pass that was resumed has the division of the run that began it.
        is_resumed = self.division != self._fresh_division
        plan = self._plan_pass(self.data_pass, self._fresh_division) if is_resumed else self.plan
        return plan.steps_from(0, self.world_size)

    def upcoming(self) -> Iterator[tuple[tuple[int, int], Work]]:
        """Yield the work from here to the end of the epoch, each with its (pass, position). The
        cursor does not move.

        Raises:
            ValueError: `epoch_steps` ask for a pass without batches.
        """
        data_pass, position, yielded = self.data_pass, self.position, self.micro_batches
        for _ in range(len(self)):
            plan = self.plan_of(data_pass)
            if position >= plan.num_batches:
                data_pass, position = data_pass + 1, 0
                plan = self.plan_of(data_pass)

            if not plan.num_batches:
                raise ValueError(
                    f"{self.corpus.data_list}: pass {data_pass} has no batch; widen the filters"
                )

            # Of the first step, some micro-batches may have been yielded.
            step = plan.step(position, self.world_size, self.rank)
            for work in islice(works(plan, step), yielded, None):
                yield (data_pass, position), work

            position, yielded = position + self.world_size, 0

    def yielded_of_step(self) -> list[Work]:
        """Return the micro-batches of the current step that have been yielded."""
        if not self.micro_batches:
            return []
        step = self.plan.step(self.position, self.world_size, self.rank)
        return list(islice(works(self.plan, step), self.micro_batches))

    def advance(self, closes_step: bool, micro_batches: int = 1) -> None:
        """Count micro-batches of a step as yielded. After the last step of a pass or an epoch the
        next one begins.

        Args:
            closes_step: the last of them ends its step.
        """
        if not closes_step:
            self.micro_batches += micro_batches
            return

        self.position += self.world_size
        self.micro_batches = 0
        self.steps_done += 1

        pass_ends = self.position >= self.plan.num_batches
        if pass_ends:
            self._begin_pass(self.data_pass + 1)

        epoch_ends = pass_ends
        if self.epoch_steps is not None:
            epoch_ends = self.steps_done == self.epoch_steps
        if epoch_ends:
            self.epoch, self.steps_done = self.epoch + 1, 0

    def skip_epoch(self) -> None:
        """Move to the next epoch, if nothing is left of the current one."""
        if self.epoch_steps is None:
            self._begin_pass(self.data_pass + 1)
        self.epoch, self.steps_done = self.epoch + 1, 0

    def set_epoch(self, epoch: int) -> None:
        """Move to the start of an epoch, and of the pass with the same number."""
        self.epoch, self.steps_done = epoch, 0
        self._begin_pass(epoch)

    def _begin_pass(self, data_pass: int) -> None:
        self.data_pass, self.position, self.micro_batches = data_pass, 0, 0
        self.division = self._fresh_division

    def state_dict(self) -> dict[str, Any]:
        """Return the position, valid for any world size and number of workers: a few hundred bytes,
        and 30 for each source of a mixture.

        Raises:
            ValueError: some micro-batches of a step have been yielded, and other ranks share that
                step.
        """
        if self.micro_batches and not self._alone:
            raise ValueError(
                "the state of several ranks can only be taken at the end of a step: after a batch "
                "whose closes_step is true"
            )
        return {
            "epoch": self.epoch,
            "data_pass": self.data_pass,
            "position": self.position,
            "micro_batches": self.micro_batches,
            "steps_done": self.steps_done,
            "seed": self.seed,
            **asdict(self.division),
            "offsets": self.passes.offsets(self.data_pass),
            "owed": self.passes.debts(self.data_pass),
            **self._identity(),
        }

    def _identity(self) -> dict[str, Any]:
        """Return what a position inside a pass depends on."""
        return {
            "planner": self.division.planner,
            "corpus": self.corpus.digest,
            "measure": self.measure.digest(),
            "counts": self.corpus.counts_digest,
            "partition": self.partition,
            "reshuffle": self.reshuffle,
        }

    def load_state_dict(self, state: dict[str, Any], *, allow_changes: bool = False) -> None:
        """Continue where `state` was taken.

        A changed data set, batch policy or planner is accepted at the start of a pass. Within a
        pass it is refused, unless `allow_changes` restarts that pass.

        Raises:
            ValueError: what changed, and what to do about it; or the state is not one of this data.
        """
        changed = self._changes_since(state)
        is_inside_pass = state["position"] or state["micro_batches"]
        if changed and is_inside_pass and not allow_changes:
            raise ValueError(
                f"{' and '.join(changed)} changed since the checkpoint, which is inside epoch "
                f"{state['epoch']}: restore the former one; or restart that pass over the data "
                "with --allow_data_changes; or start a new run from the weights with --checkpoint"
            )

        if state["micro_batches"] and not self._alone and not changed:
            raise ValueError(
                "the data state was taken inside a step of one rank: resume it on one rank"
            )

        self.epoch, self.seed = state["epoch"], state["seed"]
        self._begin_pass(state["data_pass"])
        if is_inside_pass and not changed:
            self.position, self.micro_batches = state["position"], state["micro_batches"]
            self.division = _division_of(state)

        self.steps_done = 0 if changed and self.epoch_steps is None else state["steps_done"]
        self.passes = self.passes.starting_at(self.data_pass, state["offsets"], state["owed"])
        self._plans = {}
        self._check_position()

    def _check_position(self) -> None:
        """Raise ValueError if a loaded position is past the end of its pass."""
        if self.position and self.position >= self.plan.num_batches:
            raise ValueError(
                f"{self.corpus.data_list}: the data state is damaged: its position {self.position} "
                f"is past the end of pass {self.data_pass}, which has {self.plan.num_batches} "
                "batches"
            )

    def _changes_since(self, state: dict[str, Any]) -> list[str]:
        """Name what the plan depends on and what is not as when `state` was saved.

        Raises:
            ValueError: another version of this project saved the state.
        """
        if missing := ", ".join(sorted(STATE_KEYS - state.keys())):
            raise ValueError(
                f"the data state was saved by another version of wenet_uio (it lacks {missing}): "
                "start a new run from the weights with --checkpoint"
            )

        current = {**self._identity(), "planner": _division_of(state).planner}
        descriptions = {
            "corpus": f"the data set {self.corpus.data_list}",
            "measure": "dataset_conf (batches, filters, speeds)",
            "counts": f"the numbers of tokens of {self.corpus.data_list}",
            "partition": "partition",
            "reshuffle": "shuffle",
            "planner": f"the planner of wenet_uio (version {state['planner']}, now "
            f"{current['planner']})",
        }
        return [text for name, text in descriptions.items() if state[name] != current[name]]


def _division_of(state: dict[str, Any]) -> Division:
    return Division(**{field.name: state[field.name] for field in fields(Division)})


def works(plan: EpochPlan, batch: PlannedBatch) -> Iterator[Work]:
    """Yield the micro-batches of a planned batch."""
    for number, piece in enumerate(batch.pieces, 1):
        shards, rows = plan.corpus.origin(piece.shards, piece.rows)
        yield Work(
            batch.index, number == len(batch.pieces), shards, rows, piece.speeds, piece.seeds
        )


class Fetches(Protocol):
    """What fetches ahead: `storage.prefetch.Prefetch`, or a simulation of it."""

    def want(self, name: str, kind: str, objects: Sequence[RemoteObject]) -> None:
        """Fetch remote objects and keep them until `drop(name)`."""

    def drop(self, name: str) -> None:
        """Release the objects of that name."""

    def drop_all(self) -> None:
        """Release all objects."""


class ReadAhead:
    """Asks for the remote objects that the next batches need, and drops those of batches that were
    yielded.

    Of remote shards the window holds the current and the next group of each lane. Of remote files
    it holds the batches that were handed to workers.
    """

    def __init__(self, cursor: Cursor, prefetch: Fetches) -> None:
        """Begin a new window; objects that were wanted before are dropped."""
        self._cursor, self._prefetch = cursor, prefetch
        self._prefetch.drop_all()
        self._pass = -1
        # (name of the objects, (pass, position) from which on they are not needed)
        self._groups: deque[tuple[str, tuple[int, int]]] = deque()
        self._batches: deque[tuple[str, tuple[int, int]]] = deque()
        self._batches_wanted = self._groups_wanted = 0

    def works(self) -> Iterator[Work]:
        """Yield the work of the cursor to the end of its epoch; the window moves with it."""
        for place, work in self._cursor.upcoming():
            self._move_to(place, work)
            yield work

    def _move_to(self, place: tuple[int, int], work: Work) -> None:
        """Move the window: `work`, at `place` (pass, position), is about to be handed to a
        worker.
        """
        data_pass, position = place
        yielded = (self._cursor.data_pass, self._cursor.position)
        if data_pass != self._pass:
            self._follow_pass(data_pass, position)

        for window in (self._groups, self._batches):
            for name, end in list(window):
                if end <= yielded:
                    window.remove((name, end))
                    self._prefetch.drop(name)

        # The current and the next group of each lane and stream.
        most_groups = 2 * len(self._lanes) * self._plan.groups_of_a_row
        while len(self._groups) < most_groups:
            group = next(self._coming, None)
            if group is None:
                break

            _, end, shards = group
            self._groups_wanted += 1
            name = f"{data_pass} group {self._groups_wanted}"
            self._prefetch.want(name, "shards", self._plan.corpus.remote_shards(shards))
            self._groups.append((name, (data_pass, end)))

        files = self._cursor.corpus.remote_files(work.shards, work.rows)
        if files:
            self._batches_wanted += 1
            name = f"batch {self._batches_wanted}"
            self._prefetch.want(name, "files", files)
            self._batches.append((name, (data_pass, position + self._cursor.world_size)))

    def _follow_pass(self, data_pass: int, position: int) -> None:
        """Follow the groups of a pass from `position` on, in the lanes that this rank reads."""
        cursor = self._cursor
        self._pass, self._plan = data_pass, cursor.plan_of(data_pass)

        # The lane of batch t is t mod num_lanes, so the lanes of a rank repeat after num_lanes
        # steps or fewer.
        num_lanes = self._plan.lanes
        first_batch = position + cursor.rank
        self._lanes = sorted(
            {(first_batch + step * cursor.world_size) % num_lanes for step in range(num_lanes)}
        )
        self._coming = self._plan.shards_ahead(position, self._lanes)
