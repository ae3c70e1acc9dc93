"""Refuses frames of a WebSocket that a client has not masked.

A client must mask its frames, so that no proxy takes bytes that a page chose for a request (RFC
6455, 5.1 and 10.3). aiohttp takes frames without a mask, too.
"""

from __future__ import annotations

from aiohttp.http_websocket import WebSocketReader

MASKED = 0x80
"""Bit of the second byte of a frame."""
SIZE = 0x7F
"""Bits of the second byte that tell the size of the content, or where it stands."""
SIZE_BYTES = {126: 2, 127: 8}
"""{value of these bits: bytes behind them that have the size}."""
MASK_BYTES = 4
BROKEN = b"\xf0\x80"
"""Head of a frame that breaks the protocol: its reserved bits are set."""


class MaskedFrames:
    """A parser of frames that takes none without a mask."""

    def __init__(self, parser: WebSocketReader) -> None:
        self._parser = parser
        self._head = b""
        """The first bytes of a head whose other bytes have not arrived."""
        self._content = 0
        """Bytes of the last frame that have not arrived."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take bytes of the client.

        Returns:
            whether nothing more is taken, and bytes that are left.
        """
        data = self._head + data
        start = self._content  # of the next frame
        while start + 2 <= len(data):
            if not data[start + 1] & MASKED:
                # The parser then tells its reader of an error, and closes the connection.
                return self._parser.feed_data(data[:start] + BROKEN)

            size = data[start + 1] & SIZE
            end_of_size = start + 2 + SIZE_BYTES.get(size, 0)
            if end_of_size > len(data):
                break
            if size in SIZE_BYTES:
                size = int.from_bytes(data[start + 2 : end_of_size], "big")
            start = end_of_size + MASK_BYTES + size

        self._content = max(0, start - len(data))
        self._head = data[start:]
        return self._parser.feed_data(data[:start])

    def feed_eof(self) -> None:
        """Note that the client sends nothing more."""
        self._parser.feed_eof()
