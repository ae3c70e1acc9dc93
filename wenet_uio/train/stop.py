"""The wish that a run ends."""

from __future__ import annotations

import signal
from typing import Any


class StopRequest:
    """Whether this process got a SIGTERM, as schedulers send one before they take a machine away."""

    asked = False

    def listen(self) -> None:
        """From now on a SIGTERM is noted and ends nothing by itself."""
        signal.signal(signal.SIGTERM, self._note)

    def too_late(self) -> None:
        """The run is at its end, and a SIGTERM would only spoil how the process ends."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _note(self, *_: Any) -> None:
        self.asked = True
