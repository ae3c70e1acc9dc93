"""The layouts of models that can be converted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from wenet_uio.config.named_code import Loaded
from wenet_uio.convert.converted import Converted
from wenet_uio.families.paraformer import convert as funasr
from wenet_uio.families.whisper import convert as whisper


class Layout(NamedTuple):
    """A layout of a model of another package."""

    what: str
    """What it holds, in words."""
    found_at: Callable[[Path], bool]
    """Whether a file or folder has this layout; looks at names only."""
    convert: Callable[[Path, Path | None], Converted]
    """Converts the model at a path, with the vocabulary of the user or None."""


_ICEFALL = "wenet_uio.models.encoders.zipformer.exchange.icefall"
LAYOUTS: dict[str, Layout] = {
    "openai": Layout("a .pt file of a Whisper of OpenAI", whisper.is_openai, whisper.from_openai),
    "huggingface": Layout(
        "a folder of a Whisper of Hugging Face", whisper.is_hugging_face, whisper.from_hugging_face
    ),
    "funasr": Layout("a folder of a Paraformer of FunASR", funasr.is_funasr, funasr.from_funasr),
    "icefall": Layout(
        "a folder of a Zipformer of icefall with CTC",
        Loaded(f"{_ICEFALL}:is_icefall"),
        Loaded(f"{_ICEFALL}:from_icefall"),
    ),
}
"""{name on the command line: layout}."""


def convert(path: Path, layout: str | None = None, vocabulary: Path | None = None) -> Converted:
    """Convert the model at `path`.

    Args:
        layout: name in LAYOUTS; None: the one that the files have.
        vocabulary: file of the tokens; None: what lies beside the model.

    Raises:
        OSError: a file is missing or cannot be read.
        ValueError: no layout fits, or the model cannot be converted.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    names = [layout] if layout else [name for name, each in LAYOUTS.items() if each.found_at(path)]
    if not names:
        expected = "; ".join(f"{name}: {each.what}" for name, each in LAYOUTS.items())
        raise ValueError(f"{path}: none of the known layouts ({expected})")
    try:
        return LAYOUTS[names[0]].convert(path, vocabulary)
    except ValueError as error:
        raise ValueError(
            str(error) if str(error).startswith(str(path)) else f"{path}: {error}"
        ) from None
