"""Requirements of sherpa-onnx in addition to the model: the file tokens.txt, and features with its
settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch

from wenet_uio.addons.runtimes.onnx_graphs import Graph
from wenet_uio.config.dataset import DatasetConf, FbankConf
from wenet_uio.export.check import Agreement
from wenet_uio.export.chunks import Chunks
from wenet_uio.models.asr_model import ASRModel
from wenet_uio.text.aggregate import AggregateTokenizer
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer
from wenet_uio.text.symbols import WORD_START

FBANK = FbankConf(high_freq=-400, snip_edges=False)
"""Feature settings of sherpa-onnx 2.0 for WeNet's models; number of bins and sample rate are
arguments of its API."""
BLANKS = ("<blk>", "<eps>", "<blank>")
"""Names that sherpa-onnx accepts for the blank."""


@dataclass(frozen=True)
class SherpaOnly:
    """A model that sherpa-onnx alone runs, and only offline."""

    graphs: dict[str, Graph]
    tokens: str
    """Text of tokens.txt."""
    feature_differences: list[str]
    compare: Callable[[Mapping[str, bytes]], Agreement]
    no_wenet: str
    """Why there are no files for WeNet's runtime."""
    no_chunks: str
    """Why there is no streaming model."""


@dataclass(frozen=True)
class CtcExport:
    """How a model with a special encoder becomes graphs of CTC that sherpa-onnx alone runs."""

    graph: Callable[[ASRModel, int, Chunks], Graph]
    """`graph(model, feature_dim, chunks)`, offline or streaming."""
    check_chunks: Callable[[ASRModel, Chunks], None]
    """Raises a ValueError for chunks in which sherpa-onnx cannot stream the model."""
    compare: Callable[[bytes, ASRModel, Iterable[tuple[str, torch.Tensor]], int, Chunks], Agreement]
    """`compare(content, model, examples, limit, chunks)` runs the first examples in both."""
    limit: str
    """What such a model can be exported for, in words."""


def tokens_file(tokenizer: Tokenizer, blank: int) -> str:
    """Return the text of tokens.txt: `symbol id` lines. If units are words, each symbol starts with
    ▁, the sign of a space.

    Raises:
        ValueError: the name of the blank is not one that sherpa-onnx accepts, or the tokenizer is
            an aggregate.
    """
    if isinstance(tokenizer, AggregateTokenizer):
        raise ValueError(
            "tokens.txt of sherpa-onnx cannot hold the units of an aggregate tokenizer"
        )

    units = tokenizer.symbols
    if blank in tokenizer.added.values():
        units = units | tokenizer.added
    symbols = sorted(units.items(), key=lambda item: item[1])
    name = next((symbol for symbol, unit in symbols if unit == blank), None)
    if name not in BLANKS:
        raise ValueError(
            f"sherpa-onnx needs a blank named {', '.join(BLANKS)}; unit {blank} is {name!r}"
        )

    splitter = tokenizer.splitter
    units_are_words = isinstance(splitter, CharSplitter) and splitter.split_with_space
    lines = []
    for symbol, unit in symbols:
        mark = WORD_START if units_are_words and unit != blank else ""
        lines.append(f"{mark}{symbol} {unit}\n")

    return "".join(lines)


def feature_differences(conf: DatasetConf, expected: FbankConf = FBANK) -> list[str]:
    """Return the feature settings of the model that differ from sherpa-onnx, as `key: value, value
    in sherpa-onnx`.
    """
    if conf.feats_type != "fbank":
        return [f"feats_type: {conf.feats_type}, fbank in sherpa-onnx"]

    ours, theirs = conf.fbank_conf.model_dump(), expected.model_dump()
    return [
        f"fbank_conf.{key}: {ours[key]}, {value} in sherpa-onnx"
        for key, value in theirs.items()
        if key not in ("num_mel_bins", "dither") and ours[key] != value
    ]
