"""Times of encoder frames in the audio."""

from __future__ import annotations

from dataclasses import dataclass

from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.frames import frame_count
from wenet_uio.models.interfaces import DecodingModel


@dataclass(frozen=True)
class FrameClock:
    """Times of encoder frames.

    Frame t stands for `step` seconds around the middle of the audio that the input layer sees for
    it.
    """

    step: float
    """Seconds from one encoder frame to the next."""
    offset: float
    """Seconds before the first encoder frame."""
    shift: float
    """Seconds from one feature frame to the next."""

    @classmethod
    def of(cls, model: DecodingModel, conf: DatasetConf) -> FrameClock:
        """Make the clock of a model with the features of `conf`."""
        count, encoder = frame_count(conf), model.encoder
        # In samples: from one frame to the next, of the input layer and of the encoder, and what
        # the input layer sees for one frame of the encoder.
        embed_step = encoder.embed.subsampling_rate * count.shift
        step = encoder.traits.reduction * embed_step
        seen = encoder.embed.right_context * count.shift + count.window + step - embed_step
        offset = (
            max(0.0, (seen - step) / 2 / count.sample_rate)
            - model.leading_frames * step / count.sample_rate
        )

        return cls(step / count.sample_rate, offset, count.shift / count.sample_rate)

    def edge(self, frame: float) -> float:
        """Return the start of encoder frame `frame` in seconds.

        This is the end of the frame before.

        Frames before the audio start at 0.
        """
        return max(0.0, self.offset + frame * self.step)

    def middle(self, frame: float) -> float:
        """Return the middle of encoder frame `frame`, in seconds."""
        return self.edge(frame) + self.step / 2
