"""With the weights of further models of WeNet, our models compute the numbers of WeNet."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from wenet_uio.config import load_config
from wenet_uio.export.torchscript import from_torchscript, to_torchscript
from wenet_uio.models import ASRModel, build_model
from wenet_uio.models.decoder import reversed_hypotheses
from wenet_uio.models.masks import length_mask
from wenet_uio.models.weights import load_weights
from wenet_uio.search import DecodeOptions, decode

MODELS = (
    "conformer_nobias",
    "conformer_nobias_self",
    "conformer_rel_gqa",
    "conformer_rope_gqa",
    "transformer_rope_gqa",
    "transformer_moe",
    "conformer_shaw",
    "conformer_conv1d2",
    "conformer_conv2d2",
    "conformer_embed",
    "whisper",
    "whisper_conv2d4",
    "efficient_conformer",
    "efficient_conformer_stream",
    "efficient_conformer_v2",
    "firered",
)
CTL = ("ctl_conformer", "ctl_transformer")
"""Their losses are in test_contrastive.py."""
LANGUAGES = ("en", "zh", "en", "zh")
"""Of the utterances of whisper."""
NONBLANK = "conformer_nonblank"
"""WeNet's losses and rescoring of its batch depend on frames beyond the lengths; those of one
utterance do not."""
STREAMS = (
    *("conformer_nobias_self", "conformer_rel_gqa", "conformer_conv2d2", "transformer_rope_gqa"),
    "efficient_conformer_stream",
    *CTL,
)
SCRIPTED = (
    *(
        "conformer_nobias",
        "conformer_rel_gqa",
        "conformer_rope_gqa",
        "transformer_moe",
        "conformer_shaw",
    ),
    *(
        "conformer_embed",
        "whisper",
        "efficient_conformer_stream",
        "efficient_conformer_v2",
        "firered",
        "ctl_conformer",
    ),
)
"""The parts of the other models are parts of these."""
CHUNKS = ((4, -1), (8, 2), (16, 4), (6, 2), (12, -1), (12, 1))
TOLERANCE = 1e-4
MODES = ("ctc_greedy_search", "ctc_prefix_beam_search", "attention", "attention_rescoring")


class Golden:
    """A model of WeNet and what WeNet computes with it."""

    def __init__(self, folder: Path) -> None:
        self.config = load_config(folder / "train.yaml", ["mask_padding=false"], of_model=True)
        self.model: ASRModel = build_model(self.config).eval()
        load_weights(self.model, folder / "final.pt")
        self.state = torch.load(folder / "final.pt", weights_only=True)
        self.expected: dict[str, Any] = torch.load(folder / "golden.pt", weights_only=True)
        self.is_whisper = self.model.family.name == "whisper"
        self.prompts = self.model.prompts([""] * 4, [{"lang": language} for language in LANGUAGES])
        self.batch = [
            self.expected[name] for name in ("feats", "feats_lengths", "target", "target_lengths")
        ]

    @staticmethod
    def read(folder: Path) -> Golden:
        """What this process reads once. A test that changes the model takes a copy of it."""
        return _read(folder)

    @property
    def valid(self) -> torch.Tensor:
        """(B, T') True within the encoder's lengths."""
        return length_mask(
            self.expected["encoder_out_lengths"], self.expected["encoder_out"].size(1)
        )

    @property
    def reverse_weight(self) -> float:
        return 0.5 if self.model.decoder.bidirectional else 0.0


_read = cache(Golden)


@pytest.fixture(params=(*MODELS, *CTL, NONBLANK))
def case(request: pytest.FixtureRequest, golden2: Path) -> Golden:
    return Golden.read(golden2 / request.param)


@pytest.fixture(params=MODELS)
def batched(request: pytest.FixtureRequest, golden2: Path) -> Golden:
    return Golden.read(golden2 / request.param)


@pytest.fixture(params=STREAMS)
def streaming(request: pytest.FixtureRequest, golden2: Path) -> Golden:
    return Golden.read(golden2 / request.param)


def assert_close(found: torch.Tensor, expected: torch.Tensor, tolerance: float = TOLERANCE) -> None:
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


def test_parameters_have_wenets_names_and_shapes(case: Golden) -> None:
    ours = {name: tensor.shape for name, tensor in case.model.state_dict().items()}
    tables = {
        name: shape
        for name, shape in ours.items()
        if name.endswith(".pe") and name not in case.state
    }
    assert ours == {**tables, **{name: tensor.shape for name, tensor in case.state.items()}}


@torch.no_grad()
def test_encoder_and_ctc_outputs_equal_wenets(case: Golden) -> None:
    encoder_out, lengths = case.model.encode(*case.batch[:2])
    assert torch.equal(lengths, case.expected["encoder_out_lengths"])
    assert_close(encoder_out[case.valid], case.expected["encoder_out"][case.valid])
    assert_close(
        case.model.ctc_log_probs(encoder_out)[case.valid],
        case.expected["ctc_log_probs"][case.valid],
    )


@torch.no_grad()
def test_an_utterance_without_padding_has_wenets_frames_with_masked_padding(case: Golden) -> None:
    model = build_model(case.config.model_copy(update={"mask_padding": True})).eval()
    model.load_state_dict(case.model.state_dict())
    (found, *_), lengths = model.encode(*case.batch[:2])  # the first utterance is the longest
    assert lengths[0] == case.expected["encoder_out_lengths"][0]
    assert_close(found[: lengths[0]], case.expected["encoder_out"][0, : lengths[0]])


@torch.no_grad()
def test_decoder_outputs_equal_wenets(case: Golden) -> None:
    expected = case.expected
    tokens, lengths = expected["decoder_in"], expected["decoder_in_lengths"]
    backward = reversed_hypotheses(tokens, lengths, case.model.eos)
    left, right = case.model.decoder(
        expected["encoder_out"],
        case.valid.unsqueeze(1),
        tokens,
        lengths,
        backward,
        case.reverse_weight,
    )
    scored = length_mask(lengths, tokens.size(1))
    assert_close(left.log_softmax(2)[scored], expected["decoder_log_probs"][scored])
    if case.reverse_weight:
        assert_close(right.log_softmax(2)[scored], expected["right_decoder_log_probs"][scored])


@torch.no_grad()
def test_scores_of_hypotheses_equal_wenets(case: Golden) -> None:
    given = case.expected["forward_attention_decoder"]
    memory = case.expected["encoder_out"][:1, : case.expected["encoder_out_lengths"][0]]
    left, _ = case.model.forward_attention_decoder(
        given["hyps"], given["hyps_lengths"], memory, case.reverse_weight
    )
    scored = length_mask(given["hyps_lengths"], left.size(1))
    assert_close(left[scored], given["log_probs"][scored])


def test_losses_and_gradients_equal_wenets(batched: Golden) -> None:
    expected = batched.expected
    with torch.no_grad():
        assert_losses(batched.model(*batched.batch, batched.prompts), expected["losses"])
    model = deepcopy(batched.model).train()
    model.encoder.traits = replace(model.encoder.traits, dynamic_chunks=False)
    losses = model(*batched.batch, batched.prompts)
    assert_losses(losses, expected["losses_train"])
    losses["loss"].backward()
    norms = expected["losses_train"]["grad_norms"]
    for name, weight in model.named_parameters():
        if float(norms.get(name, 0.0)) > 1e-5:
            assert weight.grad is not None, name
            assert weight.grad.norm().item() == pytest.approx(float(norms[name]), rel=1e-3), name


def assert_losses(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name in ("loss", "loss_att", "loss_ctc", "th_accuracy"):
        assert found[name].item() == pytest.approx(
            float(expected[name]), abs=TOLERANCE, rel=TOLERANCE
        ), name


@torch.no_grad()
def test_hypotheses_equal_wenets(batched: Golden) -> None:
    assert_hypotheses(batched, batched.batch[:2], batched.expected["hyps_chunk-1"])


@torch.no_grad()
def test_chunk_masks_and_streams_equal_wenets(streaming: Golden) -> None:
    feats, lengths = streaming.batch[:2]
    for chunk, left in CHUNKS:
        masked = streaming.expected.get(f"encoder_out_chunk{chunk}_left{left}")
        if masked is None:  # only the files of efficient conformers have all chunks
            continue
        found, _ = streaming.model.encode(feats, lengths, chunk, left)
        assert_close(found[streaming.valid], masked[streaming.valid])
        # WeNet itself cannot stream with rotary positions; streams equal the masked pass, as in the
        # other models.
        stream = streaming.expected.get(f"encoder_stream_chunk{chunk}_left{left}", masked[:1])
        (found,), _ = streaming.model.encode(
            feats[:1], lengths[:1], chunk, left, simulate_streaming=True
        )
        assert_close(found, stream[0])


@torch.no_grad()
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.all if number % 3 else ())
        for number, name in enumerate(SCRIPTED)
    ],
)
def test_the_torchscript_model_computes_the_same(golden2: Path, name: str) -> None:
    case = Golden.read(golden2 / name)
    runtime = from_torchscript(to_torchscript(case.model))
    empty = torch.zeros(0, 0, 0, 0)
    with torch.jit.optimized_execution(False):  # the first call for each model would be slow
        found, *_ = runtime.forward_encoder_chunk(case.expected["feats"][:1], 0, -1, empty, empty)
    assert_close(
        found[0],
        case.model.encode(case.expected["feats"][:1], case.expected["feats_lengths"][:1])[0][0],
    )
    given = case.expected["forward_attention_decoder"]
    memory = case.expected["encoder_out"][:1, : case.expected["encoder_out_lengths"][0]]
    with torch.jit.optimized_execution(False):
        left, _ = runtime.forward_attention_decoder(
            given["hyps"], given["hyps_lengths"], memory, case.reverse_weight
        )
    scored = length_mask(given["hyps_lengths"], left.size(1))
    assert_close(left[scored], given["log_probs"][scored])


@torch.no_grad()
@pytest.mark.parametrize("name", ["conformer_conv1d2", "whisper"])
def test_lengths_after_conv1d2_depend_on_the_padded_length_as_in_wenet(
    golden2: Path, name: str
) -> None:
    case = Golden.read(golden2 / name)
    even = case.expected["even"]
    lengths = even["feats_lengths"]
    found, found_lengths = case.model.encode(case.expected["feats"][1:, :122], lengths)
    assert torch.equal(found_lengths, even["encoder_out_lengths"])
    valid = length_mask(found_lengths, found.size(1))
    assert_close(found[valid], even["encoder_out"][valid])


def assert_hypotheses(
    case: Golden,
    feats: list[torch.Tensor],
    expected: dict[str, list[dict[str, Any]]],
    **chunks: Any,
) -> None:
    language = LANGUAGES if case.is_whisper else None
    options = DecodeOptions(
        ctc_weight=0.3, reverse_weight=case.reverse_weight, language=language, **chunks
    )
    found = decode(case.model, *feats, MODES, options)
    for mode in MODES:
        for nbest, best in zip(found[mode], expected[mode], strict=True):
            assert list(nbest[0].tokens) == list(best["tokens"]), mode
            if mode != "ctc_greedy_search" and best["score"]:
                assert nbest[0].score == pytest.approx(best["score"], abs=1e-3, rel=1e-3)


@torch.no_grad()
def test_the_decoder_sees_no_frames_of_blanks_as_in_wenet(golden2: Path) -> None:
    case = Golden.read(golden2 / NONBLANK)
    single, first = case.expected["single"], [tensor[:1] for tensor in case.batch]
    encoder_out, lengths = case.model.encode(*first[:2])
    assert_close(encoder_out, single["encoder_out"])
    assert (
        case.model.decoder_frames(encoder_out, lengths)[1].tolist()
        == single["kept_lengths"].tolist()
    )
    assert_losses(case.model(*first), single["losses"])
    assert_hypotheses(case, first[:2], single["hyps"])


@torch.no_grad()
def test_frames_without_blank_do_not_depend_on_the_batch_and_are_never_none(golden2: Path) -> None:
    model = deepcopy(Golden.read(golden2 / NONBLANK).model)
    frames = torch.randn(2, 9, 32)
    together, lengths = model.decoder_frames(frames, torch.tensor([9, 4]))
    for row, length in enumerate((9, 4)):
        alone, alone_lengths = model.decoder_frames(
            frames[row : row + 1, :length], torch.tensor([length])
        )
        assert torch.equal(alone_lengths, lengths[row : row + 1])
        assert torch.equal(together[row, : lengths[row]], alone[0])
    model.ctc.ctc_lo.bias[model.blank] = 1e4
    nothing, lengths = model.decoder_frames(frames, torch.tensor([9, 4]))
    assert (nothing.tolist(), lengths.tolist()) == (torch.zeros(2, 1, 32).tolist(), [1, 1])
