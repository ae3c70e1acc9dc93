"""Configs of training runs: derived sizes, and text without audio."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tokenizers import Tokenizer as Json

from tests.support.models.vocabularies import write_tokenizer_json
from tests.support.train.training_corpus import CONFIG, write_corpus
from wenet_uio.config import load_config, parse_config, save_config
from wenet_uio.config.named_files import copy_files
from wenet_uio.models import arithmetic, build_model
from wenet_uio.models.arithmetic import has_bf16
from wenet_uio.text.tokenizer import build_tokenizer
from wenet_uio.train.run_config import check_text_is_trainable, choose_dtype, read_config

TRANSDUCER = {"model": "transducer", "predictor": "rnn", "joint": "transducer_joint"}


def test_sizes_follow_from_features_and_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write_corpus(tmp_path))
    config, tokenizer = read_config("train.yaml", ["use_amp=true", "max_epoch=7"])
    assert (config.input_dim, config.output_dim, config.vocab_size) == (23, 6, tokenizer.vocab_size)
    assert (config.dtype, config.max_epoch) == ("bf16", 7)
    with pytest.raises(
        ValueError, match="input_dim 22, but dataset_conf gives 23 features a frame"
    ):
        read_config("train.yaml", ["input_dim=22"])


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"model_conf": {"ctc_weight": 1.0}},
            "whose weight in the loss is 0; give it a weight in model_conf .ctc_weight below 1",
        ),
        (
            TRANSDUCER,
            "whose weight in the loss is 0; give it a weight in model_conf .attention_weight above "
            "0",
        ),
        ({"train_engine": "torch_fsdp"}, "needs train_engine torch_ddp"),
    ],
    ids=["ctc alone", "transducer alone", "torch_fsdp"],
)
def test_text_without_audio_is_refused_if_nothing_is_trained_on_it(
    keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^texts.list: .*{message}"):
        check_text_is_trainable("texts.list", parse_config({**CONFIG, **keys}, "train.yaml"))
    mixed = {**TRANSDUCER, "model_conf": {"transducer_weight": 0.7, "attention_weight": 0.3}}
    check_text_is_trainable("texts.list", parse_config({**CONFIG, **mixed}, "train.yaml"))


def test_a_run_with_a_tokenizer_of_hugging_face_has_its_file_and_is_built_from_it(
    tmp_path: Path,
) -> None:
    write_tokenizer_json(tmp_path / "hub/tokenizer.json", ["zero one two"])
    size = len(Json.from_file(str(tmp_path / "hub/tokenizer.json")).get_vocab())
    values = {
        **{"tokenizer": "huggingface", "tokenizer_conf": {"model_path": str(tmp_path / "hub")}},
        **{"output_dim": size + 1, "ctc_conf": {"ctc_blank_id": size}},
    }
    (tmp_path / "conf.yaml").write_text(yaml.safe_dump({**CONFIG, **values}))
    config, tokenizer = read_config(tmp_path / "conf.yaml")
    save_config(copy_files(config, tmp_path / "run"), tmp_path / "run/train.yaml")
    shutil.rmtree(tmp_path / "hub")
    loaded = load_config(tmp_path / "run/train.yaml", of_model=True)
    assert build_tokenizer(loaded).tokenize("two one") == tokenizer.tokenize("two one")
    model = build_model(loaded)
    assert (model.vocab_size, model.blank, model.sos, model.eos) == (size + 1, size, size, size)


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool, bool], None]:
    """A function that takes the place of the processor: has it instructions for bf16, and are they
    faster?
    """

    def replace(has_bf16: bool, gains: bool) -> None:
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has_bf16)
        monkeypatch.setattr(arithmetic, "_cpu_gains", lambda: gains)

    return replace


@pytest.mark.parametrize(("has_bf16", "gains"), [(True, True), (True, False), (False, True)])
def test_dtype_auto_is_bf16_on_a_processor_that_computes_faster_with_it(
    has_bf16: bool,
    gains: bool,
    processor: Callable[[bool, bool], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    processor(has_bf16, gains)
    dtype = "bf16" if has_bf16 and gains else "fp32"
    caplog.set_level("INFO")
    auto = parse_config({**CONFIG, "dtype": "auto"}, "train.yaml")
    assert choose_dtype(auto, torch.device("cpu")).dtype == dtype
    assert f"dtype auto: {dtype} on this cpu" in caplog.text
    assert choose_dtype(auto, torch.device("meta")).dtype == "fp32"


@pytest.mark.parametrize("vendor", ["AuthenticAMD", "GenuineIntel"])
@pytest.mark.parametrize("has_amx", [True, False])
def test_a_cpu_gains_by_bf16_if_it_is_one_of_amd_or_has_amx(
    vendor: str, has_amx: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    information = tmp_path / "cpuinfo"
    information.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\n")
    monkeypatch.setattr(arithmetic, "PROCESSORS", information)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: has_amx)
    gains = arithmetic._cpu_gains.__wrapped__()
    assert gains == (has_amx or vendor == "AuthenticAMD")


def test_the_processor_is_asked_for_its_instructions() -> None:
    flags = Path("/proc/cpuinfo").read_text().split()
    assert has_bf16(torch.device("cpu")) == ("avx512_bf16" in flags)


@pytest.mark.parametrize("begun", ["fp32", "bf16"])
def test_a_run_that_resumes_keeps_its_arithmetic_if_the_processor_has_it(
    begun: str, processor: Callable[[bool, bool], None], tmp_path: Path
) -> None:
    auto = parse_config({**CONFIG, "dtype": "auto"}, "train.yaml")
    save_config(auto.model_copy(update={"dtype": begun}), tmp_path / "train.yaml")
    for gains in (True, False):
        processor(True, gains)
        assert choose_dtype(auto, torch.device("cpu"), tmp_path).dtype == begun
    processor(False, False)
    assert choose_dtype(auto, torch.device("cpu"), tmp_path).dtype == "fp32"
    processor(True, True)
    assert choose_dtype(auto, torch.device("cpu"), tmp_path / "new").dtype == "bf16"
    named = parse_config({**CONFIG, "dtype": "fp16"}, "train.yaml")
    assert choose_dtype(named, torch.device("cpu"), tmp_path) is named


def test_on_a_gpu_dtype_auto_takes_tf32_for_what_stays_fp32(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    request.addfinalizer(lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", False))
    gpu = torch.device("cuda")
    for dtype, tf32 in (("fp32", False), ("auto", True)):
        choose_dtype(parse_config({**CONFIG, "dtype": dtype}, "train.yaml"), gpu)
        assert torch.backends.cuda.matmul.allow_tf32 == tf32


def test_cudnns_attention_is_off_unless_the_config_has_it() -> None:
    for values in ({"cudnn_attention": True}, {}):
        choose_dtype(parse_config({**CONFIG, **values}, "train.yaml"), torch.device("cpu"))
        assert torch.backends.cuda.cudnn_sdp_enabled() == bool(values)


def test_a_dtype_that_is_named_stays_and_a_slower_bf16_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for dtype in ("fp32", "fp16", "bf16"):
        assert not caplog.text
        config = parse_config({**CONFIG, "dtype": dtype}, "train.yaml")
        assert choose_dtype(config, torch.device("meta")) is config
    assert "dtype bf16: this meta computes faster in fp32; dtype auto does so" in caplog.text
