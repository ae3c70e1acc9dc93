"""A model of WeNet in the layout of FunASR."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import yaml

NAMES = {
    "predictor.predictor.cif_": "predictor.cif_",
    "predictor.tp_output": "predictor.cif_output2",
    "predictor.tp_": "predictor.",
    "embed.": "decoder.embed.0.",
}
"""{beginning of a name in WeNet: in FunASR}."""
CONFIG: dict[str, Any] = {
    "model": "BiCifParaformer",
    "model_conf": {
        "ctc_weight": 0.0,
        "lsm_weight": 0.1,
        "length_normalized_loss": True,
        "predictor_weight": 1.0,
        "predictor_bias": 1,
        "sampling_ratio": 0.75,
    },
    "encoder": "SANMEncoder",
    "encoder_conf": {
        "output_size": 32,
        "attention_heads": 4,
        "linear_units": 64,
        "num_blocks": 3,
        "input_layer": "pe",
        "pos_enc_class": "SinusoidalPositionEncoder",
        "normalize_before": True,
        "kernel_size": 11,
        "sanm_shfit": 0,
        "selfattention_layer_type": "sanm",
    },
    "decoder": "ParaformerSANMDecoder",
    "decoder_conf": {
        "attention_heads": 4,
        "linear_units": 64,
        "num_blocks": 2,
        "att_layer_num": 2,
        "kernel_size": 11,
        "sanm_shfit": 0,
    },
    "predictor": "CifPredictorV3",
    "predictor_conf": {
        "idim": 32,
        "threshold": 1.0,
        "l_order": 1,
        "r_order": 1,
        "tail_threshold": 0.45,
        "smooth_factor2": 0.25,
        "noise_threshold2": 0.01,
        "upsample_times": 3,
        "use_cif1_cnn": False,
        "upsample_type": "cnn_blstm",
    },
    "frontend": "WavFrontend",
    "frontend_conf": {"fs": 16000, "window": "hamming", "n_mels": 8, "lfr_m": 7, "lfr_n": 6},
    "tokenizer": "CharTokenizer",
}


def write_funasr(source: Path, folder: Path, **changes: Any) -> Path:
    """Write the paraformer of WeNet in `source` as FunASR would; `changes` replace sections of
    config.yaml.
    """
    folder.mkdir()
    weights = torch.load(source / "final.pt", weights_only=True)
    torch.save(
        {
            _name(name): value
            for name, value in weights.items()
            if not name.startswith(("ctc.", "encoder.global_cmvn")) and not name.endswith(".pe")
        },
        folder / "model.pt",
    )
    (folder / "config.yaml").write_text(yaml.safe_dump({**CONFIG, **changes}))
    tokens = [
        line.split()[0] for line in (source / "units.txt").read_text(encoding="utf-8").splitlines()
    ]
    theirs = [{"<sos>": "<s>", "<eos>": "</s>"}.get(token, token) for token in tokens]
    (folder / "tokens.json").write_text(json.dumps(theirs), encoding="utf-8")
    (folder / "seg_dict").write_text(
        (source / "seg_dict").read_text(encoding="utf-8"), encoding="utf-8"
    )
    write_mvn(
        weights["encoder.global_cmvn.mean"], weights["encoder.global_cmvn.istd"], folder / "am.mvn"
    )
    return folder


def write_mvn(mean: torch.Tensor, istd: torch.Tensor, path: Path) -> None:
    """Write statistics as Kaldi's network."""
    size, shift, scale = (
        len(mean),
        *(" ".join(f"{value:.9g}" for value in each.double().tolist()) for each in (-mean, istd)),
    )
    path.write_text(
        f"<Nnet> \n<Splice> {size} {size} \n[ 0 ]\n<AddShift> {size} {size} \n<LearnRateCoef> 0 [ "
        f"{shift} ]\n"
        f"<Rescale> {size} {size} \n<LearnRateCoef> 0 [ {scale} ]\n</Nnet> \n"
    )


def _name(name: str) -> str:
    for ours, theirs in NAMES.items():
        if name.startswith(ours):
            return theirs + name.removeprefix(ours)
    return name
