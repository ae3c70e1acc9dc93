"""A Zipformer of icefall becomes a folder of a model with the same numbers, and goes back
unchanged.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

from wenet_uio.addons.encoders.zipformer.conf import ZipformerEncoderConf
from wenet_uio.addons.encoders.zipformer.exchange.icefall import LOUDER
from wenet_uio.bin import convert_checkpoint
from wenet_uio.config import load_config
from wenet_uio.models import build_model
from wenet_uio.models.weights import load_weights
from wenet_uio.search.recogniser import load_recogniser
from wenet_uio.train.trained_model import convert_model

UNITS = [
    "<blk>",
    "<sos/eos>",
    "<unk>",
    *(chr(ord("a") + place) for place in range(26)),
    *map(str, range(21)),
]


@pytest.fixture(params=["zipformer", "zipformer_causal"])
def source(request: pytest.FixtureRequest, golden2: Path, tmp_path: Path) -> Path:
    folder = tmp_path / request.param
    folder.mkdir()
    weights = torch.load(golden2 / request.param / "pretrained.pt", weights_only=True)["model"]
    more = {"joiner.output_linear.weight": torch.ones(2)}
    torch.save({"model": weights | more}, folder / "pretrained.pt")
    symbols = "".join(f"{unit} {place}\n" for place, unit in enumerate([*UNITS, "#0"]))
    (folder / "tokens.txt").write_text(symbols)
    return folder


def call(*options: object) -> None:
    convert_checkpoint.main([*map(str, options)])


@torch.no_grad()
def test_the_converted_model_has_the_numbers_of_the_source_and_goes_back(
    source: Path,
    golden2: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    call("--input", source, "--output_dir", tmp_path / "ours")
    assert "without the parts joiner: the model decodes with CTC" in capsys.readouterr().out
    config = load_config(tmp_path / "ours/train.yaml", of_model=True)
    theirs = yaml.safe_load((golden2 / source.name / "config.yaml").read_text())
    assert isinstance(config.encoder_conf, ZipformerEncoderConf)
    assert (config.encoder_conf.pos_dim, config.encoder_conf.causal) == (
        theirs["pos_dim"],
        theirs["causal"],
    )
    for place, stack in enumerate(config.encoder_conf.stacks):
        for name in set(stack._fields) - {"encoder_unmasked_dim"}:
            assert getattr(stack, name) == (theirs[name] * 3)[place], name
    model = build_model(config).eval()
    load_weights(model, tmp_path / "ours/final.pt")
    golden = torch.load(golden2 / source.name / "golden.pt", weights_only=True)
    frames, _ = model.encode(
        golden["feats"][:1] + LOUDER, golden["feats_lengths"][:1], *_chunks(source)
    )
    torch.testing.assert_close(
        model.ctc_log_probs(frames), golden["ctc_log_probs"][:1], atol=1e-4, rtol=1e-4
    )
    assert load_recogniser(tmp_path / "ours").tokenizer.symbols["b"] == 4
    call(
        "--input",
        tmp_path / "ours",
        "--output_dir",
        tmp_path / "back",
        "--to",
        "icefall",
    )
    first, second = (
        torch.load(folder / "pretrained.pt")["model"] for folder in (source, tmp_path / "back")
    )
    del first["joiner.output_linear.weight"]
    assert first.keys() == second.keys()
    assert all(torch.equal(weight, second[name]) for name, weight in first.items())
    assert (tmp_path / "back/tokens.txt").read_text().splitlines() == [
        f"{u} {n}" for n, u in enumerate(UNITS)
    ]


def _chunks(source: Path) -> tuple[int, int]:
    return (16, 4) if source.name.endswith("causal") else (-1, -1)


def test_other_files_are_refused(source: Path, tmp_path: Path) -> None:
    weights = torch.load(source / "pretrained.pt")["model"]
    (source / "tokens.txt").write_text("a 0\n")
    with pytest.raises(ValueError, match="no token has the id 1; the output layer has 50"):
        convert_model(source)
    torch.save(
        {name: weight for name, weight in weights.items() if "ctc" not in name},
        source / "pretrained.pt",
    )
    with pytest.raises(
        ValueError, match="no weights ctc_output: only a zipformer that was trained with CTC"
    ):
        convert_model(source)
    torch.save(
        {name: weight for name, weight in weights.items() if "norm.bias" not in name},
        source / "pretrained.pt",
    )
    (source / "tokens.txt").write_text(
        "".join(f"{unit} {place}\n" for place, unit in enumerate(UNITS))
    )
    with pytest.raises(ValueError, match="not the weights of a zipformer: .*norm.bias' is missing"):
        convert_model(source)
    (source / "tokens.txt").write_text(
        "".join(f"▁{unit} {place}\n" for place, unit in enumerate(UNITS))
    )
    torch.save(weights, source / "pretrained.pt")
    with pytest.raises(
        FileNotFoundError, match=r"bpe.model: no such file, but the tokens are pieces"
    ):
        convert_model(source)
