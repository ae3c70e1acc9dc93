"""Uploads: forms with a recording, read into memory within limits; nothing is written to a disk.

How many arrive at once, how much memory they have, and which one gives way to another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import BodyPartReader, MultipartReader, StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError

from wenet_uio.addons.serve.messages import LimitError, RefusedError
from wenet_uio.addons.serve.options import Limits

FORMATS = ("json", "text", "srt", "verbose_json", "vtt", "diarized_json")
STREAMED_FORMATS = ("json", "text", "verbose_json", "diarized_json")
"""Formats of which `stream=true` sends the text in parts."""
LISTS = ("hot_words", "known_speaker_names")
"""Fields that may come several times; each adds a line."""
FIELDS = ("file", "model", "language", "prompt", "response_format", "stream", "channel", *LISTS)
"""Fields that mean something here. Others are ignored."""
MOST_FIELD_BYTES = 1 << 18
"""Bytes of all fields but `file` together, with their names."""
MOST_PARTS = 1200
"""Parts of a form: a part for each hot word, and some for other fields."""
MOST_LINE_BYTES = 1 << 19
"""Bytes of the lines of a form outside of its fields: boundaries, headers, and what stands before
the first boundary."""
LINE_BYTES = 32
"""Bytes as which a shorter line counts, so that lines of nothing take no long time."""
TURN = 16
"""Calls of the parser of a form after which other clients have a turn: what has arrived already is
parsed without waiting."""
UNREADABLE = (
    ValueError,
    LookupError,
    RuntimeError,
    AssertionError,
    HttpProcessingError,
    web.RequestPayloadError,
)
"""What aiohttp raises at a form that it cannot read."""
READ_BYTES = 1 << 16
PLAIN_ENCODINGS = ("", "identity", "binary", "7bit", "8bit")
TRANSFERS = 4
"""Uploads that may arrive at once, for each place of `max_uploads`."""
YOUNG = 1.0
"""Seconds for which an upload never gives way."""
SLOW = 1 << 14
"""Bytes a second; an upload below this rate gives way to another one."""


class EncodingError(Exception):
    """A body is compressed, or encoded in another way."""


@dataclass
class Upload:
    """The fields of a request."""

    audio: bytes
    fields: Mapping[str, str]

    @property
    def response_format(self) -> str:
        """Format of the answer."""
        return self.fields.get("response_format", "json")

    @property
    def streams(self) -> bool:
        """Whether the answer comes as events, one for each segment."""
        return self.fields.get("stream", "").lower() in ("true", "1")

    def check(self) -> None:
        """Check the fields.

        Raises:
            RefusedError: there is no such format, or it cannot come in parts.
        """
        if self.response_format not in FORMATS:
            raise RefusedError(f"response_format: expected {', '.join(FORMATS)}")

        if "known_speaker_references" in self.fields:
            raise RefusedError(
                "known_speaker_references: this server does not tell voices apart; name the channels "
                "with known_speaker_names"
            )

        if self.streams and self.response_format not in STREAMED_FORMATS:
            raise RefusedError(
                f"stream: response_format {self.response_format} is written as a whole; expected "
                f"{', '.join(STREAMED_FORMATS)}"
            )

    def take_audio(self) -> bytes:
        """Return the recording, which the upload forgets."""
        audio, self.audio = self.audio, b""
        return audio


def check_encoding(request: web.Request) -> None:
    """Refuse a compressed body, which could become a thousand times larger.

    Raises:
        EncodingError: the body is encoded.
    """
    encoding = request.headers.get("Content-Encoding", "")
    if encoding.strip().lower() not in PLAIN_ENCODINGS:
        raise EncodingError(
            f"Content-Encoding {encoding!r:.40}: send the body as it is; flac or opus make audio "
            "smaller"
        )


async def read_upload(request: web.Request, limits: Limits, take: Callable[[int], None]) -> Upload:
    """Read a multipart form into memory.

    Args:
        take: called with the number of bytes before they are kept; it may raise LimitError.

    Raises:
        RefusedError: it is not such a form, has no file, or has a field twice.
        LimitError: it is too large, or the client sends nothing for `idle_seconds`.
    """
    if not request.content_type.startswith("multipart/"):
        raise RefusedError("expected a multipart form with the field file")

    form = _Form(limits, take)
    try:
        # `request.multipart` would read the body without a bound.
        body: Any = FormBody(request.content)
        reader = MultipartReader(request.headers, body)
        while (part := await asyncio.wait_for(reader.next(), limits.idle_seconds)) is not None:
            await form.add(part)
    except asyncio.TimeoutError:
        raise LimitError("idle_seconds", f"no data for {limits.idle_seconds:g} s") from None
    except UNREADABLE as error:
        reason = " ".join(str(getattr(error, "message", error)).split())
        raise RefusedError(f"the form cannot be read: {reason:.200}") from None

    upload = form.upload()
    upload.check()
    return upload


class FormBody:
    """The body of a request, as the parser of its form reads it."""

    def __init__(self, body: StreamReader) -> None:
        self._body = body
        self._room = MOST_LINE_BYTES
        self._calls = 0

    async def readline(self, **options: Any) -> bytes:
        """Read a line.

        Raises:
            LimitError: the lines of the form are too many or too long.
        """
        await self._let_others_work()
        line = await self._body.readline(**options)
        self._room -= max(len(line), LINE_BYTES)
        if self._room < 0:
            raise LimitError(
                "max_upload_bytes",
                f"a form may have {MOST_LINE_BYTES} bytes outside of its fields",
            )
        return line

    async def read(self, n: int = -1) -> bytes:
        """Read at most `n` bytes of a field."""
        await self._let_others_work()
        return await self._body.read(n)

    def unread_data(self, data: bytes) -> None:
        """Put bytes back."""
        self._body.unread_data(data)

    def at_eof(self) -> bool:
        """Tell whether the body has been read."""
        return self._body.at_eof()

    async def _let_others_work(self) -> None:
        self._calls += 1
        if self._calls % TURN == 0:
            await asyncio.sleep(0)


class _Form:
    """The parts of a form that have arrived."""

    def __init__(self, limits: Limits, take: Callable[[int], None]) -> None:
        self._limits, self._take = limits, take
        self._parts = 0
        self._room = MOST_FIELD_BYTES
        """Bytes that all further fields may have."""
        self._audio: bytes | None = None
        self._fields: dict[str, str] = {}

    async def add(self, part: BodyPartReader | MultipartReader) -> None:
        """Read a part.

        Raises:
            RefusedError: the part has no name, is a form itself, is encoded, or comes again.
            LimitError: there are too many parts, or the part is too large.
        """
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise LimitError("max_upload_bytes", f"a form may have {MOST_PARTS} parts")
        if isinstance(part, MultipartReader):
            raise RefusedError("the form has a form within")
        if not part.name:
            raise RefusedError("a part of the form has no name")

        _check_part_encoding(part)
        name = part.name.removesuffix("[]")
        if name == "file":
            if self._audio is not None:
                raise RefusedError("file: found twice; send one recording a request")
            self._audio = await self._read_part(part, self._limits.max_upload_bytes)
            return

        self._room -= len(part.name)
        text = await self._read_part(part, self._room)
        self._room -= len(text)
        self._set_field(name, text.decode("utf-8", "replace"), is_list=part.name.endswith("[]"))

    def upload(self) -> Upload:
        """Return all parts.

        Raises:
            RefusedError: there is no recording.
        """
        if not self._audio:
            raise RefusedError("file: missing or empty", code="empty")
        return Upload(self._audio, self._fields)

    def _set_field(self, name: str, text: str, *, is_list: bool) -> None:
        """Keep the text of a field, or add it to that of a list.

        Raises:
            RefusedError: the field is no list, and is there already.
        """
        if name in self._fields and name in LISTS:
            text = f"{self._fields[name]}\n{text}"
        elif name in self._fields and (name in FIELDS or not is_list):
            raise RefusedError(f"{name:.40}: found twice; send it once")

        self._fields[name] = text

    async def _read_part(self, part: BodyPartReader, most: int) -> bytes:
        """Read a part of the form.

        Raises:
            LimitError: it has more than `most` bytes, or memory for it is not free.
        """
        content = bytearray()
        while chunk := await asyncio.wait_for(
            part.read_chunk(READ_BYTES), self._limits.idle_seconds
        ):
            if len(content) + len(chunk) > most:
                raise LimitError("max_upload_bytes", _size_message(part, most))

            self._take(len(chunk))
            content += chunk

        return bytes(content)


def _size_message(part: BodyPartReader, most: int) -> str:
    if part.name == "file":
        return f"file: at most {most} bytes"
    return f"{part.name:.40}: all fields may have {MOST_FIELD_BYTES} bytes"


def _check_part_encoding(part: BodyPartReader) -> None:
    for header in ("Content-Encoding", "Content-Transfer-Encoding"):
        encoding = part.headers.get(header, "")
        if encoding.strip().lower() not in PLAIN_ENCODINGS:
            raise RefusedError(f"{part.name:.40}: {header} {encoding!r:.40}; send it as it is")


@dataclass(eq=False)
class _Transfer:
    """An upload that arrives."""

    reading: asyncio.Task[Upload]
    start: float
    """Time of the event loop, in seconds."""
    size: int = 0
    """Bytes so far."""
    gave_way: bool = field(default=False)

    def rate(self, now: float) -> float:
        """Return the bytes a second since the start."""
        return self.size / (now - self.start)


class Transfers:
    """Uploads that arrive, used in the event loop of the server.

    They have no place among the recordings in work, so that slow ones keep nobody out.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._most = TRANSFERS * limits.max_uploads
        self._room = limits.max_uploads * limits.max_upload_bytes
        """Bytes that may still arrive."""
        self._open: set[_Transfer] = set()

    @property
    def count(self) -> int:
        """Uploads that arrive."""
        return len(self._open)

    async def receive(self, request: web.Request) -> Upload:
        """Read the upload of a request.

        Raises:
            RefusedError: see `read_upload`.
            LimitError: there are too many uploads, or this one is slow and gives way, or takes
                longer than `upload_seconds`.
        """
        if len(self._open) >= self._most:
            self._make_place()

        loop = asyncio.get_running_loop()

        def take(size: int) -> None:
            if size > self._room:
                raise LimitError("max_uploads", "the server has no memory left for uploads")
            self._room -= size
            transfer.size += size

        reading = asyncio.ensure_future(read_upload(request, self._limits, take))
        transfer = _Transfer(reading, loop.time())
        self._open.add(transfer)
        seconds = self._limits.upload_seconds
        try:
            return await asyncio.wait_for(reading, seconds)
        except asyncio.TimeoutError:
            raise LimitError(
                "upload_seconds", f"the upload took longer than {seconds:g} s"
            ) from None
        except asyncio.CancelledError:
            if not transfer.gave_way:
                raise
            raise LimitError("max_uploads", "a slow upload gave way to others") from None
        finally:
            reading.cancel()
            self._open.discard(transfer)
            self._room += transfer.size

    def _make_place(self) -> None:
        """End the slowest upload.

        Raises:
            LimitError: no upload is slow.
        """
        now = asyncio.get_running_loop().time()
        not_young = [transfer for transfer in self._open if now - transfer.start > YOUNG]
        slowest = min(not_young, key=lambda transfer: transfer.rate(now), default=None)
        if slowest is None or slowest.rate(now) > SLOW:
            raise LimitError(
                "max_uploads", f"{len(self._open)} uploads arrive at once; try again later"
            )

        slowest.gave_way = True
        slowest.reading.cancel()
        self._open.discard(slowest)
