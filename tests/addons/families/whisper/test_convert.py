"""A Whisper in the layouts of OpenAI and Hugging Face gives the logits of the package
transformers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import wenet_uio
from tests.support.models.whisper_layouts import (
    random_whisper,
    save_config_json,
    save_openai,
    write_full_vocabulary,
)
from wenet_uio.addons.families.whisper.tokens import LANGUAGES
from wenet_uio.config import load_config
from wenet_uio.models import build_model
from wenet_uio.models.converted import write_model
from wenet_uio.models.weights import load_weights
from wenet_uio.train.trained_model import convert_model

PROMPT = (50258, 50260, 50359, 50363)


@pytest.fixture(scope="module")
def theirs() -> Any:
    return random_whisper()


@pytest.fixture(scope="module")
def expected(theirs: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features (1, 3000, 80), tokens (1, U), and the logits of transformers (1, U, V)."""
    feats = torch.randn(1, 3000, 80, generator=torch.Generator().manual_seed(2))
    tokens = torch.tensor([[*PROMPT, *range(100, 900, 37)]])
    with torch.no_grad():
        return (
            feats,
            tokens,
            theirs(input_features=feats.transpose(1, 2), decoder_input_ids=tokens).logits,
        )


def saved(theirs: Any, layout: str, folder: Path) -> Path:
    """The model in a layout."""
    if layout == "openai":
        return save_openai(theirs, folder / "tiny.pt")
    if layout == "pytorch_model.bin":
        save_config_json(theirs, folder)
        torch.save(theirs.half().state_dict(), folder / layout)
        theirs.float()
    else:
        theirs.save_pretrained(folder, max_shard_size="200KB" if layout == "parts" else "5GB")
    return folder


@pytest.mark.third
@pytest.mark.parametrize(
    ("layout", "tolerance"),
    [("openai", 1e-4), ("safetensors", 1e-4), ("parts", 1e-4), ("pytorch_model.bin", 3e-2)],
)
def test_the_logits_are_those_of_transformers(
    theirs: Any, expected: tuple[torch.Tensor, ...], layout: str, tolerance: float, tmp_path: Path
) -> None:
    feats, tokens, logits = expected
    source = saved(theirs, layout, tmp_path / layout)
    assert layout != "parts" or len(list(source.glob("*.safetensors"))) > 1
    write_model(convert_model(source), tmp_path / "out")
    config = load_config(tmp_path / "out/train.yaml", of_model=True)
    model = build_model(config).eval()
    load_weights(model, tmp_path / "out/final.pt")
    with torch.no_grad():
        encoder_out, lengths = model.encode(feats, torch.tensor([3000]))
        assert lengths.tolist() == [1500]
        mask = torch.ones(1, 1, 1500, dtype=torch.bool)
        found = model.decoder.score(encoder_out, mask, tokens, torch.tensor([tokens.size(1)]))  # pyright: ignore
    torch.testing.assert_close(found, logits, atol=tolerance, rtol=tolerance)
    for name, weight in (
        ("pos_enc.pe", "encoder.embed_positions"),
        ("embed.1.pe", "decoder.embed_positions"),
    ):
        ours = next(value for key, value in model.state_dict().items() if key.endswith(name))
        assert (ours[0] - theirs.model.get_submodule(weight).weight).abs().max() < 1e-3


def test_a_converted_model_transcribes(theirs: Any, corpora: Path, tmp_path: Path) -> None:
    source = save_openai(theirs, tmp_path / "in/tiny.pt")
    write_full_vocabulary(tmp_path / "in/multilingual.tiktoken")
    write_model(convert_model(source), tmp_path / "out")
    (tmp_path / "in/multilingual.tiktoken").unlink()
    recogniser = wenet_uio.load_model(str(tmp_path / "out"), device="cpu")
    assert recogniser.modes == ["attention"]
    audio = str(sorted((corpora / "fsdd/recordings").glob("*.wav"))[0])
    found = recogniser.transcribe(audio, language="de", beam_size=1, timestamps=True)
    assert found.text
    assert {segment.language for segment in found.segments} == {"de"}
    times = [time for segment in found.segments for time in (segment.start, segment.end)]
    assert times == sorted(times)
    assert times[-1] <= found.seconds + 1e-6
    assert found.to_srt().startswith("1\n00:00:0")
    assert recogniser.transcribe(audio, beam_size=1).segments[0].language in LANGUAGES
    with pytest.raises(ValueError, match=r"^window 31: a whisper hears at most 30 s at once$"):
        recogniser.transcribe(audio, window=31)
    assert (
        recogniser.obstacle
        == "the model was trained with full context only; train with use_dynamic_chunk"
    )


def test_sizes_of_the_vocabulary_tell_the_languages(tmp_path: Path) -> None:
    for size, multilingual, languages, last in (
        (51864, False, 99, 50363),
        (51866, True, 100, 50365),
    ):
        source = save_openai(random_whisper(size), tmp_path / f"{size}.pt")
        conf = convert_model(source).values["tokenizer_conf"]
        assert (conf["is_multilingual"], conf["num_languages"]) == (multilingual, languages)
        assert conf["special_tokens"]["timestamp_begin"] == last


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"vocab_size": 100},
            "size of the vocabulary 100: a Whisper of OpenAI has 51864 or 51865 or 51866$",
        ),
        ({"max_source_positions": 750}, "positions of the encoder 750: a Whisper has 1500$"),
        (
            {"scale_embedding": True},
            "config.json: only Whisper with gelu and without scale_embedding",
        ),
        ({"d_model": None}, "config.json: no number under d_model$"),
        ({"decoder_layers": 2}, "weights are missing: decoder.layers.1.self_attn.q_proj, .* and "),
        ({"encoder_layers": 1}, r"unknown weights: encoder.layers.1\."),
        ({"model_type": "bart"}, "none of the known layouts"),
    ],
)
def test_what_does_not_fit_is_one_line(
    theirs: Any, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    saved(theirs, "safetensors", tmp_path)
    save_config_json(theirs, tmp_path, **changes)
    with pytest.raises(ValueError, match=message) as caught:
        convert_model(tmp_path)
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_weights_of_other_shapes_are_refused(theirs: Any, tmp_path: Path) -> None:
    saved(theirs, "safetensors", tmp_path)
    save_config_json(theirs, tmp_path, num_mel_bins=128)
    with pytest.raises(
        ValueError,
        match=r"encoder.embed.conv.0.weight is \(16, 80, 3\), the model has \(16, 128, 3\)",
    ):
        write_model(convert_model(tmp_path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_without_vocabulary_is_converted_with_a_note(theirs: Any, tmp_path: Path) -> None:
    converted = convert_model(save_openai(theirs, tmp_path / "tiny.pt"))
    assert [note.split(":")[0] for note in converted.notes] == [
        "CTC is not trained",
        "no vocabulary",
    ]
    vocabulary = write_full_vocabulary(tmp_path / "mine.txt")
    named = convert_model(tmp_path / "tiny.pt", vocabulary=vocabulary)
    assert named.values["tokenizer_conf"]["bpe_path"] == str(vocabulary)
    assert len(named.notes) == 1


def test_our_languages_have_the_order_of_transformers() -> None:
    from transformers.models.whisper.tokenization_whisper import LANGUAGES as NAMES

    assert tuple(NAMES) == LANGUAGES


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"dims": [1]}, "dims: expected sizes by name, found list"),
        ({"model_state_dict": [1]}, "expected a state dict, found list"),
        ({"model_state_dict": {"a": 1}}, "expected tensors by name, found int under 'a'"),
        (
            {"model_state_dict": {3: torch.ones(1)}},
            "expected tensors by name, found Tensor under 3",
        ),
        (
            {"model_state_dict": {"a": torch.tensor([torch.nan])}},
            "a has values that are infinite or NaN",
        ),
    ],
)
def test_another_content_of_a_file_is_one_line(
    content: dict[str, Any], message: str, tmp_path: Path
) -> None:
    torch.save({"dims": {}, "model_state_dict": {}} | content, tmp_path / "a.pt")
    with pytest.raises(ValueError, match=message) as caught:
        convert_model(tmp_path / "a.pt", "openai")
    assert "\n" not in str(caught.value)


def test_the_vocabulary_of_the_other_kind_is_refused(theirs: Any, tmp_path: Path) -> None:
    lines = write_full_vocabulary(tmp_path / "multilingual.tiktoken").read_text().splitlines()
    (tmp_path / "gpt2.tiktoken").write_text("\n".join(lines[:-1]))
    source = save_openai(theirs, tmp_path / "tiny.pt")
    convert_model(source, vocabulary=tmp_path / "multilingual.tiktoken")
    with pytest.raises(
        ValueError,
        match="the vocabulary of a model that is English only; this model is multilingual",
    ):
        convert_model(source, vocabulary=tmp_path / "gpt2.tiktoken")
