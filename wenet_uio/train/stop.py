"""SIGTERM as a request to save and stop."""

from __future__ import annotations

import signal
from typing import Any


class StopRequest:
    """Remembers whether this process received a SIGTERM.

    Job schedulers send it before they take a machine away.
    """

    asked = False

    def listen(self) -> None:
        """Let a SIGTERM set `asked` from now on, instead of ending the process."""
        signal.signal(signal.SIGTERM, self._note)

    def ignore(self) -> None:
        """Ignore further SIGTERMs.

        The run is complete, and a late signal would only change the exit status.
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _note(self, *_: Any) -> None:
        self.asked = True
