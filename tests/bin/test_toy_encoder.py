"""An encoder is a folder and one line; one of another package needs no line.

The toy encoder here has its own section, layer and traits, in exactly the places that
CONTRIBUTING.md names. It trains, decodes, streams and is exported.
"""

import io
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
import yaml

from tests.support.models.recogniser import CONFIG, KEYS
from wenet_uio.config import ConfigError, load_config, parse_config, save_config
from wenet_uio.config import encoder_kind as table
from wenet_uio.export.torchscript import to_torchscript
from wenet_uio.models import build_model
from wenet_uio.search import DecodeOptions, decode

RECORD = """
from wenet_uio.config.encoder import EncoderConf
from wenet_uio.config.encoder_kind import EncoderKind
from wenet_uio.config.named_code import Loaded


class ToyConf(EncoderConf):
    scale: float = 1.0


TOY = EncoderKind(ToyConf, Loaded("toy_encoder.model:ToyEncoder"))
"""
MODEL = """
from pathlib import Path

import torch
from torch import nn

from wenet_uio.models.encoder_traits import traits_of
from wenet_uio.models.subsampling import input_layer
from wenet_uio.models.layered_encoder import LayeredEncoder

Path("ran").touch()


class ToyLayer(nn.Module):
    def __init__(self, conf):
        super().__init__()
        self.linear = nn.Linear(conf.output_size, conf.output_size)
        self.scale = conf.scale

    def forward(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        pos_emb: torch.Tensor,
        padded: torch.Tensor | None,
        att_past: torch.Tensor | None = None,
        cnn_past: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        return x + self.scale * self.linear(x), att_past, cnn_past


class ToyEncoder(LayeredEncoder):
    def __init__(self, input_size, conf, global_cmvn=None):
        layers = [ToyLayer(conf) for _ in range(conf.num_blocks)]
        embed = input_layer(input_size, conf)
        super().__init__(embed, conf, traits_of(conf), layers, global_cmvn)
"""
ENCODER_CONF = {
    "output_size": 16,
    "attention_heads": 2,
    "num_blocks": 2,
    "scale": 0.5,
    "use_dynamic_chunk": True,
}
DECODING = ("--modes", "ctc_greedy_search", "--test_data", "raw.list")
FILES = ("--config", "train.yaml", "--checkpoint", "model.pt", "--result_dir", "out")


@pytest.fixture
def toy(folder, monkeypatch):
    """A folder with data of a recogniser, and the package toy_encoder on the path."""
    package = folder / "path" / "toy_encoder"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(RECORD)
    (package / "model.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(package.parent))
    for name in ("toy_encoder", "toy_encoder.model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield folder
    for name in ("toy_encoder", "toy_encoder.model"):
        sys.modules.pop(name, None)


@pytest.fixture(params=["toy_encoder:TOY", "toy"])
def name(request, toy, monkeypatch):
    """The name in the yaml: of another package, or by one line in the table of encoders."""
    monkeypatch.setitem(table.ENCODERS, "toy", "toy_encoder:TOY")
    return request.param


def toy_config(name):
    values = {**CONFIG, "encoder": name, "encoder_conf": ENCODER_CONF, "output_dim": 12}
    return parse_config(values, "train.yaml")


def test_a_toy_encoder_is_configured_built_trained_and_decodes(name, tmp_path):
    config = toy_config(name)
    assert not Path("ran").exists()  # the config does not load the networks
    model = build_model(config)
    assert model.encoder.encoders[0].scale == 0.5

    feats, lengths = torch.randn(2, 90, 20), torch.tensor([90, 60])
    losses = model(feats, lengths, torch.tensor([[4, 5], [6, 7]]), torch.tensor([2, 2]))
    losses["loss"].backward()
    assert all(weight.grad is not None for weight in model.encoder.encoders.parameters())

    with torch.no_grad():
        modes = ["ctc_greedy_search", "attention_rescoring"]
        found = decode(model.eval(), feats, lengths, modes, DecodeOptions())
    assert len(found["attention_rescoring"]) == 2
    save_config(config, tmp_path / "saved.yaml")
    assert load_config(tmp_path / "saved.yaml", trust_code=True).encoder_conf == config.encoder_conf


@torch.no_grad()
def test_a_toy_encoder_streams_and_is_exported(name):
    model = build_model(toy_config(name)).eval()
    feats, lengths = torch.randn(1, 120, 20), torch.tensor([120])
    expected, _ = model.encode(feats, lengths, 4, -1)
    streamed, _ = model.encode(feats, lengths, 4, -1, simulate_streaming=True)
    torch.testing.assert_close(streamed, expected)

    exported = torch.jit.load(io.BytesIO(to_torchscript(model)))
    empty = torch.zeros(0, 0, 0, 0)
    frames, *_ = exported.forward_encoder_chunk(feats, 0, -1, empty, empty)
    torch.testing.assert_close(frames, model.encode(feats, lengths)[0])


def test_errors_in_a_toy_encoder_are_those_of_every_encoder(name):
    with pytest.raises(ConfigError, match=r"encoder_conf.scal: unknown key.* did you mean 'scale'"):
        parse_config({**CONFIG, "encoder": name, "encoder_conf": {"scal": 3.0}}, "train.yaml")


@pytest.mark.parametrize("trust", [False, True])
def test_the_encoder_of_another_package_is_imported_only_with_trust(toy, trust):
    values = {**CONFIG, "encoder": "toy_encoder:TOY", "encoder_conf": ENCODER_CONF}
    Path("train.yaml").write_text(yaml.safe_dump(values))
    torch.save(build_model(load_config("train.yaml", trust_code=True)).state_dict(), "model.pt")
    Path("ran").unlink()
    for name in ("toy_encoder", "toy_encoder.model"):
        sys.modules.pop(name)

    options = ["--trust_code"] * trust
    words = [*DECODING, *FILES, *options]
    if not trust:
        with pytest.raises(ConfigError, match=r"would run: toy_encoder:TOY; .*--trust_code"):
            import_module("wenet_uio.bin.recognize").main(words)
        assert "toy_encoder" not in sys.modules
        return
    import_module("wenet_uio.bin.recognize").main(words)
    recognised = Path("out/ctc_greedy_search/text").read_text().splitlines()
    assert [line.split(" ")[0] for line in recognised] == KEYS


def test_a_name_that_is_no_encoder_is_explained(toy):
    with pytest.raises(ConfigError, match="encoder: os:system: expected an EncoderKind of wenet"):
        parse_config({**CONFIG, "encoder": "os:system"}, "train.yaml")
    with pytest.raises(ConfigError, match="encoder: no_such:TOY: .*PYTHONPATH"):
        parse_config({**CONFIG, "encoder": "no_such:TOY"}, "train.yaml")
