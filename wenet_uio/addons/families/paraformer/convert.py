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
    PREDICTOR_CONFS,
    ParaformerConf,
    SanmDecoderConf,
)
from wenet_uio.config.base import Section
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
EMBEDDING = {"decoder.embed.0": "embed"}
CTC = {"ctc.ctc_lo": "ctc.ctc_lo"}
STACKS = ("encoder.encoders0.", "encoder.encoders.", "decoder.decoders.", "decoder.decoders3.")
"""Prefixes of weights of numbered layers."""


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
    train_yaml = _make_train_yaml(theirs, predictor, tokens)
    model_conf = train_yaml["model_conf"]

    # {name of a module in FunASR: ours}; the embedding and CTC are there in some models only.
    our_names = {name: name for name in SAME} | OTHERS[predictor]
    model_conf["sampler"] = "decoder.embed.0.weight" in weights
    if model_conf["sampler"]:
        our_names |= EMBEDDING

    untrained_prefixes, notes = ["encoder.global_cmvn."], []
    if "ctc.ctc_lo.weight" in weights:
        our_names |= CTC
    else:
        model_conf["ctc_weight"] = 0.0
        untrained_prefixes.append("ctc.")
        notes.append("the model has no CTC, so it decodes in the modes of a paraformer only")

    files = _make_files(path, tokens)
    layers = {stack: count_layers(weights, stack) for stack in STACKS}
    our_weights = rename_weights(weights, our_names, layers, ())
    return Converted(train_yaml, our_weights, tuple(untrained_prefixes), tuple(notes), files)


def _make_files(path: Path, tokens: Sequence[str]) -> dict[str, str]:
    """Return {name: content} of the files beside our train.yaml: units, CMVN and dictionary."""
    seg_dict = path / "seg_dict"
    return {
        "units.txt": "".join(f"{token} {number}\n" for number, token in enumerate(tokens)),
        "global_cmvn": json.dumps(_read_cmvn_statistics(path / "am.mvn")),
        "seg_dict": seg_dict.read_text(encoding="utf-8") if seg_dict.is_file() else "",
    }


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

    predictor = PREDICTORS[theirs["predictor"]]
    conf = _read_section(theirs, "predictor_conf")
    has_own_convolution = not conf.get("use_cif1_cnn", True)
    has_known_branch = conf.get("upsample_type") == "cnn_blstm" and has_own_convolution
    if predictor == "paraformer_predictor" and not has_known_branch:
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

    return predictor


def _make_train_yaml(
    theirs: Mapping[str, Any], predictor: str, tokens: Sequence[str]
) -> dict[str, Any]:
    """Return the content of our train.yaml for the config.yaml of FunASR.

    Args:
        theirs: config.yaml.
        predictor: our name of the predictor.
        tokens: in the order of their ids.
    """
    model_conf = _read_section(theirs, "model_conf")
    our_model_conf = _keep_known_keys(model_conf, ParaformerConf)
    our_model_conf["add_eos"] = bool(model_conf.get("predictor_bias", 0))

    encoder_conf = _keep_known_keys(_read_section(theirs, "encoder_conf"), SanmEncoderConf)
    encoder_conf.pop("input_layer", None)  # theirs has another meaning
    decoder_conf = _keep_known_keys(_read_section(theirs, "decoder_conf"), SanmDecoderConf)

    # A missing tail_threshold is 0 in FunASR. The convolution has one group and no residual.
    predictor_conf = {"tail_threshold": 0.0} | _read_section(theirs, "predictor_conf")
    predictor_conf |= {"cnn_groups": 1, "residual": False}

    frontend = _read_section(theirs, "frontend_conf")
    num_mel_bins = frontend.get("n_mels", 80)
    special_names = ("<blank>", "<sos>", "<eos>", "<unk>")
    return {
        "input_dim": STACKED * num_mel_bins,
        "output_dim": len(tokens),
        "model": "paraformer",
        "model_conf": our_model_conf,
        "encoder": "sanm_encoder",
        "encoder_conf": encoder_conf,
        "decoder": "sanm_decoder",
        "decoder_conf": decoder_conf,
        "predictor": predictor,
        "predictor_conf": _keep_known_keys(predictor_conf, PREDICTOR_CONFS[predictor]),
        "cmvn": "global_cmvn",
        "cmvn_conf": {"cmvn_file": "global_cmvn", "is_json_cmvn": True},
        "tokenizer": "paraformer",
        "tokenizer_conf": {
            "symbol_table_path": "units.txt",
            "seg_dict_path": "seg_dict",
            "special_tokens": {name: _find_token(tokens, name) for name in special_names},
        },
        "dataset_conf": {
            "resample_conf": {"resample_rate": frontend.get("fs", 16000)},
            "fbank_conf": {
                "num_mel_bins": num_mel_bins,
                "window_type": frontend.get("window", "hamming"),
                "frame_length": frontend.get("frame_length", 25),
                "frame_shift": frontend.get("frame_shift", 10),
                "dither": 0.1,
            },
        },
    }


def _read_section(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a section of config.yaml, empty if it is missing; a ValueError if it has no keys."""
    section = values.get(key) or {}
    if not isinstance(section, dict):
        raise ValueError(f"config.yaml: {key}: expected keys with values, found {section!r}")
    return section


def _keep_known_keys(section: Mapping[str, Any], our_section: type[Section]) -> dict[str, Any]:
    """Return the keys of a section that ours has too; the others belong to FunASR's code."""
    return {name: value for name, value in section.items() if name in our_section.model_fields}


def _find_token(tokens: Sequence[str], name: str) -> int:
    """Return the id of a token; raise a ValueError if there is no such token."""
    if name not in tokens:
        raise ValueError(f"the tokens have no {name}")
    return tokens.index(name)


def _read_weights(path: Path) -> dict[str, torch.Tensor]:
    """Read the weights of a folder, by FunASR's names.

    Raises:
        OSError: there is no such file, or it cannot be read.
        ValueError: the file is not a state dict.
    """
    files = [path / name for name in WEIGHTS]
    file = next((file for file in files if file.is_file()), files[0])
    weights = read_checkpoint(file)
    if isinstance(weights, dict) and isinstance(weights.get("state_dict"), dict):
        weights = weights["state_dict"]  # beside the state of the optimizer

    is_state_dict = isinstance(weights, dict) and all(
        isinstance(value, torch.Tensor) for value in weights.values()
    )
    if not is_state_dict:
        raise ValueError(f"{file}: expected a state dict, found {type(weights).__name__}")

    return weights


def _read_tokens(path: Path, theirs: Mapping[str, Any], vocabulary: Path | None) -> list[str]:
    """Return the tokens in the order of their ids, with our names of those that start and end an
    utterance.
    """
    candidates = [vocabulary] if vocabulary else [path / "tokens.json", path / "tokens.txt"]
    file = next((candidate for candidate in candidates if candidate.is_file()), None)
    tokens = theirs.get("token_list") if file is None else _read_token_file(file)
    if tokens is None:
        raise FileNotFoundError(
            f"{path}: no tokens; expected tokens.json, tokens.txt, or token_list in config.yaml"
        )

    is_token_list = isinstance(tokens, list) and all(
        isinstance(token, str) and token for token in tokens
    )
    if not is_token_list:
        raise ValueError(f"{file or 'token_list'}: expected a list of tokens")

    return [TOKENS.get(token) or token for token in tokens]


def _read_token_file(file: Path) -> Any:
    """Return the content of tokens.json, or the first word of each line of tokens.txt."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        return json.loads(text)
    return [line.split()[0] for line in text.splitlines() if line.strip()]


def _read_cmvn_statistics(path: Path) -> dict[str, Any]:
    """Return the content of a CMVN file: sums of one frame that has the mean and variance of
    am.mvn, a network of Kaldi with AddShift and Rescale.

    Raises:
        OSError: the file cannot be read.
        ValueError: it has another form.
    """
    text = path.read_text(encoding="utf-8")
    shift = _parse_kaldi_vector(text, "AddShift")
    scale = _parse_kaldi_vector(text, "Rescale")
    if shift is None or scale is None:
        raise ValueError(f"{path}: expected <AddShift> and <Rescale> with numbers in [ ]")
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


def _parse_kaldi_vector(text: str, component: str) -> torch.Tensor | None:
    """Return the numbers in [ ] that follow `<component>` in a network of Kaldi, as float64; None
    if it has no such component.
    """
    match = re.search(rf"<{component}>[^\[]*\[([^\]]*)\]", text)
    if match is None:
        return None
    return torch.tensor([float(word) for word in match[1].split()], dtype=torch.float64)
