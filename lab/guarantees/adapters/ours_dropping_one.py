"""Our loader with a deliberate fault: a shuffle buffer that drops one sample.

The trials must find the fault.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from ours import Loader as Ours
from protocol import Run, Step

BUFFER = 4


class Loader(Ours):
    """A buffer of batches that loses the first sample of the last batch that it gives out."""

    def open(self, run: Run) -> Iterator[Step]:
        """Yield the steps of ours, through the buffer."""
        draw, buffer = random.Random(run.seed), []
        for step in super().open(run):
            buffer.append(step)
            if len(buffer) > BUFFER:
                yield buffer.pop(draw.randrange(len(buffer)))

        while buffer:
            step = buffer.pop(draw.randrange(len(buffer)))
            yield step if buffer else [step[0][1:], *step[1:]]
