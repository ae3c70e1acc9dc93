"""The certificate of the server, which can be replaced while it serves."""

from __future__ import annotations

import ssl
from pathlib import Path


class Certificate:
    """A certificate chain with its key, in two files. New connections get the newest one."""

    def __init__(self, chain: str, key: str) -> None:
        """Read the files.

        Raises:
            ValueError: they do not fit.
            OSError: a file cannot be read.
        """
        self._chain, self._key = chain, key
        self._current = self.context = _read(chain, key)
        """`context` is that of the socket; each handshake gets the current one."""
        self.context.sni_callback = self._choose

    def reload(self) -> None:
        """Read the files again. Open connections go on with the certificate that they have.

        Raises:
            ValueError, OSError: as at first; the old certificate stays.
        """
        self._current = _read(self._chain, self._key)

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Give a connection the current certificate; its client may have asked for any name."""
        connection.context = self._current


def _read(chain: str, key: str) -> ssl.SSLContext:
    """Read a certificate chain and its key.

    Raises:
        ValueError: they do not fit.
        OSError: a file cannot be read.
    """
    for file in (chain, key):
        Path(file).read_bytes()  # its errors name the file

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # A server cannot ask for the password of an encrypted key.
        context.load_cert_chain(chain, key, password="")
    except ssl.SSLError as error:
        reason = error.reason or "the key may need a password"
        raise ValueError(f"{chain}, {key}: no certificate with its key ({reason})") from None

    return context
