"""Paraformer in the layout of FunASR: a folder with config.yaml, model.pt, am.mvn, tokens.json and
seg_dict.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from wenet_uio.addons.encoders.sanm.conf import SanmEncoderConf
from wenet_uio.addons.encoders.sanm.encoder import SHIFT, STACKED
from wenet_uio.addons.families.paraformer.conf import (
    CifPredictorConf,
    ParaformerConf,
    ParaformerPredictorConf,
    SanmDecoderConf,
)
from wenet_uio.config.yaml_file import read_yaml
from wenet_uio.models.converted import Converted, count_layers, read_checkpoint, rename_weights

WEIGHTS = ("model.pt", "model.pb")
MODELS = ("Paraformer", "BiCifParaformer", "paraformer", "bicif_paraformer")
ENCODERS = ("SANMEncoder", "sanm")
DECODERS = ("ParaformerSANMDecoder", "paraformer_decoder_sanm")
PREDICTORS = {
    "CifPredictorV2": "cif_predictor",
    "cif_predictor_v2": "cif_predictor",
    "CifPredictorV3": "paraformer_predictor",
    "cif_predictor_v3": "paraformer_predictor",
}
"""{name in FunASR: ours}."""
TOKENS = {"<s>": "<sos>", "</s>": "<eos>"}
"""{name of a token in FunASR: ours}."""

_ENCODER_LAYER = (
    *(f"self_attn.{name}" for name in ("linear_q_k_v", "linear_out", "fsmn_block")),
    *("feed_forward.w_1", "feed_forward.w_2", "norm1", "norm2"),
)
_LAST_LAYER = ("feed_forward.w_1", "feed_forward.w_2", "feed_forward.norm", "norm1")
_DECODER_LAYER = (
    *_LAST_LAYER,
    *(f"src_attn.{name}" for name in ("linear_q", "linear_k_v", "linear_out")),
    *("self_attn.fsmn_block", "norm2", "norm3"),
)
SAME = (
    *(
        f"{stack}.{{}}.{name}"
        for stack in ("encoder.encoders0", "encoder.encoders")
        for name in _ENCODER_LAYER
    ),
    *(f"decoder.decoders.{{}}.{name}" for name in _DECODER_LAYER),
    *(f"decoder.decoders3.{{}}.{name}" for name in _LAST_LAYER),
    *("encoder.after_norm", "decoder.after_norm", "decoder.output_layer"),
)
"""Modules whose names are ours too."""
OTHERS = {
    "cif_predictor": {
        "predictor.cif_conv1d": "predictor.cif_conv1d",
        "predictor.cif_output": "predictor.cif_output",
    },
    "paraformer_predictor": {
        "predictor.cif_conv1d": "predictor.predictor.cif_conv1d",
        "predictor.cif_output": "predictor.predictor.cif_output",
        "predictor.cif_output2": "predictor.tp_output",
        "predictor.upsample_cnn": "predictor.tp_upsample_cnn",
        "predictor.blstm": "predictor.tp_blstm",
    },
}
"""{predictor: {module in FunASR: ours}}."""
EMBEDDING, CTC = {"decoder.embed.0": "embed"}, {"ctc.ctc_lo": "ctc.ctc_lo"}


def is_funasr(path: Path) -> bool:
    """Tell whether a folder has config.yaml and weights of FunASR; looks at names only."""
    return (path / "config.yaml").is_file() and any((path / name).is_file() for name in WEIGHTS)


def from_funasr(path: Path, vocabulary: Path | None) -> Converted:
    """Convert a Paraformer in the layout of FunASR.

    Args:
        path: the folder.
        vocabulary: file of the tokens; None: tokens.json or tokens.txt in the folder, or those of
            config.yaml.

    Raises:
        OSError: a file is missing or cannot be read.
        ValueError: the model is of another kind, or has parts that do not exist here.
    """
    theirs = read_yaml(path / "config.yaml")
    if not isinstance(theirs, dict):
        raise ValueError(
            f"{path / 'config.yaml'}: expected keys with values, found {type(theirs).__name__}"
        )

    predictor = _check_parts(theirs)
    weights = _read_weights(path)
    tokens = _read_tokens(path, theirs, vocabulary)
    values = _train_yaml(theirs, predictor, tokens)
    table = {name: name for name in SAME} | OTHERS[predictor]
    values["model_conf"]["sampler"] = "decoder.embed.0.weight" in weights
    if values["model_conf"]["sampler"]:
        table |= EMBEDDING

    untrained_prefixes, notes = ["encoder.global_cmvn."], []
    if "ctc.ctc_lo.weight" in weights:
        table |= CTC
    else:
        values["model_conf"]["ctc_weight"] = 0.0
        untrained_prefixes.append("ctc.")
        notes.append("the model has no CTC, so it decodes in the modes of a paraformer only")

    stacks = ("encoder.encoders0.", "encoder.encoders.", "decoder.decoders.", "decoder.decoders3.")
    layers = {stack: count_layers(weights, stack) for stack in stacks}
    files = {"units.txt": "".join(f"{token} {place}\n" for place, token in enumerate(tokens))}
    files["global_cmvn"] = json.dumps(_cmvn_statistics(path / "am.mvn"))
    seg_dict = path / "seg_dict"
    files["seg_dict"] = seg_dict.read_text(encoding="utf-8") if seg_dict.is_file() else ""

    our_weights = rename_weights(weights, table, layers, ())
    return Converted(values, our_weights, tuple(untrained_prefixes), tuple(notes), files)


def _check_parts(theirs: Mapping[str, Any]) -> str:
    """Return our name of the predictor; refuse a model with parts that do not exist here."""
    for key, known in (
        ("model", MODELS),
        ("encoder", ENCODERS),
        ("decoder", DECODERS),
        ("predictor", PREDICTORS),
    ):
        if theirs.get(key) not in tuple(known):
            raise ValueError(
                f"config.yaml: {key} {theirs.get(key)}: only {' or '.join(known)} can be converted"
            )

    conf = _read_section(theirs, "predictor_conf")
    kind = PREDICTORS[theirs["predictor"]]
    if kind == "paraformer_predictor" and (
        conf.get("upsample_type") != "cnn_blstm" or conf.get("use_cif1_cnn", True)
    ):
        raise ValueError(
            "config.yaml: predictor_conf: only upsample_type cnn_blstm with use_cif1_cnn false is "
            "known"
        )

    frontend = _read_section(theirs, "frontend_conf")
    stacking = (frontend.get("lfr_m", 1), frontend.get("lfr_n", 1))
    if stacking != (STACKED, SHIFT):
        raise ValueError(
            f"config.yaml: frontend_conf: lfr_m, lfr_n {stacking}: only {(STACKED, SHIFT)} can be "
            "converted"
        )

    return kind


def _train_yaml(theirs: Mapping[str, Any], predictor: str, tokens: Sequence[str]) -> dict[str, Any]:
    """Return the content of our train.yaml."""
    frontend, model_conf = (
        _read_section(theirs, "frontend_conf"),
        _read_section(theirs, "model_conf"),
    )
    predictor_class = CifPredictorConf if predictor == "cif_predictor" else ParaformerPredictorConf
    # The convolution of FunASR's predictor has one group and no residual; a missing tail_threshold
    # is 0.
    predictor_conf = {
        "tail_threshold": 0.0,
        **_read_section(theirs, "predictor_conf"),
        "cnn_groups": 1,
        "residual": False,
    }
    fbank_conf = {
        "num_mel_bins": frontend.get("n_mels", 80),
        "window_type": frontend.get("window", "hamming"),
        "frame_length": frontend.get("frame_length", 25),
        "frame_shift": frontend.get("frame_shift", 10),
    }
    return {
        "input_dim": STACKED * fbank_conf["num_mel_bins"],
        "output_dim": len(tokens),
        "model": "paraformer",
        "model_conf": {
            **_known_keys(model_conf, ParaformerConf),
            "add_eos": bool(model_conf.get("predictor_bias", 0)),
        },
        "encoder": "sanm_encoder",
        "encoder_conf": _known_keys(
            _read_section(theirs, "encoder_conf"), SanmEncoderConf, ("input_layer",)
        ),
        "decoder": "sanm_decoder",
        "decoder_conf": _known_keys(_read_section(theirs, "decoder_conf"), SanmDecoderConf),
        "predictor": predictor,
        "predictor_conf": _known_keys(predictor_conf, predictor_class),
        "cmvn": "global_cmvn",
        "cmvn_conf": {"cmvn_file": "global_cmvn", "is_json_cmvn": True},
        "tokenizer": "paraformer",
        "tokenizer_conf": {
            "symbol_table_path": "units.txt",
            "seg_dict_path": "seg_dict",
            "special_tokens": {
                name: _token_id(tokens, name) for name in ("<blank>", "<sos>", "<eos>", "<unk>")
            },
        },
        "dataset_conf": {
            "resample_conf": {"resample_rate": frontend.get("fs", 16000)},
            "fbank_conf": {**fbank_conf, "dither": 0.1},
        },
    }


def _read_section(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a section of config.yaml, empty if it is missing; raise a ValueError if it is none."""
    section = values.get(key) or {}
    if not isinstance(section, dict):
        raise ValueError(f"config.yaml: {key}: expected keys with values, found {section!r}")
    return section


def _known_keys(
    section: Mapping[str, Any], conf: Any, without: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the keys of a section that our section has too; the others belong to FunASR's code."""
    return {
        name: value
        for name, value in section.items()
        if name in conf.model_fields and name not in without
    }


def _token_id(tokens: Sequence[str], name: str) -> int:
    """Return the id of a token; raise a ValueError if there is none."""
    if name not in tokens:
        raise ValueError(f"the tokens have no {name}")
    return tokens.index(name)


def _read_weights(path: Path) -> dict[str, torch.Tensor]:
    """Read the weights of a folder, by FunASR's names.

    Raises:
        OSError: there is no such file, or it cannot be read.
        ValueError: the file is not a state dict.
    """
    file = next((path / name for name in WEIGHTS if (path / name).is_file()), path / WEIGHTS[0])
    weights = read_checkpoint(file)
    if isinstance(weights, dict) and isinstance(weights.get("state_dict"), dict):  # of a training
        weights = weights["state_dict"]

    if not isinstance(weights, dict) or not all(
        isinstance(value, torch.Tensor) for value in weights.values()
    ):
        raise ValueError(f"{file}: expected a state dict, found {type(weights).__name__}")

    return weights


def _read_tokens(path: Path, theirs: Mapping[str, Any], vocabulary: Path | None) -> list[str]:
    """Return the tokens in the order of their ids, with our names of those that start and end an
    utterance.
    """
    names = [vocabulary] if vocabulary else [path / "tokens.json", path / "tokens.txt"]
    file = next((candidate for candidate in names if candidate.is_file()), None)
    tokens: Any = _listed_tokens(file) if file else theirs.get("token_list")
    if tokens is None:
        raise FileNotFoundError(
            f"{path}: no tokens; expected tokens.json, tokens.txt, or token_list in config.yaml"
        )

    if not isinstance(tokens, list) or not all(
        isinstance(token, str) and token for token in tokens
    ):
        raise ValueError(f"{file or 'token_list'}: expected a list of tokens")

    return [TOKENS.get(token) or token for token in tokens]


def _listed_tokens(file: Path) -> Any:
    """Return the content of tokens.json, or the first word of each line of tokens.txt."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        return json.loads(text)
    return [line.split()[0] for line in text.splitlines() if line.strip()]


def _cmvn_statistics(path: Path) -> dict[str, Any]:
    """Return the content of a CMVN file: sums of one frame that has the mean and variance of
    am.mvn, a network of Kaldi with AddShift and Rescale.

    Raises:
        OSError: the file cannot be read.
        ValueError: it has another form.
    """
    matches = [
        re.search(rf"<{part}>[^\[]*\[([^\]]*)\]", path.read_text(encoding="utf-8"))
        for part in ("AddShift", "Rescale")
    ]
    if not all(matches):
        raise ValueError(f"{path}: expected <AddShift> and <Rescale> with numbers in [ ]")

    shift, scale = (
        torch.tensor([float(word) for word in match[1].split()], dtype=torch.float64)
        for match in matches
        if match
    )
    if len(shift) != len(scale):
        raise ValueError(
            f"{path}: {len(shift)} numbers of <AddShift>, but {len(scale)} of <Rescale>"
        )

    # AddShift is -mean and Rescale 1 / deviation; the mean of the squares is variance + mean ** 2.
    return {
        "mean_stat": (-shift).tolist(),
        "var_stat": (scale**-2 + shift**2).tolist(),
        "frame_num": 1,
    }
