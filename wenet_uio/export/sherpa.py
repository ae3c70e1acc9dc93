"""What sherpa-onnx needs beside a model: its units, and features as it computes them."""

from __future__ import annotations

from wenet_uio.config.dataset import DatasetConf, FbankConf
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.symbols import WORD_START
from wenet_uio.text.tokenizer import Tokenizer

FBANK = FbankConf(high_freq=-400, snip_edges=False)
"""How sherpa-onnx 2.0 computes features for WeNet's models; bins and sample rate are arguments there."""
BLANKS = ("<blk>", "<eps>", "<blank>")
"""Names that it knows the blank by."""


def tokens_file(tokenizer: Tokenizer, blank: int) -> str:
    """The text of tokens.txt, `symbol id` lines; units that are words begin with the ▁ of a space.

    Raises:
        ValueError: when sherpa-onnx would not find the blank.
    """
    symbols = sorted(tokenizer.symbols.items(), key=lambda item: item[1])
    name = next((symbol for symbol, unit in symbols if unit == blank), None)
    if name not in BLANKS:
        raise ValueError(f"sherpa-onnx finds the blank by a name of {', '.join(BLANKS)}; unit {blank} is {name!r}")
    words = isinstance(tokenizer.splitter, CharSplitter) and tokenizer.splitter.split_with_space
    marks = {symbol: WORD_START if words and unit != blank else "" for symbol, unit in symbols}
    return "".join(f"{marks[symbol]}{symbol} {unit}\n" for symbol, unit in symbols)


def feature_differences(conf: DatasetConf) -> list[str]:
    """`key: ours, theirs` of each setting in which sherpa-onnx would compute other features than the model's."""
    if conf.feats_type != "fbank":
        return [f"feats_type: {conf.feats_type}, fbank in sherpa-onnx"]
    ours, theirs = conf.fbank_conf.model_dump(), FBANK.model_dump()
    return [
        f"fbank_conf.{key}: {ours[key]}, {value} in sherpa-onnx"
        for key, value in theirs.items()
        if key not in ("num_mel_bins", "dither") and ours[key] != value
    ]
