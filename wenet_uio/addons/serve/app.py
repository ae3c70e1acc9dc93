"""The web application: who may do what, and which function answers a request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from http import HTTPStatus
from importlib.resources import files
from typing import Any

from aiohttp import web

from wenet_uio.addons.listen.recogniser import SpeechRecogniser
from wenet_uio.addons.serve.access import (
    WrongHostError,
    bearer_token,
    check_host,
    check_origin,
    is_allowed,
)
from wenet_uio.addons.serve.connections import SERVER, Connections, connection_of
from wenet_uio.addons.serve.dialect import Dialect
from wenet_uio.addons.serve.engine import Engine
from wenet_uio.addons.serve.events import GoneError
from wenet_uio.addons.serve.messages import (
    FAILED,
    LimitError,
    RefusedError,
    Start,
    api_error,
    code_of,
)
from wenet_uio.addons.serve.metrics import Metrics
from wenet_uio.addons.serve.options import ServeOptions
from wenet_uio.addons.serve.realtime import RealtimeDialect
from wenet_uio.addons.serve.served_models import PAUSE, ServedModels
from wenet_uio.addons.serve.session import Session
from wenet_uio.addons.serve.tokens import (
    WRONG_TOKEN_SECONDS,
    Account,
    TokenLimits,
    Tokens,
    WrongTokenError,
    parse_tokens,
)
from wenet_uio.addons.serve.transcriptions import Transcriptions
from wenet_uio.addons.serve.uploads import EncodingError, check_encoding
from wenet_uio.addons.serve.visits import REQUEST_ID, AccessLog, begin_visit, visit_of
from wenet_uio.addons.serve.wenet_dialect import WenetDialect
from wenet_uio.audio.decoders import AudioError

TRANSCRIPTIONS, TRANSLATIONS = "/v1/audio/transcriptions", "/v1/audio/translations"
REALTIME = "/v1/realtime"
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
LOOK_SECONDS = 0.05
"""Seconds between two looks whether all streams and recordings have ended."""
VANISHED = 499
"""Status for the log, when nobody reads the answer."""
JOIN_SECONDS = 10.0
"""Seconds that the end of the server waits for the thread of the streams."""
SHARED = ("base.css", "theme.js")
"""Files of the page that reports use too; they are in `wenet_uio/base/pages`."""
PAGE_HEADERS = {
    # The page loads nothing from another host, and no other page may show it in a frame.
    "Content-Security-Policy": "default-src 'self'; connect-src 'self' ws: wss:; "
    "img-src 'self' data:; media-src 'self' blob:; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
STATUS_OF_LIMIT = {
    "max_clients": HTTPStatus.SERVICE_UNAVAILABLE,
    "max_uploads": HTTPStatus.SERVICE_UNAVAILABLE,
    "memory": HTTPStatus.SERVICE_UNAVAILABLE,
    "token_streams": HTTPStatus.TOO_MANY_REQUESTS,
    "token_seconds": HTTPStatus.TOO_MANY_REQUESTS,
    "max_upload_bytes": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "max_seconds": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "idle_seconds": HTTPStatus.REQUEST_TIMEOUT,
    "upload_seconds": HTTPStatus.REQUEST_TIMEOUT,
}
STATUS_OF_REFUSAL: dict[type[Exception], tuple[HTTPStatus, str]] = {
    WrongTokenError: (HTTPStatus.UNAUTHORIZED, "wrong_token"),
    PermissionError: (HTTPStatus.UNAUTHORIZED, "permission"),
    WrongHostError: (HTTPStatus.MISDIRECTED_REQUEST, "host"),
    EncodingError: (HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "encoding"),
    RefusedError: (HTTPStatus.BAD_REQUEST, ""),
    AudioError: (HTTPStatus.BAD_REQUEST, ""),
}
"""{error: status, and reason in the metrics}."""

log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Serve one model. `app` is its aiohttp application; `finish` ends open utterances."""

    def __init__(self, recogniser: SpeechRecogniser, name: str, options: ServeOptions) -> None:
        """Prepare the server.

        Args:
            recogniser: the model.
            name: name of the model for clients.
            options: how to recognise, limits, token.
        """
        self.name, self._options = name, options
        self._metrics = Metrics()
        self.connections = Connections(options.limits, self._metrics)
        """Make connections with `acceptor`."""
        self.head_seconds = options.limits.head_seconds
        """Seconds for a TLS handshake too."""
        self._models = ServedModels(recogniser, options, self._metrics)
        self._metrics.uploads.set_function(lambda: self._models.busy)
        self._tokens = Tokens(_tokens_in(options.token))
        self._sessions: set[Session] = set()
        self._clients: set[Session] = set()
        """The sessions that have started, each in one of `max_clients` places."""
        self._engine: Engine | None = None
        self._draining = False
        self._access_log = AccessLog(options.access_log)
        shared = files("wenet_uio.base.pages")
        own = files("wenet_uio.addons.serve").joinpath("static")
        pages = [*own.iterdir(), *map(shared.joinpath, SHARED)]
        self._static = {path.name: path.read_bytes() for path in pages}

        self.app = web.Application(middlewares=[self._guard])
        self.app.router.add_post(TRANSCRIPTIONS, self._transcribe)
        self.app.router.add_options(TRANSCRIPTIONS, self._allow_headers)
        self.app.router.add_post(TRANSLATIONS, self._transcribe)
        self.app.router.add_options(TRANSLATIONS, self._allow_headers)
        self.app.router.add_get("/v1/models", self._list_models)
        self.app.router.add_get("/v1/models/{name:.+}", self._show_model)
        self.app.router.add_get("/health", self._show_health)
        self.app.router.add_get("/live", self._show_live)
        self.app.router.add_get("/ready", self._show_ready)
        self.app.router.add_get("/metrics", self._show_metrics)
        self.app.router.add_get("/static/{name}", self._show_file)
        self.app.router.add_get(REALTIME, self._serve_realtime)
        self.app.router.add_route("*", "/{path:.*}", self._socket_or_page)
        self.app.on_response_prepare.append(self._complete_head)
        self.app.on_startup.append(self._start_engine)
        self.app.on_cleanup.append(self._stop_engine)

    def warm_up(self) -> None:
        """Recognise a second of noise, with `transcribe` and as a stream.

        Wrong options are reported before a client comes, and the first client does not wait.

        Raises:
            ValueError: an option is wrong for the model.
        """
        self._models.current.warm_up()

    def use_tokens(self, text: str | None) -> None:
        """Use the tokens of a text from now on; streams that are open go on.

        Raises:
            ValueError: a line is wrong; the old tokens stay.
        """
        self._tokens.replace(_tokens_in(text))

    async def use_model(self, recogniser: SpeechRecogniser) -> None:
        """Use another model for new streams and recordings; those in work keep theirs.

        Raises:
            ValueError: an option is wrong for the model; the old one stays.
        """
        await self._models.replace(recogniser)

    async def drain(self, hurry: asyncio.Event) -> None:
        """Let `/ready` say no, and serve on for `drain_seconds` or until `hurry`, while balancers
        notice.
        """
        self._draining = True
        await _wait_at_most(self._options.drain_seconds, hurry)

    async def wait_for_streams(self, hurry: asyncio.Event) -> None:
        """Wait until all streams and recordings have ended by themselves, for `finish_seconds` at
        most, or until `hurry`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.finish_seconds
        while self._unfinished and loop.time() < deadline and not hurry.is_set():
            await _wait_at_most(LOOK_SECONDS, hurry)

    @property
    def _unfinished(self) -> int:
        """WebSockets and recordings that are open."""
        return len(self._sessions) + self._models.unanswered

    @property
    def _transcriptions(self) -> Transcriptions:
        """Those of the current model."""
        return self._models.current.transcriptions

    async def finish(self) -> None:
        """End all open utterances, send their texts, and disconnect the clients.

        This takes `grace_seconds` at most.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.limits.grace_seconds
        for session in list(self._sessions):
            session.stop()

        while self._unfinished and loop.time() < deadline:
            await asyncio.sleep(LOOK_SECONDS)

        if self._unfinished:
            log.warning(
                "warning: %d clients and %d recordings were not finished within %g s "
                "(--grace_seconds)",
                len(self._sessions),
                self._models.unanswered,
                self._options.limits.grace_seconds,
            )

    async def _start_engine(self, _: web.Application) -> None:
        self._engine = Engine(asyncio.get_running_loop(), self._options.stream_batch, self._metrics)
        self._engine.start()
        self._models.start(self._engine.calm)

    async def _stop_engine(self, _: web.Application) -> None:
        """End the thread of the streams, the models that are in use or retire, and the access log."""
        if self._engine is not None:
            self._engine.stop()
            # A thread that hangs ends with the process.
            await asyncio.to_thread(self._engine.join, JOIN_SECONDS)
        self._models.close()
        await asyncio.to_thread(self._access_log.close)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn errors into answers in the form of OpenAI's API, and log the request."""
        visit, connection = begin_visit(request), connection_of(request)
        self.connections.set_busy(connection)
        try:
            check_origin(request, self._options.origins)
            check_host(request, self._options.origins)
            check_encoding(request)
            answer = await handler(request)
        except asyncio.CancelledError:
            self._access_log.add(request, visit, VANISHED)
            raise
        except web.HTTPNotFound:
            answer = _error_answer(HTTPStatus.NOT_FOUND, _not_found(request))
        except web.HTTPException as error:
            answer = _error_answer(error.status, error.reason)
        except WrongTokenError as error:
            self.connections.set_idle(connection)  # it gives way to others while it waits
            await asyncio.sleep(WRONG_TOKEN_SECONDS)
            answer = self._answer_error(error, request)
        except Exception as error:
            answer = self._answer_error(error, request)
        finally:
            self.connections.set_idle(connection)

        if self._draining:
            # The next request should find another server.
            answer.force_close()
        if request.path in (TRANSCRIPTIONS, TRANSLATIONS):
            self._metrics.transcriptions.labels(str(answer.status)).inc()

        self._access_log.add(request, visit, answer.status)
        return answer

    async def _complete_head(self, request: web.Request, answer: web.StreamResponse) -> None:
        """Let a page of an allowed origin read the answer, tell nobody what the server runs, and
        give the id of the request back.
        """
        answer.headers["Server"] = SERVER
        answer.headers[REQUEST_ID] = visit_of(request).id
        if is_allowed(request.headers.get("Origin"), self._options.origins):
            answer.headers["Access-Control-Allow-Origin"] = request.headers["Origin"]

    def _answer_error(self, error: Exception, request: web.Request) -> web.Response:
        """Return the answer to a request that ended with an error, and count it."""
        if isinstance(error, (GoneError, ConnectionError)):
            return _error_answer(VANISHED, "the client has vanished")
        if isinstance(error, LimitError):
            visit_of(request).reason = error.reason
            self._metrics.refused.labels(error.reason).inc()
            return _error_answer(STATUS_OF_LIMIT[error.reason], str(error), error.code)

        refusals = [refusal for refusal in STATUS_OF_REFUSAL if isinstance(error, refusal)]
        if not refusals:
            route = request.match_info.route.resource
            place = route.canonical if route is not None else "no route"
            visit_of(request).reason = "failed"
            log.error(
                "error: a request failed: %s %s, id %s",
                request.method,
                place,
                visit_of(request).id,
                exc_info=error,
            )
            return _error_answer(
                HTTPStatus.INTERNAL_SERVER_ERROR, "the server failed at this request", FAILED
            )

        status, reason = STATUS_OF_REFUSAL[refusals[0]]
        visit_of(request).reason = reason or "refused"
        if reason:
            self._metrics.refused.labels(reason).inc()
        return _error_answer(status, str(error), code_of(error))

    async def _transcribe(self, request: web.Request) -> web.StreamResponse:
        """Answer with the text of a recording, or with its translation."""
        account = self._account(request)
        task = "translate" if request.path == TRANSLATIONS else "transcribe"
        return await self._transcriptions.answer(request, task, account)

    def _account(self, request: web.Request) -> Account:
        """Return the account of the token in the headers of a request.

        Raises:
            PermissionError: the token is unknown, or is missing.
        """
        account = self._tokens.account(bearer_token(request))
        visit_of(request).token = account.limits.name
        return account

    async def _allow_headers(self, request: web.Request) -> web.Response:
        """Allow pages of other origins to send the headers that OpenAI's package sends."""
        wanted = request.headers.get(
            "Access-Control-Request-Headers", "authorization, content-type"
        )
        allowed = {"Access-Control-Allow-Headers": wanted, "Access-Control-Max-Age": "600"}
        return web.Response(status=HTTPStatus.NO_CONTENT, headers=allowed)

    async def _list_models(self, request: web.Request) -> web.Response:
        self._account(request)
        return web.json_response({"object": "list", "data": [self._model_card()]})

    async def _show_model(self, request: web.Request) -> web.Response:
        self._account(request)
        name = request.match_info["name"]
        if name != self.name:
            message = f"the model {name!r:.100} does not exist; this server has {self.name!r}"
            return _error_answer(HTTPStatus.NOT_FOUND, message)
        return web.json_response(self._model_card())

    def _model_card(self) -> dict[str, Any]:
        """Return the model as OpenAI's API has it; our fields are what the page says of it."""
        examples = self._models.current.recogniser.examples
        return {
            "id": self.name,
            "object": "model",
            "created": 0,
            "owned_by": "wenet_uio",
            "examples": examples.sentences,
            "words": examples.words,
            "languages": examples.languages,
        }

    async def _show_health(self, _: web.Request) -> web.Response:
        """Answer whether the server works, with what a client or a monitor may want to know."""
        state, status = "ok", HTTPStatus.OK
        if self._troubles():
            state, status = "failed", HTTPStatus.INTERNAL_SERVER_ERROR

        return web.json_response(
            {
                "status": state,
                "model": self.name,
                **self._streaming_fields(),
                "clients": len(self._clients),
                "limits": asdict(self._options.limits),
                "needs_token": self._tokens.needed,
            },
            status=status,
        )

    async def _show_live(self, _: web.Request) -> web.Response:
        """Answer whether the server works; a supervisor should start it anew if it does not."""
        return _probe_answer(self._troubles(), HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _show_ready(self, _: web.Request) -> web.Response:
        """Answer whether the next client would be served; a balancer chooses another server if it
        would not.
        """
        reasons = self._troubles()
        if self._draining:
            reasons.append("the server stops")
        if len(self._clients) >= self._options.limits.max_clients:
            reasons.append(f"{len(self._clients)} clients are connected (--max_clients)")
        busy = self._transcriptions.busy
        if busy >= self._options.limits.max_uploads:
            reasons.append(f"{busy} recordings wait (--max_uploads)")
        return _probe_answer(reasons, HTTPStatus.SERVICE_UNAVAILABLE)

    def _troubles(self) -> list[str]:
        """Return why no stream or no recording is recognised; nothing if all is well."""
        if self._engine is None or not self._engine.is_alive():
            return ["streams: the thread has ended"]
        if not self._transcriptions.is_alive:
            return ["recordings: the thread has ended"]

        most = self._options.limits.hung_seconds
        pulses = [self._engine.pulse, *self._models.pulses]
        return [trouble for pulse in pulses if (trouble := pulse.trouble(most))]

    async def _show_metrics(self, request: web.Request) -> web.Response:
        self._account(request)
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=self._metrics.text(), headers=headers)

    async def _show_file(self, request: web.Request) -> web.Response:
        return self._static_file(request.match_info["name"])

    async def _socket_or_page(self, request: web.Request) -> web.StreamResponse:
        """Serve a WebSocket on any path, as WeNet's server does, or the page.

        OpenAI's paths are not among them, also if a base URL lacks `/v1`.
        """
        if request.method not in ("GET", "HEAD") or _is_of_openai(request.path):
            raise web.HTTPNotFound
        if _is_upgrade(request):
            return await self._serve_session(request, WenetDialect(self._streaming_fields()))
        if request.path == "/":
            return self._static_file("index.html")
        raise web.HTTPNotFound

    async def _serve_realtime(self, request: web.Request) -> web.StreamResponse:
        """Serve a client of OpenAI's realtime API."""
        if not _is_upgrade(request):
            raise web.HTTPUpgradeRequired(reason=f"{REALTIME} is a WebSocket")
        pause = self._options.endpoints.get(PAUSE)
        dialect = RealtimeDialect(self.name, pause and pause.silence)
        return await self._serve_session(request, dialect, has_place=True)

    def _static_file(self, name: str) -> web.Response:
        """Answer with a file of the page."""
        if name not in self._static:
            raise web.HTTPNotFound

        content_type = TYPES.get(name.rpartition(".")[2], "application/octet-stream")
        return web.Response(
            body=self._static[name],
            content_type=content_type,
            charset="utf-8",
            headers=PAGE_HEADERS,
        )

    async def _serve_session(
        self, request: web.Request, dialect: Dialect, *, has_place: bool = False
    ) -> web.StreamResponse:
        """Serve a WebSocket to its end.

        Args:
            has_place: whether it counts as a client at once; else from its first Start on.
        """
        assert self._engine is not None, "_start comes first"
        token_of_header = bearer_token(request)
        connection = connection_of(request)

        def admit(start: Start) -> Account:
            """Give the client a place; return the account of its token.

            Raises:
                LimitError: no place is free, or the token has used up what it may.
                PermissionError: the token is unknown, or is missing.
            """
            account = self._tokens.account(start.token or token_of_header)
            visit_of(request).token = account.limits.name
            if len(self._clients) >= self._options.limits.max_clients:
                raise LimitError(
                    "max_clients", f"{len(self._clients)} clients are connected; try again later"
                )

            held_places.enter_context(account.stream())
            self._clients.add(session)
            self._metrics.clients.set(len(self._clients))
            connection.trust()
            return account

        model, held_places = self._models.current, ExitStack()
        session = Session(
            self._engine,
            dialect,
            admit,
            model.open_stream,
            model.recogniser.sample_rate,
            self._metrics,
        )
        self._sessions.add(session)
        try:
            held_places.enter_context(model.used_by_session())
            if has_place:
                session.admit(Start())
            else:  # until the client has a place, it holds nothing that others need
                connection.distrust()
            return await session.run(request, self._options.limits)
        finally:
            held_places.close()
            self._sessions.discard(session)
            self._clients.discard(session)
            self._metrics.clients.set(len(self._clients))

    def _streaming_fields(self) -> dict[str, Any]:
        recogniser = self._models.current.recogniser
        reason = recogniser.obstacle
        return {
            "streaming": not reason,
            "reason": reason,
            "sample_rate": recogniser.sample_rate,
        }


def _tokens_in(text: str | None) -> list[TokenLimits]:
    return [] if text is None else parse_tokens(text, "--token_file")


async def _wait_at_most(seconds: float, event: asyncio.Event) -> None:
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


def _probe_answer(reasons: list[str], refusal: HTTPStatus) -> web.Response:
    """Answer a probe: all is well, or `reasons` why it is not."""
    if not reasons:
        return web.json_response({"status": "ok"})
    return web.json_response({"status": "failed", "reasons": reasons}, status=refusal)


def _is_upgrade(request: web.Request) -> bool:
    return request.headers.get("Upgrade", "").lower() == "websocket"


def _is_of_openai(path: str) -> bool:
    """Tell whether a path is of OpenAI's API, with `/v1` or without."""
    return path.startswith(("/v1/", "/audio/", "/models/")) or path in ("/models", "/realtime")


def _not_found(request: web.Request) -> str:
    base = f"{request.scheme}://{request.host}/v1"
    return (
        f"{request.method} {request.path!r:.100} is not served; the base URL for OpenAI's clients "
        f"is {base:.100}"
    )


def _error_answer(status: int, message: str, code: str | None = None) -> web.Response:
    is_for_now = status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)
    headers = {"Retry-After": "5"} if is_for_now else {}
    error = api_error(status, message, code)
    return web.json_response({"error": error}, status=status, headers=headers)
