"""The simulated parts of a cluster: store, network, and the cache of each node; and what is counted of them."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial

import simpy

from wenet_uio.dataset.storage.prefetch import CONNECTIONS, ROOM_PAUSE

SLACK = 20
"""Part of a full cache that is freed beyond what is needed, as in cache_space.py: one in so many."""
Events = Generator[simpy.Event, None, None]


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What trains, and what it reads from."""

    ranks: int
    simulated: int
    """Ranks that are simulated, whole nodes of them; the store's bandwidth is shared out accordingly."""
    ranks_per_node: int = 8
    workers: int = 8
    """Of each rank."""
    prefetch: int = 8
    """Batches that each worker keeps ready."""
    connections: int = CONNECTIONS["shards"]
    """Downloads at a time of each rank."""
    step_seconds: float
    """Of a training step, without waiting for data."""
    worker_speed: float
    """Audio seconds per second that a worker makes into batches."""
    latency: float
    """Seconds that a request takes before its first byte."""
    store_rate: float = math.inf
    node_rate: float = math.inf
    connection_rate: float = math.inf
    """Bytes per second of the whole store, to a node, and of one connection."""
    cache_bytes: float = math.inf
    """Of a node."""
    worker_start: float = 0.0
    prefetch_start: float = 0.0
    """Seconds until workers read, and until prefetching does."""

    @property
    def nodes(self) -> int:
        """Simulated ones."""
        return -(-self.simulated // self.ranks_per_node)


@dataclass
class Outcome:
    """What was counted; bytes and requests are of the simulated ranks."""

    steps: int = 0
    first_batch_seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    """Seconds that each step after the first waited for data."""
    audio_seconds: float = 0.0
    samples: int = 0
    sample_bytes: int = 0
    """Of all samples that were read, from wherever."""
    requests: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    """Of `shards`, read whole, and `samples`, read by range."""
    fetched: Counter[tuple[int, str]] = field(default_factory=Counter)
    """How often a node fetched a shard."""
    peak_cache_bytes: int = 0
    """Of the node that had most."""
    seconds: float = 0.0
    """From the start to the end of the last step."""


class Network:
    """Bandwidth: transfers of a node share its rate, and all of them that of the store, evenly; none beats its cap.

    A node's transfers all go at one rate, so that `served`, the bytes that one that was always there would have got,
    tells when each ends.
    """

    def __init__(self, env: simpy.Environment, cluster: Cluster) -> None:
        self._env, self._cluster = env, cluster
        self._store_rate = cluster.store_rate * cluster.simulated / cluster.ranks
        self._served = [0.0] * cluster.nodes
        self._ends: list[list[tuple[float, int, simpy.Event]]] = [[] for _ in range(cluster.nodes)]
        self._number, self._now = itertools.count(), 0.0
        self._wake = 0

    def transfer(self, node: int, size: int) -> simpy.Event:
        """An event that comes when so many bytes have reached a node."""
        self._progress()
        event = self._env.event()
        heapq.heappush(self._ends[node], (self._served[node] + size, next(self._number), event))
        self._sleep()
        return event

    def _rates(self) -> list[float]:
        of_all = self._store_rate / max(1, sum(map(len, self._ends)))
        cluster = self._cluster
        return [
            min(cluster.connection_rate, of_all, cluster.node_rate / len(ends)) if ends else 0.0 for ends in self._ends
        ]

    def _progress(self) -> None:
        passed, self._now = self._env.now - self._now, self._env.now
        for node, rate in enumerate(self._rates()):
            if rate and passed:
                self._served[node] += rate * passed

    def _sleep(self) -> None:
        """Until the next transfer ends, unless another begins before."""
        left = [
            (ends[0][0] - served) / rate
            for ends, served, rate in zip(self._ends, self._served, self._rates(), strict=True)
            if ends
        ]
        self._wake += 1
        if left:
            self._env.timeout(max(0.0, min(left))).callbacks.append(partial(self._ended, self._wake))

    def _ended(self, wake: int, _: simpy.Event) -> None:
        if wake != self._wake:
            return
        self._progress()
        for ends, served in zip(self._ends, self._served, strict=True):
            while ends and ends[0][0] <= served + 0.5:  # half a byte: rates are no whole numbers
                heapq.heappop(ends)[2].succeed()
        self._sleep()


class Node:
    """Network and cache of a node; the cache does what cache.py and cache_space.py do."""

    def __init__(self, env: simpy.Environment, cluster: Cluster, network: Network, number: int, outcome: Outcome):
        self._env, self._cluster, self._network, self._number = env, cluster, network, number
        self._outcome = outcome
        self._copies: OrderedDict[str, int] = OrderedDict()
        self._holders: Counter[str] = Counter()
        self._coming: dict[str, simpy.Event] = {}
        self._taken = 0

    def request(self, kind: str, size: int) -> Events:
        self._outcome.requests[kind] += 1
        yield self._env.timeout(self._cluster.latency)
        yield self._network.transfer(self._number, size)
        self._outcome.bytes[kind] += size

    def has(self, uri: str) -> bool:
        return uri in self._copies

    def hold(self, uri: str) -> bool:
        """Keep a copy from eviction, if it is there."""
        if uri not in self._copies:
            return False
        self._copies.move_to_end(uri)
        self._holders[uri] += 1
        return True

    def release(self, uri: str) -> None:
        self._holders[uri] -= 1

    def fetch(self, uri: str, size: int, wanted: Callable[[], bool]) -> Events:
        """Have a copy and hold it, for as long as `wanted` says yes; waits for room, and for others that fetch it."""
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
