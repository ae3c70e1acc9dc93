"""SIGTERM and SIGUSR1 as a request to save and stop."""

from __future__ import annotations

import signal
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""Job schedulers send one of them before they take a machine away."""


class StopRequest:
    """Remembers whether this process received one of SIGNALS."""

    asked = False
    signal_name = signal.SIGTERM.name
    """The signal that was received; that of the launcher if another rank received it."""

    def listen(self) -> None:
        """Let SIGNALS set `asked` from now on, instead of ending the process."""
        for number in SIGNALS:
            signal.signal(number, self._note)

    def ignore(self) -> None:
        """Ignore further SIGNALS.

        The run is complete, and a late signal would only change the exit status.
        """
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _note(self, number: int, _: Any) -> None:
        self.asked = True
        self.signal_name = signal.Signals(number).name
