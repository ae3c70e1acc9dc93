"""Speech recognition recipes and tools around one data layer, Unified IO.

    import wenet_uio
    recogniser = wenet_uio.load_model("exp/conformer")
    print(recogniser.transcribe("talk.mp3").text)

The names below are loaded when they are used, so that `import wenet_uio` does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wenet_uio.base.imports import loads_when_used

if TYPE_CHECKING:
    from wenet_uio.addons.listen.live import Stream
    from wenet_uio.addons.listen.load import load_model
    from wenet_uio.addons.listen.options import TranscribeOptions
    from wenet_uio.addons.listen.recogniser import SpeechRecogniser
    from wenet_uio.addons.listen.results import (
        Transcript,
        TranscriptSegment,
        TranscriptToken,
        TranscriptWord,
    )
    from wenet_uio.addons.publish.load import from_pretrained

__version__ = "0.1.0"

__all__ = [
    "SpeechRecogniser",
    "Stream",
    "TranscribeOptions",
    "Transcript",
    "TranscriptSegment",
    "TranscriptToken",
    "TranscriptWord",
    "__version__",
    "from_pretrained",
    "load_model",
]

__getattr__ = loads_when_used(
    __name__,
    {
        "load_model": "addons.listen.load",
        "from_pretrained": "addons.publish.load",
        **dict.fromkeys(("SpeechRecogniser", "TranscribeOptions"), "addons.listen.recogniser"),
        **dict.fromkeys(
            ("Transcript", "TranscriptSegment", "TranscriptToken", "TranscriptWord"),
            "addons.listen.results",
        ),
        "Stream": "addons.listen.live",
    },
)


def __dir__() -> list[str]:
    return __all__
