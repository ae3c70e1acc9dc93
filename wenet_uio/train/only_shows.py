"""Guard what only shows a run: points, pictures, reports and cards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from wenet_uio.base.messages import warn_once


@contextmanager
def only_shows(what: str) -> Iterator[None]:
    """Run what shows a training and what no result needs; also a decorator.

    An error in it is a warning, and training goes on without it.

    Args:
        what: what is left out then.
    """
    try:
        yield
    except Exception as error:  # whatever it is, it costs no training
        cause = str(error) or "no message"
        warn_once(f"{what} left out, training goes on: {type(error).__name__}: {cause}")
