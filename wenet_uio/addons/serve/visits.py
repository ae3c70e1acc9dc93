"""Ids of requests, and the access log: a line for each request, without any text of a client."""

from __future__ import annotations

import json
import logging
import queue
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, TextIO

from aiohttp import hdrs, web

REQUEST_ID = "X-Request-ID"
ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
"""An id of a client or a balancer that is taken as it is. It cannot end a line of a log."""
QUIET_PATHS = ("/live", "/ready")
"""Probes; they are logged only if the answer is no."""
MOST_WAITING = 10_000
"""Lines that wait to be written; further ones are lost, so that no slow reader stops the server."""
CLOSING_SECONDS = 2.0

log = logging.getLogger(__name__)


@dataclass
class Visit:
    """What the access log says of a request."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    begin: float = field(default_factory=time.monotonic)
    """Seconds of the monotonic clock."""
    token: str = ""
    """Name of the client's token."""
    audio_seconds: float = 0.0
    reason: str = ""
    """Why the request was refused: the name of a limit, `permission`, `refused` or `failed`."""
    close_code: int | None = None
    """Of a WebSocket."""


KEY = web.RequestKey("visit", Visit)


def begin_visit(request: web.Request) -> Visit:
    """Note a request, with the id that its client gave if it has the form of one."""
    given = request.headers.get(REQUEST_ID, "")
    visit = Visit(given) if ID.fullmatch(given) else Visit()
    request[KEY] = visit
    return visit


def visit_of(request: web.Request) -> Visit:
    """Return what was noted of a request."""
    # aiohttp answers some requests before the application sees them.
    return request.get(KEY) or begin_visit(request)


def describe(request: web.Request, visit: Visit, status: int) -> dict[str, Any]:
    """Return the fields of a line; of names and paths that a client chose, only what is ours."""
    resource = request.match_info.route.resource
    fields: dict[str, Any] = {
        "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "id": visit.id,
        "client": request.remote or "unix",
        "method": request.method if request.method in hdrs.METH_ALL else "-",
        "path": resource.canonical if resource is not None else "-",
        "status": status,
        "seconds": round(time.monotonic() - visit.begin, 3),
    }
    if visit.token:
        fields["token"] = visit.token
    if visit.audio_seconds:
        fields["audio_seconds"] = round(visit.audio_seconds, 3)
    if visit.reason:
        fields["reason"] = visit.reason
    if visit.close_code is not None:
        fields["close_code"] = visit.close_code
    return fields


def to_text(fields: dict[str, Any]) -> str:
    """Write the fields of a line for a person: the first ones as they are, others with names."""
    named = ("token", "audio_seconds", "reason", "close_code")
    first = [str(value) for name, value in fields.items() if name not in named]
    return " ".join([*first, *(f"{name}={fields[name]}" for name in named if name in fields)])


class AccessLog:
    """Writes lines in a thread of its own, because a slow reader must not stop the server."""

    def __init__(self, form: str, file: TextIO | None = None) -> None:
        """Begin to write.

        Args:
            form: text, json, or off.
            file: where to write; None: standard output.
        """
        self._to_line: Callable[[dict[str, Any]], str] = json.dumps if form == "json" else to_text
        self._file = file or sys.stdout
        self._lines: queue.Queue[str | None] = queue.Queue(MOST_WAITING)
        self._lost = 0
        self._thread = threading.Thread(target=self._write_lines, name="access log", daemon=True)
        self._is_on = form != "off"
        if self._is_on:
            self._thread.start()

    def add(self, request: web.Request, visit: Visit, status: int) -> None:
        """Add the line of a request that has been answered."""
        is_quiet = request.path in QUIET_PATHS and status == web.HTTPOk.status_code
        if not self._is_on or is_quiet:
            return
        try:
            self._lines.put_nowait(self._to_line(describe(request, visit, status)))
        except queue.Full:
            self._lost += 1

    def close(self) -> None:
        """Write the lines that wait; a reader that takes none is not waited for."""
        if not self._is_on:
            return
        self._is_on = False
        try:
            self._lines.put(None, timeout=CLOSING_SECONDS)
        except queue.Full:
            return
        self._thread.join(CLOSING_SECONDS)

    def _write_lines(self) -> None:
        """Write lines in a thread of its own, until None comes or nobody can read them any more."""
        while (line := self._lines.get()) is not None:
            lost, self._lost = self._lost, 0
            if lost:
                log.warning("warning: access log: %d lines are lost, nobody reads them", lost)
            try:
                print(line, file=self._file, flush=True)
            except OSError as error:
                log.error("error: access log: it ends here: %s", error)
                self._is_on = False
                return
