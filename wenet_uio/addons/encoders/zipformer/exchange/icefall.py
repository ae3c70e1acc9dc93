"""A Zipformer of icefall with CTC: `pretrained.pt` and `tokens.txt` -> a folder of a model here,
and back.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from wenet_uio.base.files import written_aside
from wenet_uio.base.run_files import FINAL_WEIGHTS, TRAIN_CONFIG
from wenet_uio.config import load_config
from wenet_uio.config.dataset import FbankConf
from wenet_uio.models.converted import Converted, count_layers, read_checkpoint
from wenet_uio.models.weights import read_weights

WEIGHTS, TOKENS, PIECES = "pretrained.pt", "tokens.txt", "bpe.model"
PREFIXES = {
    "encoder_embed.": "encoder.embed.",
    "encoder.": "encoder.",
    "ctc_output.1.": "ctc.ctc_lo.",
}
"""{beginning of icefall's names: ours}, the longer first."""
OURS_ALONE = ("decoder.", "encoder.global_cmvn.")
"""Beginnings of the names of weights that icefall does not have."""
POS_HEAD_DIM = 4
"""icefall's default; the weights have only its product with the number of heads."""
LOUDER = 2.0 * math.log(32768.0)
"""icefall computes log-mel features from samples of -1 to 1, here they are of 16 bits: this is the
difference."""


def is_icefall(path: Path) -> bool:
    """Tell whether a folder has the files of icefall."""
    return (path / WEIGHTS).is_file()


def from_icefall(path: Path, vocabulary: Path | None) -> Converted:
    """Convert a folder with pretrained.pt and tokens.txt, or such a file; `vocabulary`: another
    tokens.txt.

    Raises:
        OSError: a file cannot be read.
        ValueError: the weights are not those of a Zipformer with CTC.
    """
    file = path / WEIGHTS if path.is_dir() else path
    weights = _read_weights(file)
    our_names = {name: _change_prefix(name, PREFIXES) for name in weights}
    our_weights = {
        our_name: weights[name].float() for name, our_name in our_names.items() if our_name
    }
    unused = sorted({name.split(".")[0] for name, our_name in our_names.items() if not our_name})
    tokens = _read_tokens(vocabulary or file.with_name(TOKENS), len(weights["ctc_output.1.weight"]))
    bins = _count_features(weights)
    values = _train_yaml(_read_encoder_conf(weights), bins, tokens, file.with_name(PIECES))
    cmvn = {"mean_stat": [LOUDER] * bins, "var_stat": [LOUDER**2 + 1.0] * bins, "frame_num": 1}
    files = {"units.txt": "".join(f"{token} {number}\n" for number, token in enumerate(tokens))}
    files["global_cmvn"] = json.dumps(cmvn)
    notes = [f"without the parts {', '.join(unused)}: the model decodes with CTC"] if unused else []

    return Converted(values, our_weights, OURS_ALONE, tuple(notes), files)


def _read_weights(file: Path) -> dict[str, torch.Tensor]:
    """Read the weights of a Zipformer with CTC, by icefall's names."""
    weights = read_checkpoint(file)
    if isinstance(weights, dict) and isinstance(weights.get("model"), dict):
        weights = weights["model"]

    if not isinstance(weights, dict) or not all(
        isinstance(value, torch.Tensor) for value in weights.values()
    ):
        raise ValueError(f"expected a state dict, found {type(weights).__name__}")

    if "ctc_output.1.weight" not in weights:
        raise ValueError(
            "no weights ctc_output: only a zipformer that was trained with CTC can be converted"
        )

    return weights


def to_icefall(folder: Path, output: Path) -> int:
    """Write pretrained.pt and tokens.txt of a model here; returns the number of weights.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: the model has another encoder, or its features are not icefall's.
    """
    # Operators of the user do not run here, so they need no trust.
    config = load_config(folder / TRAIN_CONFIG, of_model=True, trust_code=False)
    if config.encoder != "zipformer":
        raise ValueError(
            f"{folder}: encoder {config.encoder}: icefall has the names of a zipformer only"
        )

    weights = read_weights(folder / FINAL_WEIGHTS)
    mean, istd = (
        weights.get(f"encoder.global_cmvn.{name}", torch.zeros(1)) for name in ("mean", "istd")
    )
    if not torch.allclose(mean, torch.tensor(LOUDER)) or not torch.allclose(
        istd, torch.ones(1), atol=1e-3
    ):
        raise ValueError(
            f"{folder}: icefall normalises no features: only a model that came from there, or was "
            "trained with the global_cmvn of such a model, can go back"
        )

    their_prefixes = {ours: theirs for theirs, ours in PREFIXES.items()}
    their_weights = {
        _change_prefix(name, their_prefixes): weight
        for name, weight in weights.items()
        if not name.startswith(OURS_ALONE)
    }
    output.mkdir(parents=True, exist_ok=True)
    with written_aside(output / WEIGHTS) as file:
        torch.save({"model": their_weights}, file)

    units_file = Path(config.tokenizer_conf.symbol_table_path or folder / "units.txt")
    units = units_file.read_text(encoding="utf-8")
    with written_aside(output / TOKENS, "w") as file:
        file.write(units)

    return sum(weight.numel() for weight in their_weights.values())


def _change_prefix(name: str, prefixes: Mapping[str, str]) -> str:
    """Return the name with another beginning; empty if no beginning fits.

    Args:
        prefixes: {old beginning: new one}.
    """
    for old, new in prefixes.items():
        if name.startswith(old):
            return new + name[len(old) :]
    return ""


def _read_encoder_conf(weights: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return the keys of `encoder_conf` that the shapes of the weights tell."""
    names = [
        f"encoder.encoders.{place}." for place in range(count_layers(weights, "encoder.encoders."))
    ]
    try:
        stacks = [_read_stack(weights, name) for name in names]
        pos_dim = next(
            weight.size(1) for name, weight in weights.items() if name.endswith("linear_pos.weight")
        )
    except (KeyError, StopIteration) as error:
        raise ValueError(f"not the weights of a zipformer: {error} is missing") from None

    return {
        **{name: [stack[name] for stack in stacks] for name in stacks[0]},
        # of training alone: the weights do not tell it
        "encoder_unmasked_dim": min(stack["encoder_dim"] for stack in stacks),
        "pos_head_dim": POS_HEAD_DIM,
        "pos_dim": pos_dim,
        "causal": any(name.endswith("chunkwise_conv.weight") for name in weights),
    }


def _read_stack(weights: Mapping[str, torch.Tensor], start: str) -> dict[str, int]:
    """Return sizes of the stack whose names begin with `start`, which the shapes of the weights of
    its first layer tell.
    """
    # A stack at a lower rate has its layers in `encoder`, and a weight for each frame that it joins.
    joined_frames = weights.get(f"{start}downsample.bias")
    layers = f"{start}layers." if joined_frames is None else f"{start}encoder.layers."
    layer = f"{layers}0."
    heads = weights[f"{layer}self_attn_weights.linear_pos.weight"].size(0) // POS_HEAD_DIM
    # Each head has a query, a key and a query of positions.
    width_of_head = weights[f"{layer}self_attn_weights.in_proj.weight"].size(0) // heads

    kernel = f"{layer}conv_module1.depthwise_conv.chunkwise_conv.weight"
    if kernel not in weights:  # a model that is not causal
        kernel = f"{layer}conv_module1.depthwise_conv.weight"

    return {
        "downsampling_factor": 1 if joined_frames is None else len(joined_frames),
        "num_encoder_layers": count_layers(weights, layers),
        "encoder_dim": weights[f"{layer}norm.bias"].numel(),
        "feedforward_dim": weights[f"{layer}feed_forward2.in_proj.weight"].size(0),
        "num_heads": heads,
        "query_head_dim": (width_of_head - POS_HEAD_DIM) // 2,
        "value_head_dim": weights[f"{layer}self_attn1.in_proj.weight"].size(0) // heads,
        "cnn_module_kernel": weights[kernel].size(2),
    }


def _count_features(weights: Mapping[str, torch.Tensor]) -> int:
    """Return the number of features: the multiple of 4 of which the convolutions leave as many bins
    as the layer after them takes, such as 80, of which they leave 19.
    """
    channels = weights["encoder_embed.conv.7.bias"].numel()
    bins = weights["encoder_embed.out.weight"].size(1) // channels
    return 4 * bins + 4


def _train_yaml(
    encoder_conf: dict[str, Any], bins: int, tokens: list[str], pieces: Path
) -> dict[str, Any]:
    """Return the content of our train.yaml."""
    tokenizer: dict[str, Any] = {"symbol_table_path": "units.txt"}
    # 0 is the blank and stands for the missing token: CTC needs no sos or eos.
    ends = tokens.index("<sos/eos>") if "<sos/eos>" in tokens else 0
    tokenizer["special_tokens"] = {"<sos>": ends, "<eos>": ends}

    if pieces.is_file():
        tokenizer["bpe_path"] = str(pieces)
    elif any(re.match("▁.", token) for token in tokens):
        raise FileNotFoundError(f"{pieces}: no such file, but the tokens are pieces of it")

    # icefall's features: their band ends 400 Hz below half of the sample rate.
    fbank = FbankConf(num_mel_bins=bins, high_freq=-400, snip_edges=False, dither=0.0)
    return {
        "input_dim": bins,
        "output_dim": len(tokens),
        "model": "asr_model",
        "encoder": "zipformer",
        "encoder_conf": encoder_conf,
        # asr_model needs a decoder. Its weights are new (OURS_ALONE) and not used: with the
        # ctc_weight 1 the model decodes with CTC.
        "decoder": "transformer",
        "decoder_conf": {"attention_heads": 4, "linear_units": 256, "num_blocks": 1},
        "model_conf": {"ctc_weight": 1.0},
        "cmvn": "global_cmvn",
        "cmvn_conf": {"cmvn_file": "global_cmvn", "is_json_cmvn": True},
        "tokenizer": "bpe" if pieces.is_file() else "char",
        "tokenizer_conf": tokenizer,
        "dataset_conf": {
            "resample_conf": {"resample_rate": 16000},
            "fbank_conf": fbank.model_dump(),
        },
    }


def _read_tokens(file: Path, size: int) -> list[str]:
    """Return the tokens in the order of their ids, without those that the output layer does not
    have.
    """
    lines = [line.split() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    ids = {line[-1]: line[0] for line in lines}
    missing = [str(place) for place in range(size) if str(place) not in ids]
    if missing:
        raise ValueError(f"{file}: no token has the id {missing[0]}; the output layer has {size}")

    return [ids[str(place)] for place in range(size)]
