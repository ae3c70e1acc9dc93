"""Event simulation of a cluster in training; the project's own loader decides what is read and
when.

Real: the plan, the order of batches, and the window of shards to fetch and to drop. Every simulated
rank drives a `Cursor` and its `ReadAhead`. Simulated: the store, the network, the prefetching
process with its connections, the cache of a node, the workers and the training steps. The index
gives the sizes of shards and samples.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import simpy
from cluster import Cluster, Events, Network, Node, Outcome

from wenet_uio.dataset.corpus.base import Corpus, RemoteObject
from wenet_uio.dataset.corpus.shard_corpus import OPEN_SHARDS
from wenet_uio.dataset.cursor import Cursor, ReadAhead, Work
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.plan.epoch_plan import EpochPlan
from wenet_uio.dataset.plan.lanes import Division
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.dataset.reader import READERS

SEED = 777


class Rank:
    """A rank: its cursor, simulated workers, and simulated prefetching, which takes the calls of
    `ReadAhead`.
    """

    def __init__(
        self, env: simpy.Environment, cluster: Cluster, node: Node, cursor: Cursor, outcome: Outcome
    ) -> None:
        self._env, self._cluster, self._node, self._outcome = env, cluster, node, outcome
        self._cursor, self._sizes = cursor, samples_of(cursor.corpus)
        self._uris: dict[int, str] = {}
        self._held: dict[str, list[str]] = {}
        self._wanted = simpy.Store(env)
        self._tasks = [simpy.Store(env) for _ in range(cluster.workers)]
        for _ in range(cluster.connections):
            env.process(self._connection())
        for tasks in self._tasks:
            env.process(self._worker(tasks))

    # The methods of prefetch.Prefetch, called by `ReadAhead`

    def want(self, name: str, kind: str, objects: Sequence[RemoteObject]) -> None:
        """Fetch the shards of a window called `name`, and hold them until `drop(name)`."""
        self._held[name] = []
        for uri, version in objects:
            assert version is not None  # the index of every simulated shard has its size
            self._wanted.put((name, uri, version.size))

    def drop(self, name: str) -> None:
        """Release the shards of a window."""
        for uri in self._held.pop(name):
            self._node.release(uri)

    def drop_all(self) -> None:
        """Release the shards of every window."""
        for name in list(self._held):
            self.drop(name)

    # Processes

    def batches(self, steps: Steps) -> Events:
        """Deliver the batches as torch's DataLoader does: in order, with `workers * prefetch`
        batches in progress.
        """
        works, under_way, number = ReadAhead(self._cursor, self).works(), deque(), itertools.count()

        def put() -> None:
            if work := next(works, None):
                done = self._env.event()
                self._tasks[next(number) % self._cluster.workers].put((work, done))
                under_way.append((work, done))

        for _ in range(self._cluster.workers * self._cluster.prefetch):
            put()

        while under_way:
            work, done = under_way.popleft()
            yield done
            put()
            self._cursor.advance(work.closes_step)
            if work.closes_step:
                yield steps.ready()

    def _connection(self) -> Events:
        yield self._env.timeout(self._cluster.prefetch_start)
        while True:
            name, uri, size = yield self._wanted.get()
            yield from self._node.fetch(uri, size, lambda name=name: name in self._held)
            if name in self._held:
                self._held[name].append(uri)

    def _worker(self, tasks: simpy.Store) -> Events:
        yield self._env.timeout(self._cluster.worker_start)
        opened: OrderedDict[int, str] = OrderedDict()
        while True:
            work, done = yield tasks.get()
            yield from self._read(work, opened)
            done.succeed()

    def _read(self, work: Work, opened: OrderedDict[int, str]) -> Events:
        """Make one batch from its samples."""
        samples = list(zip(work.shards.tolist(), work.rows.tolist(), strict=True))
        seconds = [float(self._sizes(shard)[1][row]) for shard, row in samples]
        self._outcome.audio_seconds += sum(seconds)
        self._outcome.samples += len(samples)
        self._outcome.sample_bytes += sum(int(self._sizes(shard)[0][row]) for shard, row in samples)
        if all(shard in opened or self._node.has(self._uri(shard)) for shard, _ in samples):
            for shard, _ in samples:
                self._at_hand(shard, opened)
            yield self._env.timeout(sum(seconds) / self._cluster.worker_speed)
        else:
            yield from self._read_by_range(samples, seconds, opened)

    def _read_by_range(
        self, samples: list[tuple[int, int]], seconds: list[float], opened: OrderedDict[int, str]
    ) -> Events:
        """Read samples outside the cache by range, `READERS` at a time, while the worker processes
        earlier samples.
        """
        arrivals = [self._env.event() for _ in samples]
        waiting = deque(zip(samples, arrivals, strict=True))
        for _ in range(READERS):
            self._env.process(self._reader(waiting, opened))

        for event, length in zip(arrivals, seconds, strict=True):
            if not event.processed:
                yield event
            yield self._env.timeout(length / self._cluster.worker_speed)

    def _reader(self, waiting: deque, opened: OrderedDict[int, str]) -> Events:
        while waiting:
            (shard, row), arrival = waiting.popleft()
            if not self._at_hand(shard, opened):
                yield from self._node.request("samples", int(self._sizes(shard)[0][row]))
            arrival.succeed()

    def _at_hand(self, shard: int, opened: OrderedDict[int, str]) -> bool:
        """Open a shard of the cache as ShardCorpus does: a worker keeps the shards that it read
        last open.
        """
        if shard in opened:
            opened.move_to_end(shard)
            return True

        uri = self._uri(shard)
        present = self._node.hold(uri)
        if present:
            opened[shard] = uri
        if len(opened) > OPEN_SHARDS or (not present and opened):
            self._node.release(opened.popitem(last=False)[1])

        return present

    def _uri(self, shard: int) -> str:
        if shard not in self._uris:
            ((self._uris[shard], _),) = self._cursor.corpus.remote_shards([shard])
        return self._uris[shard]


class Steps:
    """Training steps: a step begins when every rank has its batch."""

    def __init__(self, env: simpy.Environment, cluster: Cluster, outcome: Outcome) -> None:
        self._env, self._cluster, self._outcome = env, cluster, outcome
        self._waiting, self._ended_at, self._end = 0, 0.0, env.event()

    def ready(self) -> simpy.Event:
        """Report that a rank has its batch; the returned event marks the end of the step."""
        self._waiting += 1
        end = self._end
        if self._waiting == self._cluster.simulated:
            self._env.process(self._step())
        return end

    def _step(self) -> Events:
        outcome, waited = self._outcome, self._env.now - self._ended_at
        if outcome.steps:
            outcome.waits.append(waited)
        else:
            outcome.first_batch_seconds = waited

        yield self._env.timeout(self._cluster.step_seconds)
        outcome.steps += 1
        self._ended_at = outcome.seconds = self._env.now
        end, self._end, self._waiting = self._end, self._env.event(), 0
        end.succeed()


def samples_of(corpus: Corpus) -> Callable[[int], tuple[np.ndarray, np.ndarray]]:
    """Return a function: shard -> (bytes of the range with audio and text, seconds), an array entry
    for each sample.
    """

    @lru_cache(maxsize=1 << 15)
    def sizes(shard: int) -> tuple[np.ndarray, np.ndarray]:
        rows = corpus.rows(shard)
        first = np.minimum(rows.audio_offset, rows.text_offset)
        last = np.maximum(rows.audio_offset + rows.audio_size, rows.text_offset + rows.text_size)
        return (last - first).astype(np.uint32), rows.seconds.astype(np.float32)

    return sizes


def simulate(
    corpus: Corpus, measure: Measure, cluster: Cluster, division: Division, steps: int | None = None
) -> Outcome:
    """Simulate an epoch, or its first `steps` steps, on the first `cluster.simulated` ranks."""
    env, outcome = simpy.Environment(), Outcome()
    network, gate = Network(env, cluster), Steps(env, cluster, outcome)
    nodes = [Node(env, cluster, network, number, outcome) for number in range(cluster.nodes)]
    # Ranks share the plan and its cache: a plan is a pure function.
    plan = EpochPlan(corpus, measure, seed=SEED, epoch=0, division=division)
    for number, cursor in enumerate(cursors(corpus, measure, cluster, plan, steps)):
        rank = Rank(env, cluster, nodes[number // cluster.ranks_per_node], cursor, outcome)
        last = env.process(rank.batches(gate))

    env.run(until=last)
    return outcome


def cursors(
    corpus: Corpus, measure: Measure, cluster: Cluster, plan: EpochPlan, steps: int | None
) -> Iterator[Cursor]:
    """Yield the cursor of each simulated rank."""
    for rank in range(cluster.simulated):
        options = LoaderOptions(rank=rank, world_size=cluster.ranks, seed=SEED, epoch_steps=steps)
        cursor = Cursor(corpus, measure, options)
        cursor.division, cursor._plans = plan.division, {0: plan}
        yield cursor
