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
from wenet_uio.models.converted import Converted, layers_in, read_checkpoint
from wenet_uio.models.weights import read_weights

WEIGHTS, TOKENS, PIECES = "pretrained.pt", "tokens.txt", "bpe.model"
PREFIXES = {
    "encoder_embed.": "encoder.embed.",
    "encoder.": "encoder.",
    "ctc_output.1.": "ctc.ctc_lo.",
}
"""{beginning of icefall's names: ours}, the longer first."""
OURS_ALONE = ("decoder.", "encoder.global_cmvn.")
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
    our_names = {name: _renamed(name, PREFIXES) for name in weights}
    our_weights = {
        our_name: weights[name].float() for name, our_name in our_names.items() if our_name
    }
    unused = sorted({name.split(".")[0] for name, our_name in our_names.items() if not our_name})
    tokens = _read_tokens(vocabulary or file.with_name(TOKENS), len(weights["ctc_output.1.weight"]))
    bins = _bins(weights)
    values = _values(_sizes(weights), bins, tokens, file.with_name(PIECES))
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
        _renamed(name, their_prefixes): weight
        for name, weight in weights.items()
        if not name.startswith(OURS_ALONE)
    }
    output.mkdir(parents=True, exist_ok=True)
    with written_aside(output / WEIGHTS) as file:
        torch.save({"model": their_weights}, file)

    units = Path(config.tokenizer_conf.symbol_table_path or folder / "units.txt").read_text(
        encoding="utf-8"
    )
    with written_aside(output / TOKENS, "w") as file:
        file.write(units)

    return sum(weight.numel() for weight in their_weights.values())


def _renamed(name: str, prefixes: Mapping[str, str]) -> str:
    """Return the name with another beginning; empty if no beginning fits.

    Args:
        prefixes: {old beginning: new one}.
    """
    for old, new in prefixes.items():
        if name.startswith(old):
            return new + name[len(old) :]
    return ""


def _sizes(weights: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return the keys of `encoder_conf` that the shapes of the weights tell."""
    names = [
        f"encoder.encoders.{place}." for place in range(layers_in(weights, "encoder.encoders."))
    ]
    try:
        stacks = [_stack(weights, name) for name in names]
        pos_dim = next(
            weight.size(1) for name, weight in weights.items() if name.endswith("linear_pos.weight")
        )
    except (KeyError, StopIteration) as error:
        raise ValueError(f"not the weights of a zipformer: {error} is missing") from None

    return {
        **{name: [stack[name] for stack in stacks] for name in stacks[0]},
        "encoder_unmasked_dim": min(
            stack["encoder_dim"] for stack in stacks
        ),  # training only: weights do not tell it
        "pos_head_dim": POS_HEAD_DIM,
        "pos_dim": pos_dim,
        "causal": any(name.endswith("chunkwise_conv.weight") for name in weights),
    }


def _stack(weights: Mapping[str, torch.Tensor], start: str) -> dict[str, int]:
    """Return sizes of the stack whose names begin with `start`."""
    low = weights.get(f"{start}downsample.bias")
    layers = f"{start}layers." if low is None else f"{start}encoder.layers."
    layer = f"{layers}0."
    heads = weights[f"{layer}self_attn_weights.linear_pos.weight"].size(0) // POS_HEAD_DIM
    kernel = f"{layer}conv_module1.depthwise_conv."
    chunkwise = f"{kernel}chunkwise_conv.weight"
    return {
        "downsampling_factor": 1 if low is None else len(low),
        "num_encoder_layers": layers_in(weights, layers),
        "encoder_dim": weights[f"{layer}norm.bias"].numel(),
        "feedforward_dim": weights[f"{layer}feed_forward2.in_proj.weight"].size(0),
        "num_heads": heads,
        "query_head_dim": (
            weights[f"{layer}self_attn_weights.in_proj.weight"].size(0) // heads - POS_HEAD_DIM
        )
        // 2,
        "value_head_dim": weights[f"{layer}self_attn1.in_proj.weight"].size(0) // heads,
        "cnn_module_kernel": weights[chunkwise if chunkwise in weights else f"{kernel}weight"].size(
            2
        ),
    }


def _bins(weights: Mapping[str, torch.Tensor]) -> int:
    """Return the number of features: the convolutions leave a quarter, rounded; icefall's recipes
    have 80.
    """
    width = (
        weights["encoder_embed.out.weight"].size(1) // weights["encoder_embed.conv.7.bias"].numel()
    )
    return 4 * width + 4


def _values(
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
