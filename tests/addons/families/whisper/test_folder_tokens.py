"""A Whisper of Hugging Face is known by what its folder says, not by the size of its vocabulary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.models.whisper_layouts import (
    generation_ids,
    random_whisper,
    save_slow_tokenizer,
    save_tokenizer,
)
from wenet_uio.addons.families.whisper.tokens import special_tokens
from wenet_uio.config import load_config
from wenet_uio.models import build_model
from wenet_uio.models.converted import write_model
from wenet_uio.models.weights import load_weights
from wenet_uio.search.decode import decode
from wenet_uio.search.types import DecodeOptions
from wenet_uio.text.tokenizer import build_tokenizer
from wenet_uio.train.trained_model import convert_model

KINDS = {"multilingual": (50257, 99), "large-v3": (50257, 100), "English only": (50256, 99)}
"""{kind: (byte pairs, languages)}."""
ADDED: dict[str, dict[str, bool]] = {
    "nothing": {},
    "a word": {"Kubernetes": False},
    "a special token": {"<|speaker|>": True},
    "words and a special token": {"Zurich": False, "<|laugh|>": True, "世界": False},
}
FILES = ("tokenizer.json", "vocab.json", "generation_config.json")


def save_folder(folder: Path, kind: str, added: dict[str, bool], files: str) -> tuple[Any, Any]:
    """Write a random model and the files that name its tokens.

    Returns:
        (model, tokenizer) of Hugging Face.
    """
    text_tokens, num_languages = KINDS[kind]
    tokenizer = save_tokenizer(folder, text_tokens, num_languages, added)
    model = random_whisper(tokenizer.get_vocab_size())
    model.save_pretrained(folder)
    (folder / "generation_config.json").write_text(
        json.dumps(generation_ids(text_tokens, num_languages)), encoding="utf-8"
    )
    if files != "tokenizer.json":
        save_slow_tokenizer(folder)
    if files == "generation_config.json":
        (folder / "added_tokens.json").unlink()
    return model, tokenizer


@pytest.mark.third
@pytest.mark.parametrize("files", FILES)
@pytest.mark.parametrize("added", ADDED)
@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_texts_are_those_of_the_folder(
    kind: str, added: str, files: str, tmp_path: Path
) -> None:
    text_tokens, num_languages = KINDS[kind]
    _, theirs = save_folder(tmp_path / "in", kind, ADDED[added], files)
    write_model(convert_model(tmp_path / "in"), tmp_path / "out")
    config = load_config(tmp_path / "out/train.yaml", of_model=True)

    conf = config.tokenizer_conf
    assert conf.special_tokens == special_tokens(text_tokens, num_languages)
    assert conf.is_multilingual == (kind != "English only")
    if kind != "English only":
        assert conf.num_languages == num_languages
    if files == "generation_config.json":
        return  # nothing names the added tokens

    ours = build_tokenizer(config)
    assert ours.vocab_size == theirs.get_vocab_size()
    for text in ("it is 5 o'clock", "Kubernetes in Zurich", " 世界a", "Zurich 世"):
        ids = theirs.encode(text).ids
        assert ours.tokenize(text)[1] == theirs.encode(text.strip()).ids
        special = list(range(text_tokens, ours.vocab_size, 97))
        mixed = [*special[:3], *ids, *special[3:], ours.vocab_size - 1]
        assert ours.detokenize(mixed) == theirs.decode(mixed).strip()


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            "generation_config.json",
            {"task_to_id": {"transcribe": 50360}},
            r"<\|transcribe\|> has the id 50359 in tokenizer.json, and 50360 in generation_config",
        ),
        (
            "generation_config.json",
            {"is_multilingual": False},
            r"generation_config.json has is_multilingual false, but tokenizer.json has .* 50257",
        ),
        ("added_tokens.json", {"<|zh|>": 50259}, r"<\|zh\|> has the id 50260 in tokenizer.json"),
        ("added_tokens.json", {"Kubernetes": 50364}, "Kubernetes has the id 50364 in added_tokens"),
        ("added_tokens.json", {"Kubernetes": 51866}, "it has 51865$"),
        ("added_tokens.json", {"Kubernetes": 51865}, "vocab_size 51865, the .* 51866 tokens$"),
        ("added_tokens.json", {"Kubernetes": "x"}, "expected the number of a token, found 'x'$"),
        (
            "generation_config.json",
            {"lang_to_id": [1]},
            "expected an object with names, found list",
        ),
        ("config.json", {"tie_word_embeddings": False}, "proj_out.weight is missing$"),
    ],
)
def test_files_that_contradict_each_other_are_refused_in_one_line(
    file: str, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    save_folder(tmp_path, "multilingual", {}, "tokenizer.json")
    path = tmp_path / file
    values = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(values | change), encoding="utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        convert_model(tmp_path)
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_an_output_layer_of_its_own_is_kept_and_one_that_contradicts_the_config_is_refused(
    tmp_path: Path,
) -> None:
    model = random_whisper()
    weights = {**model.state_dict(), "proj_out.weight": torch.randn(51865, 16)}
    values = model.config.to_dict()
    torch.save(weights, tmp_path / "pytorch_model.bin")
    for tied in (False, True):
        values["tie_word_embeddings"] = tied
        (tmp_path / "config.json").write_text(json.dumps(values), encoding="utf-8")
        if tied:
            with pytest.raises(
                ValueError, match="tie_word_embeddings true, but proj_out.weight is"
            ):
                convert_model(tmp_path)
        else:
            converted = convert_model(tmp_path)
            assert converted.values["decoder_conf"]["tie_word_embedding"] is False
            write_model(converted, tmp_path / "out")
            found = torch.load(tmp_path / "out/final.pt")["decoder.output_layer.weight"]
            assert torch.equal(found, weights["proj_out.weight"])


@pytest.mark.parametrize(
    ("kind", "added"),
    [
        ("multilingual", "a word"),
        pytest.param("English only", "a special token", marks=pytest.mark.all),
    ],
)
def test_the_tokens_are_those_of_generate(kind: str, added: str, tmp_path: Path) -> None:
    model, _ = save_folder(tmp_path / "in", kind, ADDED[added], "vocab.json")
    write_model(convert_model(tmp_path / "in"), tmp_path / "out")
    config = load_config(tmp_path / "out/train.yaml", of_model=True)
    ours = build_model(config).eval()
    load_weights(ours, tmp_path / "out/final.pt")

    feats = torch.randn(2, 3000, 80, generator=torch.Generator().manual_seed(2))
    conf = model.generation_config
    stated = generation_ids(*KINDS[kind])
    for name, value in {**stated, "begin_suppress_tokens": None, "max_length": 40}.items():
        setattr(conf, name, value)
    language = {"language": "de", "task": "transcribe"} if kind == "multilingual" else {}
    with torch.no_grad():
        theirs = model.generate(feats.transpose(1, 2), generation_config=conf, **language)
    options = DecodeOptions(beam_size=1, language="de" if language else "en")
    found = decode(ours, feats, torch.tensor([3000, 3000]), ["attention"], options)
    for nbest, tokens in zip(found["attention"], theirs.tolist(), strict=True):
        length = min(len(nbest[0].tokens), 30)
        assert length == 30
        assert list(nbest[0].tokens[:length]) == tokens[:length]


def test_a_token_that_only_one_of_the_files_has_is_part_of_the_vocabulary(tmp_path: Path) -> None:
    _, theirs = save_folder(tmp_path / "in", "multilingual", ADDED["a word"], "tokenizer.json")
    path = tmp_path / "in/tokenizer.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    added = values["added_tokens"].pop()
    path.write_text(json.dumps(values), encoding="utf-8")
    (tmp_path / "in/added_tokens.json").write_text(json.dumps({added["content"]: added["id"]}))
    write_model(convert_model(tmp_path / "in"), tmp_path / "out")
    ours = build_tokenizer(load_config(tmp_path / "out/train.yaml", of_model=True))
    assert ours.vocab_size == theirs.get_vocab_size()
    assert ours.detokenize([added["id"]]) == "Kubernetes"
