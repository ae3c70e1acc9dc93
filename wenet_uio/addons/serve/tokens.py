"""Tokens of clients, and what each may use."""

from __future__ import annotations

import hmac
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from wenet_uio.addons.serve.messages import LimitError

MINUTE = 60.0
WRONG_TOKEN_SECONDS = 1.0
"""Seconds before a client learns that its token is wrong, so that guessing takes time."""
FIELD = re.compile(r"\w+=\S*")
"""A word of a line that is no part of the token."""
NAME = re.compile(r"[\w.@-]{1,64}")
"""A name that can stand in a log."""


@dataclass(frozen=True)
class TokenLimits:
    """A token, and what its clients may use together."""

    token: str = field(default="", repr=False)
    name: str = ""
    """For logs."""
    streams: int | None = None
    """Most streams at once; None: any number."""
    seconds_a_minute: float | None = None
    """Most seconds of audio a minute, on average; None: any number."""


def parse_tokens(text: str, place: str) -> list[TokenLimits]:
    """Read the tokens of a file: one a line, with its limits as `name=value`.

    Empty lines and lines that begin with `#` are skipped.

    Args:
        place: the name of the file, for errors.

    Raises:
        ValueError: there is no token, one comes twice, or a limit is unknown or out of range.
    """
    tokens: list[TokenLimits] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.strip().startswith("#"):
            try:
                tokens.append(_parse_line(line, default_name=f"token{number}"))
            except ValueError as error:
                raise ValueError(f"{place}:{number}: {error}") from None

    if not tokens:
        raise ValueError(f"{place}: the token is empty (lines that begin with # are comments)")
    for what in ("token", "name"):
        if len({getattr(token, what) for token in tokens}) < len(tokens):
            raise ValueError(f"{place}: a {what} is there twice")
    return tokens


def _parse_line(line: str, default_name: str) -> TokenLimits:
    """Read a token and its limits.

    Raises:
        ValueError: the token is missing, or a limit is unknown or out of range.
    """
    first, *words = line.split()
    token_words = [first, *(word for word in words if not FIELD.fullmatch(word))]
    limits = TokenLimits(token=" ".join(token_words), name=default_name)

    for word in words:
        if FIELD.fullmatch(word):
            name, _, value = word.partition("=")
            limits = replace(limits, **{name: _parse_limit(name, value)})
    return limits


def _parse_limit(name: str, value: str) -> str | int | float:
    """Read the value of a limit.

    Raises:
        ValueError: it is unknown or out of range.
    """
    if name == "name":
        if not NAME.fullmatch(value):
            raise ValueError(f"name: expected letters, digits and . @ _ -, found {value!r:.80}")
        return value
    if name == "streams":
        if not re.fullmatch(r"[1-9]\d{0,8}", value):
            raise ValueError(f"streams: expected 1 or more, found {value!r:.80}")
        return int(value)
    if name == "seconds_a_minute":
        if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value) or not float(value):
            raise ValueError(f"seconds_a_minute: expected above 0, found {value!r:.80}")
        return float(value)
    raise ValueError(f"{name:.80}: expected name, streams or seconds_a_minute")


class Account:
    """What the clients of a token use. Any thread may call its methods."""

    def __init__(self, limits: TokenLimits, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing used.

        Args:
            clock: tells the time, in seconds.
        """
        self.limits = limits
        self._clock, self._lock = clock, threading.Lock()
        self._streams = 0
        self._paid_until = clock() - MINUTE
        """Time up to which the audio so far has used the seconds of each minute."""

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Hold one of the streams of the token during a block.

        Raises:
            LimitError: they are all taken, or the seconds of this minute are used up.
        """
        self.check_seconds()
        most = self.limits.streams
        with self._lock:
            if most is not None and self._streams >= most:
                raise LimitError(
                    "token_streams", f"{self._streams} streams of this token are open; try later"
                )
            self._streams += 1
        try:
            yield
        finally:
            with self._lock:
                self._streams -= 1

    def spend(self, seconds: float) -> None:
        """Note seconds of audio."""
        rate = self.limits.seconds_a_minute
        if rate is None:
            return
        with self._lock:
            # What was left over longer ago than a minute is lost.
            begin = max(self._paid_until, self._clock() - MINUTE)
            self._paid_until = begin + seconds / rate * MINUTE

    @property
    def wait_seconds(self) -> float:
        """Seconds until the token may send audio again; 0: it may now."""
        if self.limits.seconds_a_minute is None:
            return 0.0
        return max(0.0, self._paid_until - self._clock())

    def check_seconds(self, most: float = 0.0) -> None:
        """Check whether the token may send audio, at the latest in `most` seconds.

        Raises:
            LimitError: the seconds of this minute are used up.
        """
        wait = self.wait_seconds
        if wait > most:
            raise LimitError(
                "token_seconds",
                f"this token may send {self.limits.seconds_a_minute:g} s of audio a minute; try "
                f"again in {wait:.0f} s",
            )


class WrongTokenError(PermissionError):
    """A client gave a token that the server does not know."""


class Tokens:
    """The tokens of the server, and their accounts."""

    def __init__(self, tokens: Iterable[TokenLimits]) -> None:
        """Begin with these tokens; with none, everybody may use the server."""
        self._accounts = [Account(limits) for limits in tokens]
        self._open = Account(TokenLimits())

    @property
    def needed(self) -> bool:
        """Whether clients need a token."""
        return bool(self._accounts)

    def replace(self, tokens: Iterable[TokenLimits]) -> None:
        """Take other tokens. A token that stays keeps its account, with its new limits; streams of
        one that goes end by themselves.
        """
        old = {account.limits.token: account for account in self._accounts}
        accounts: list[Account] = []
        for limits in tokens:
            account = old.get(limits.token) or Account(limits)
            account.limits = limits
            accounts.append(account)
        self._accounts = accounts

    def account(self, token: str | None) -> Account:
        """Return the account of a client's token.

        Raises:
            PermissionError: the token is missing; WrongTokenError: it is unknown.
        """
        if not self._accounts:
            return self._open

        # The time must tell neither how many characters are right, nor which token it is.
        given = (token or "").encode(errors="replace")
        matches = [
            account
            for account in self._accounts
            if hmac.compare_digest(given, account.limits.token.encode())
        ]
        if not matches:
            refusal = WrongTokenError if token else PermissionError
            raise refusal("the token is missing or wrong (Authorization: Bearer TOKEN)")
        return matches[0]
