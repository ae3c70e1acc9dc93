"""What a dialect of streams is: it translates the messages of one client.

A session has the stream and the limits. Its dialect turns messages of the client into requests, and
what happens to the stream into messages for the client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wenet_uio.addons.listen.live import Final, Partial
from wenet_uio.addons.serve.messages import Start

Message = dict[str, Any]
"""A message for the client; it is sent as JSON."""


@dataclass(frozen=True)
class Audio:
    """Add samples to the stream."""

    data: bytes
    """16 bits, little-endian, one channel. A sample may begin in one request and end in the
    next."""


@dataclass(frozen=True)
class Commit:
    """End the stream, and send its last texts. The session goes on without a stream."""


@dataclass(frozen=True)
class Clear:
    """Drop the stream and its audio; nothing more is sent of it."""


@dataclass(frozen=True)
class End:
    """End the stream, and the session after its last texts."""


@dataclass(frozen=True)
class Reply:
    """Send a message that the dialect answers by itself."""

    message: Message


Request = Start | Audio | Commit | Clear | End | Reply


class Dialect(ABC):
    """Translates the messages of one client."""

    forgives: bool
    """Whether the session goes on after a message that is refused."""
    replaceable: str
    """Type of the messages of which a newer one replaces one that was not sent yet; empty: none."""
    subprotocols: Sequence[str]
    """Names that the WebSocket may agree on with the client."""

    @abstractmethod
    def greet(self) -> list[Message]:
        """Return the first messages for the client."""

    @abstractmethod
    def read(self, content: str | bytes, *, has_stream: bool) -> list[Request]:
        """Translate a text message or a binary message of the client.

        Args:
            has_stream: whether audio can be added, or a Start comes first.

        Raises:
            RefusedError: the message is wrong.
        """

    @abstractmethod
    def tell_opened(self, warnings: Sequence[str]) -> list[Message]:
        """Return the messages when a stream can take samples."""

    @abstractmethod
    def tell_partial(self, event: Partial) -> list[Message]:
        """Return the messages when the text of the utterance has changed."""

    @abstractmethod
    def tell_final(self, event: Final) -> list[Message]:
        """Return the messages when an utterance has ended."""

    @abstractmethod
    def tell_ended(self, warnings: Sequence[str]) -> list[Message]:
        """Return the messages when the stream has ended, after its last utterance."""

    @abstractmethod
    def tell_refused(self, error: Exception) -> list[Message]:
        """Return the messages when the last message of the client was refused, or an error ends the
        session.
        """
