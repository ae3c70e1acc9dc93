"""URIs for people: in messages, pages, logs and records they are shown without passwords,
signatures and tokens.

Data lists, indexes and the names of cached copies keep the true URI, because they are read again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from wenet_uio.base.messages import PrintableStream

HIDDEN = "…"
"""Stands for what is not shown."""
TOKENS_AS_USER = ("http", "https", "ftp")
"""Schemes whose user may be a token. In others a user without a password is a name:
abfs://container@account."""

_PLAIN = r"[^\s'\"<>\\]"
"""A character of a URI within a text. All repetitions are bounded, so that no text takes long."""
_USER = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,20})://([^\s/?#\"<>\\]{0,1000})@")
_ODD_PASSWORD = re.compile(
    r"(://)[^\s/?#\"<>\\@:\[]{0,1000}:(?!\d{0,9}(?:[/?#\s'\"<>:;,)\]]|$))[^\s\"<>\\]{0,1000}@"
)
"""A password with a slash, question mark or number sign, which should be percent-encoded. No port
begins like this."""
_QUERY = re.compile(rf"(://[^\s?'\"<>\\]{{0,2000}}\?)({_PLAIN}+)")
_TARGET = re.compile(rf"(\?)([\w.~%+-]{{1,200}}={_PLAIN}*)")
"""The query of a path without scheme and host, as in the messages of requests."""
_NAME = (
    r"[\w-]{0,30}(?:signature|access_?-?key_?-?id|secret|security[-_]?token|session[-_]?token|credential|passw(?:or)?d"
    r"|stringtosign|authorization)[\w-]{0,30}"
)
_NAMED = re.compile(rf"(\b{_NAME}(?:=['\"]?|>))[^\s'\"&,;<>{{}}()\[\]]+", re.IGNORECASE)
_QUOTED = re.compile(rf"((?P<quote>['\"]){_NAME}(?P=quote):\s?(['\"]))(?:(?!\3).)*", re.IGNORECASE)
"""An entry of a dictionary, as in the messages of oss2."""


def shown(text: object) -> str:
    """Remove passwords, queries and named secrets from a URI, or from a text that may have URIs.

    All messages, pages, logs and records of this project go through this function. The whole query
    of a URI is hidden, because every store has its own names for signatures and tokens.
    """
    text = str(text)
    if "://" in text:
        text = _ODD_PASSWORD.sub(rf"\1{HIDDEN}@", text)
        text = _USER.sub(_hide_user, text)
        text = _QUERY.sub(_hide_query, text)

    if "?" in text:
        text = _TARGET.sub(_hide_query, text)
    if "=" in text or ":" in text or ">" in text:
        text = _NAMED.sub(rf"\1{HIDDEN}", text)
        text = _QUOTED.sub(rf"\1{HIDDEN}", text)

    return text


def _hide_user(match: re.Match[str]) -> str:
    """Hide the user of a URI if it has a password, or may be a token."""
    scheme, user = match.groups()
    return f"{scheme}://{HIDDEN}@" if ":" in user or scheme in TOKENS_AS_USER else match[0]


def _hide_query(match: re.Match[str]) -> str:
    """Hide the whole query of a URI."""
    before_query, query = match.groups()

    # Punctuation at the end closes the sentence around the URI; it is no part of the query.
    punctuation = query[len(query.rstrip(":;,.)]}")) :]
    return before_query + HIDDEN + punctuation


def _shown_if_uri(text: str) -> str:
    return shown(text) if "://" in text else text


def shown_values(value: Any, show: Callable[[str], str] = _shown_if_uri) -> Any:
    """Copy a tree of dictionaries and lists, with every text passed to `show`; default: `shown`, if
    the text has a URI.
    """
    if isinstance(value, str):
        return show(value)
    if isinstance(value, dict):
        return {shown_values(name, show): shown_values(item, show) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown_values(item, show) for item in value]

    return value


def server_of(uri: str) -> str:
    """Return the scheme and server, or bucket, of a URI, without passwords."""
    scheme, _, rest = shown(uri).partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def published(text: str) -> str:
    """Return a URI as it is `shown`, and only the name of an absolute path: folders of a machine are
    of no use elsewhere.
    """
    if "://" in text and not text.startswith("file://"):
        return shown(text)

    path = PurePath(text.removeprefix("file://"))
    is_on_this_machine = path.parts[:1] == ("~",) or (path.is_absolute() and len(path.parts) > 2)
    return path.name if is_on_this_machine else text


def is_shown_form(uri: str) -> bool:
    """Tell whether `shown` has removed a secret from this URI, so that it cannot be read."""
    return f"://{HIDDEN}@" in uri or uri.endswith(f"?{HIDDEN}")


class ShownStream(PrintableStream):
    """Standard output or standard error, through which every text is `shown` and `printable`:
    messages, logs and stack traces.
    """

    def write(self, text: str) -> int:
        """Write a text; its URIs must not be divided between two calls."""
        super().write(shown(text))
        return len(text)
