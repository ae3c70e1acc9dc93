"""A small load balancer: a TCP proxy that asks each server at /ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import aiohttp

LOOK = 0.05
"""Seconds between two questions to a server."""


class Balancer:
    """Gives each connection to the ready server that has the fewest."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.ready: set[int] = set()
        """Ports of the servers that have said that they are ready."""
        self.refused = 0
        """Connections that found no server."""
        self.served = dict.fromkeys(ports, 0)
        """{port: connections so far}."""
        self._open = dict.fromkeys(ports, 0)

    async def look(self) -> None:
        """Ask all servers, again and again."""
        timeout = aiohttp.ClientTimeout(1)
        async with aiohttp.ClientSession(timeout=timeout) as client:
            while True:
                for port in self._open:
                    await self._ask(client, port)
                await asyncio.sleep(LOOK)

    async def _ask(self, client: aiohttp.ClientSession, port: int) -> None:
        is_ready = False
        with suppress(aiohttp.ClientError, asyncio.TimeoutError):
            async with client.get(f"http://127.0.0.1:{port}/ready") as answer:
                is_ready = answer.status == 200
        if is_ready:
            self.ready.add(port)
        else:
            self.ready.discard(port)

    async def hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection."""
        if not self.ready:
            self.refused += 1
            writer.transport.abort()
            return

        port = min(self.ready, key=lambda port: (self._open[port], self.served[port]))
        self._open[port] += 1
        try:
            # A refusal here is one of the client: balancers cannot repeat what they have sent.
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
            self.served[port] += 1
            await asyncio.gather(_copy(reader, server_writer), _copy(server_reader, writer))
        except OSError:
            self.refused += 1
            writer.transport.abort()
        finally:
            self._open[port] -= 1


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy what one side sends until it ends, and then say so to the other side."""
    with suppress(ConnectionError):
        while content := await reader.read(1 << 16):
            writer.write(content)
            await writer.drain()
    with suppress(OSError):
        writer.close()


@asynccontextmanager
async def balancing(ports: Sequence[int]) -> AsyncIterator[tuple[str, Balancer]]:
    """Balance between servers of this machine; yields the address, once one server is ready."""
    balancer = Balancer(ports)
    looking = asyncio.create_task(balancer.look())
    listening = await asyncio.start_server(balancer.hand_on, "127.0.0.1", 0)
    try:
        while not balancer.ready:
            await asyncio.sleep(LOOK)
        port = listening.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", balancer
    finally:
        looking.cancel()
        listening.close()
        await asyncio.gather(looking, return_exceptions=True)
