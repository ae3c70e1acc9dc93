"""The command `serve` without silero-vad: tests speak with bursts of noise, in which it finds nobody."""

from __future__ import annotations

import sys

sys.modules["silero_vad"] = None  # type: ignore[assignment]

from wenet_uio.base.cli import run  # noqa: E402
from wenet_uio.bin.serve import main  # noqa: E402

if __name__ == "__main__":
    run(main)
