"""The simulated parts of a cluster: store, network and the cache of each node, and the counts of a
simulation.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import simpy

from wenet_uio.dataset.storage.prefetch import CONNECTIONS, ROOM_PAUSE

SLACK = 20
"""Eviction frees 1/SLACK of the cache beyond the bytes needed, as cache_space.py does."""
Events = Generator[simpy.Event, Any, None]
"""A simpy process; `yield` of an event returns its value."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The machines of a training run and the store that they read."""

    ranks: int
    simulated: int
    """Simulated ranks, a multiple of the ranks of a node; they get their share of the store's
    bandwidth."""
    ranks_per_node: int = 8
    workers: int = 8
    """Data workers of each rank."""
    prefetch: int = 8
    """Batches that each worker prepares ahead."""
    connections: int = CONNECTIONS["shards"]
    """Parallel downloads of each rank."""
    step_seconds: float
    """Length of a training step, without waiting for data."""
    worker_speed: float
    """Speed of a worker: seconds of audio per second of the clock."""
    latency: float
    """Seconds from a request to its first byte."""
    store_rate: float = math.inf
    node_rate: float = math.inf
    connection_rate: float = math.inf
    """Bytes per second: of the whole store, into one node, and of one connection."""
    cache_bytes: float = math.inf
    """Largest size of the cache of a node."""
    worker_start: float = 0.0
    prefetch_start: float = 0.0
    """Seconds until the workers begin to read, and until prefetching begins."""

    @property
    def nodes(self) -> int:
        """Number of simulated nodes."""
        return -(-self.simulated // self.ranks_per_node)


@dataclass
class Outcome:
    """Counts of a simulation or of a real run; bytes and requests are those of the simulated ranks
    only.
    """

    steps: int = 0
    first_batch_seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    """Seconds that each step after the first waited for data."""
    audio_seconds: float = 0.0
    samples: int = 0
    sample_bytes: int = 0
    """Bytes of all samples read, from the cache or from the store."""
    requests: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    """By kind: `shards` are read whole, `samples` are read by range requests."""
    fetched: Counter[tuple[int, str]] = field(default_factory=Counter)
    """{(node, URI of a shard): number of times that the node fetched the shard}"""
    peak_cache_bytes: int = 0
    """Largest size of a cache, over all nodes and times."""
    seconds: float = 0.0
    """From the start to the end of the last step."""


class Network:
    """Bandwidth of the store, of each node and of each connection; parallel transfers share it
    evenly.

    All transfers of a node have the same rate at any time. `_served` is the number of bytes that a
    transfer would have received that began at time 0. A transfer ends when `_served` has grown by
    its size.
    """

    def __init__(self, env: simpy.Environment, cluster: Cluster) -> None:
        self._env, self._cluster = env, cluster
        self._store_rate = cluster.store_rate * cluster.simulated / cluster.ranks
        self._served = [0.0] * cluster.nodes
        self._ends: list[list[tuple[float, int, simpy.Event]]] = [[] for _ in range(cluster.nodes)]
        self._number, self._now = itertools.count(), 0.0
        self._wake = 0

    def transfer(self, node: int, size: int) -> simpy.Event:
        """Begin a transfer of `size` bytes to a node; the returned event marks its end."""
        self._progress()
        event = self._env.event()
        heapq.heappush(self._ends[node], (self._served[node] + size, next(self._number), event))
        self._sleep()

        return event

    def _rates(self) -> list[float]:
        of_all = self._store_rate / max(1, sum(map(len, self._ends)))
        cluster = self._cluster
        return [
            min(cluster.connection_rate, of_all, cluster.node_rate / len(ends)) if ends else 0.0
            for ends in self._ends
        ]

    def _progress(self) -> None:
        passed, self._now = self._env.now - self._now, self._env.now
        for node, rate in enumerate(self._rates()):
            if rate and passed:
                self._served[node] += rate * passed

    def _sleep(self) -> None:
        """Wake up when the next transfer ends; a transfer that begins earlier replaces this
        wake-up.
        """
        seconds_left = [
            (ends[0][0] - served) / rate
            for ends, served, rate in zip(self._ends, self._served, self._rates(), strict=True)
            if ends
        ]
        self._wake += 1
        if seconds_left:
            self._env.timeout(max(0.0, min(seconds_left))).callbacks.append(
                partial(self._ended, self._wake)
            )

    def _ended(self, wake: int, _: simpy.Event) -> None:
        if wake != self._wake:
            return

        self._progress()
        for ends, served in zip(self._ends, self._served, strict=True):
            while ends and ends[0][0] <= served + 0.5:  # half a byte of tolerance: rates are floats
                heapq.heappop(ends)[2].succeed()

        self._sleep()


class Node:
    """Network and cache of a node; the cache follows the rules of cache.py and cache_space.py."""

    def __init__(
        self,
        env: simpy.Environment,
        cluster: Cluster,
        network: Network,
        number: int,
        outcome: Outcome,
    ) -> None:
        self._env, self._cluster, self._network, self._number = env, cluster, network, number
        self._outcome = outcome
        self._copies: OrderedDict[str, int] = OrderedDict()
        self._holders: Counter[str] = Counter()
        self._coming: dict[str, simpy.Event] = {}
        self._taken = 0

    def request(self, kind: str, size: int) -> Events:
        """Read `size` bytes from the store; `kind` is `shards` or `samples`."""
        self._outcome.requests[kind] += 1
        yield self._env.timeout(self._cluster.latency)
        yield self._network.transfer(self._number, size)
        self._outcome.bytes[kind] += size

    def has(self, uri: str) -> bool:
        """Return whether the cache has a complete copy."""
        return uri in self._copies

    def hold(self, uri: str) -> bool:
        """Protect a copy from eviction; return False if the cache has no copy."""
        if uri not in self._copies:
            return False
        self._copies.move_to_end(uri)
        self._holders[uri] += 1
        return True

    def release(self, uri: str) -> None:
        """Undo one `hold`."""
        self._holders[uri] -= 1

    def fetch(self, uri: str, size: int, wanted: Callable[[], bool]) -> Events:
        """Fetch and hold a copy while `wanted()` is true.

        Waits for free space, and for another rank of the node that fetches the same shard.
        """
        while wanted() and not self.hold(uri):
            if uri in self._coming:
                yield self._coming[uri]
            elif not self._make_room(size):
                yield self._env.timeout(ROOM_PAUSE)
            else:
                self._coming[uri] = self._env.event()
                self._taken += size
                self._outcome.peak_cache_bytes = max(self._outcome.peak_cache_bytes, self._taken)
                self._outcome.fetched[self._number, uri] += 1
                yield from self.request("shards", size)
                self._copies[uri] = size
                self._coming.pop(uri).succeed()

    def _make_room(self, size: int) -> bool:
        most = self._cluster.cache_bytes
        if self._taken + size <= most:
            return True

        slack = self._taken // SLACK
        for uri in [uri for uri in self._copies if not self._holders[uri]]:
            if self._taken + size + slack <= most:
                break
            self._taken -= self._copies.pop(uri)

        return self._taken + size <= most
