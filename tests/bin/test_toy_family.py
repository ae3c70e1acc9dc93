"""A model family is a folder and one line; one of another package needs no line.

The toy family here has its own section, weights, decode mode and option check, in exactly the places
that CONTRIBUTING.md names.
"""

import ast
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch
import yaml

from tests.support.models.recogniser import CONFIG, KEYS
from wenet_uio.config import ConfigError, load_config, parse_config, save_config
from wenet_uio.config import family as table
from wenet_uio.models import build_model
from wenet_uio.search import DecodeOptions, decode
from wenet_uio.search.modes import possible_modes

ROOT = Path(__file__).resolve().parents[2]
RECORD = """
from wenet_uio.config.decode_modes import CTC_MODES, DecodeMode
from wenet_uio.config.family import DecodingRules, Family
from wenet_uio.config.named_code import Loaded
from wenet_uio.config.model import CtcAttentionConf


class ToyConf(CtcAttentionConf):
    scale: float = 2.0


TOY = Family(
    name="toy",
    section=ToyConf,
    build=Loaded("toy_family.model:build"),
    decoding=DecodingRules(
        modes=(*CTC_MODES, DecodeMode("toy.first", Loaded("toy_family.model:first"), ("ctc_weight",))),
    ),
)
"""
MODEL = '''
from pathlib import Path

import toy_family
import torch

from wenet_uio.models.asr_model import ASRModel
from wenet_uio.models.build import build_decoder
from wenet_uio.search.types import Hypothesis

Path("ran").touch()


class Toy(ASRModel):
    family = toy_family.TOY

    def __init__(self, encoder, decoder, vocabulary, conf, *others):
        super().__init__(encoder, decoder, vocabulary, conf, *others)
        self.scale = torch.nn.Parameter(torch.tensor(conf.scale))


def build(config, encoder, vocabulary, *others):
    decoder = build_decoder(config, encoder, vocabulary)
    return Toy(encoder, decoder, vocabulary, config.model_conf, *others)


def first(batch):
    """The label 4 for each utterance."""
    return [[Hypothesis((4,), 0.0)] for _ in batch.lengths]
'''
DECODING = ("--modes", "toy.first", "ctc_greedy_search", "--test_data", "raw.list")
FILES = ("--config", "train.yaml", "--checkpoint", "model.pt", "--result_dir", "out")


@pytest.fixture
def toy(folder, monkeypatch):
    """A folder with data of a recogniser, and the package toy_family on the path."""
    package = folder / "path" / "toy_family"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(RECORD)
    (package / "model.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(package.parent))
    for name in ("toy_family", "toy_family.model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield folder
    for name in ("toy_family", "toy_family.model"):
        sys.modules.pop(name, None)


@pytest.fixture(params=["toy_family:TOY", "toy"])
def name(request, toy, monkeypatch):
    """The name in the yaml: of another package, or by one line in the table of families."""
    monkeypatch.setitem(table.FAMILIES, "toy", "toy_family:TOY")
    return request.param


def test_a_toy_family_is_configured_built_trained_and_decodes(name, tmp_path):
    values = {**CONFIG, "model": name, "model_conf": {"scale": 3.0}, "output_dim": 12}
    config = parse_config(values, "train.yaml")
    assert not Path("ran").exists()  # the config does not load the networks
    model = build_model(config)
    assert model.scale == 3.0

    feats, lengths = torch.randn(2, 90, 20), torch.tensor([90, 60])
    losses = model(feats, lengths, torch.tensor([[4, 5], [6, 7]]), torch.tensor([2, 2]))
    losses["loss"].backward()
    assert possible_modes(model) == ["ctc_greedy_search", "ctc_prefix_beam_search", "toy.first"]
    with torch.no_grad():
        found = decode(model.eval(), feats, lengths, ["toy.first"], DecodeOptions())
    assert [nbest[0].tokens for nbest in found["toy.first"]] == [(4,), (4,)]

    save_config(config, tmp_path / "saved.yaml")
    assert load_config(tmp_path / "saved.yaml", trust_code=True).model_conf == config.model_conf


def test_errors_in_a_toy_family_are_those_of_every_family(name):
    with pytest.raises(ConfigError, match=r"model_conf.scal: unknown key.* did you mean 'scale'"):
        parse_config({**CONFIG, "model": name, "model_conf": {"scal": 3.0}}, "train.yaml")
    model = build_model(parse_config({**CONFIG, "model": name, "output_dim": 12}, "train.yaml"))
    with pytest.raises(ValueError, match=r"mode attention: the model was trained .* do ctc_greedy"):
        decode(model, torch.zeros(1, 60, 20), torch.tensor([60]), ["attention"], DecodeOptions())


@pytest.mark.parametrize("trust", [False, True])
def test_the_family_of_another_package_is_imported_only_with_trust(toy, trust):
    Path("train.yaml").write_text(yaml.safe_dump({**CONFIG, "model": "toy_family:TOY"}))
    torch.save(build_model(load_config("train.yaml", trust_code=True)).state_dict(), "model.pt")
    Path("ran").unlink()
    for name in ("toy_family", "toy_family.model"):
        sys.modules.pop(name)
    options = ["--trust_code"] * trust
    words = [*DECODING, *FILES, *options]
    if not trust:
        with pytest.raises(ConfigError, match=r"would run: toy_family:TOY; .*--trust_code"):
            import_module("wenet_uio.bin.recognize").main(words)
        assert "toy_family" not in sys.modules
        return
    import_module("wenet_uio.bin.recognize").main(words)
    assert Path("out/toy.first/text").read_text() == "".join(f"{key} b\n" for key in KEYS)


def test_a_name_that_is_no_family_is_explained(toy):
    with pytest.raises(ConfigError, match="model: os:system: expected a Family of wenet_uio"):
        parse_config({**CONFIG, "model": "os:system"}, "train.yaml")
    with pytest.raises(ConfigError, match="model: no_such:TOY: .*PYTHONPATH"):
        parse_config({**CONFIG, "model": "no_such:TOY"}, "train.yaml")


def test_a_toy_mode_in_the_record_of_a_family_is_a_decode_mode(toy, monkeypatch):
    import toy_family

    from wenet_uio.families import hybrid

    mode = toy_family.TOY.decoding.modes[-1]
    decoding = hybrid.HYBRID.decoding
    record = replace(hybrid.HYBRID, decoding=replace(decoding, modes=(*decoding.modes, mode)))
    monkeypatch.setattr(hybrid, "HYBRID", record)
    model = build_model(parse_config({**CONFIG, "output_dim": 12}, "train.yaml")).eval()
    monkeypatch.setattr(type(model), "family", record)
    feats, lengths = torch.randn(1, 90, 20), torch.tensor([90])
    with torch.no_grad():
        found = decode(model, feats, lengths, ["attention", "toy.first"], DecodeOptions())
    assert found["toy.first"][0][0].tokens == (4,)


def test_the_core_names_no_family_outside_of_its_table():
    """The core finds families by `config.family`, so it compares no name."""
    rooms = [ROOT / "wenet_uio" / room for room in ("families", "addons/families")]
    assert all(any(room.glob("*/__init__.py")) for room in rooms)
    for path in (ROOT / "wenet_uio").rglob("*.py"):
        if any(path.is_relative_to(room) for room in rooms):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                texts = [leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)]
                assert not set(texts) & set(table.FAMILIES), f"{path}:{node.lineno}"
