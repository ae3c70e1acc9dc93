from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.support.train.tiny import CPU, TinyModel, small_config, tiny_batch, tiny_config
from wenet_uio.models import build_model
from wenet_uio.train.engines import DdpEngine
from wenet_uio.train.observation import FirstUtterance, Observation, observe_utterance
from wenet_uio.train.pictures import HEIGHT, LEFT, RIGHT, TOP, WIDTH, draw_pictures


@pytest.fixture(params=["transformer", "bitransformer"])
def engine(request: pytest.FixtureRequest) -> DdpEngine:
    config = small_config(decoder=request.param, model_conf={"reverse_weight": 0.3})
    torch.manual_seed(1)
    engine = DdpEngine(build_model(config), config, CPU, seed=5)
    engine.connect()
    return engine


def test_an_utterance_has_attention_of_encoder_and_decoder_and_ctc_posteriors(
    engine: DdpEngine,
) -> None:
    seen = observe_utterance(engine, tiny_batch([90], seed=1, tokens=3))
    frames = seen.posteriors.shape[0]
    assert {name: weights.shape for name, weights in seen.attention.items()} == {
        "encoder": (2, frames, frames),
        "decoder": (2, 4, frames),
    }
    for weights in (*seen.attention.values(), seen.posteriors):
        np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    best = seen.posteriors.argmax(-1)
    assert seen.recognised == tuple(
        unit for n, unit in enumerate(best) if unit and (n == 0 or best[n - 1] != unit)
    )


def test_observing_changes_neither_weights_nor_random_numbers(engine: DdpEngine) -> None:
    batch = tiny_batch([90, 50], seed=1, tokens=3)
    drawn, losses = torch.get_rng_state(), engine.objective(batch)
    torch.set_rng_state(drawn)
    observe_utterance(engine, tiny_batch([90], seed=1, tokens=3))
    assert torch.equal(torch.get_rng_state(), drawn)
    assert engine.model.training
    assert torch.equal(engine.objective(batch)["loss"], losses["loss"])
    for module in engine.model.modules():
        assert "attend" not in vars(module)
        assert not module._forward_hooks


def test_the_recorded_attention_is_the_one_of_the_model(engine: DdpEngine) -> None:
    batch = tiny_batch([90], seed=1, tokens=3)
    attention = [
        module for name, module in engine.model.named_modules() if name.endswith("src_attn")
    ][1]
    calls = []
    attend = attention.attend
    attention.attend = lambda *call: calls.append(call) or attend(*call)
    engine.model.eval()
    engine.objective(batch)
    del attention.attend
    query, key, value, bias = calls[0]
    weights = torch.from_numpy(observe_utterance(engine, batch).attention["decoder"])
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
    torch.testing.assert_close(weights @ value[0], expected[0])


def test_a_model_without_attention_has_no_pictures_of_it() -> None:
    engine = DdpEngine(TinyModel(), tiny_config(), CPU, seed=5)
    engine.connect()
    seen = observe_utterance(engine, tiny_batch([5], 1))
    assert (seen.attention, seen.posteriors) == ({}, None)
    assert draw_pictures(seen) == {}


def test_pictures_are_rgb(engine: DdpEngine) -> None:
    drawn = draw_pictures(observe_utterance(engine, tiny_batch([90], seed=1, tokens=3)))
    assert drawn.keys() == {"attention_encoder", "attention_decoder", "ctc"}
    for picture in drawn.values():
        assert picture.dtype == np.uint8
        assert picture.shape[2] == 3
        assert len(np.unique(picture)) > 10


def test_each_head_has_a_panel_with_the_first_query_at_the_bottom() -> None:
    weights = np.zeros((5, 2, 3), np.float32)
    weights[4, 0, 2] = 0.5  # the largest weight of the last head
    weights[4, 1, 0] = 0.25
    picture = draw_pictures(Observation("", "", {"decoder": weights}, None, ()))[
        "attention_decoder"
    ]
    height, width = (size // panels for size, panels in zip(picture.shape, (2, 4), strict=False))
    panel = picture[height:, :width, 0]  # the fifth head begins the second row
    values = panel[TOP : TOP + HEIGHT, LEFT : LEFT + WIDTH]
    middles = values[HEIGHT // 4 :: HEIGHT // 2, WIDTH // 6 :: WIDTH // 3]
    np.testing.assert_array_equal(middles[:2, :3], [[128, 255, 255], [255, 255, 0]])
    assert (panel[:, width - RIGHT + 1 :] == 255).all()


def test_the_first_utterance_is_kept_and_batches_are_unchanged() -> None:
    batches = [tiny_batch([], 1), tiny_batch([7, 5], 2), tiny_batch([9], 3)]
    first = FirstUtterance(batches)
    assert list(first) == batches
    assert first.batch.keys == ("2-0",)
    assert first.batch.feats.shape[:2] == (1, 7)


def test_a_run_in_bf16_is_observed() -> None:
    config = small_config(dtype="bf16")
    torch.manual_seed(1)
    engine = DdpEngine(build_model(config), config, CPU, seed=5)
    engine.connect()
    seen = observe_utterance(engine, tiny_batch([90], seed=1, tokens=3))
    assert set(seen.attention) == {"encoder", "decoder"}
    for weights in (*seen.attention.values(), seen.posteriors):
        np.testing.assert_allclose(weights.sum(-1), 1, rtol=2e-2)

    # The pictures have the 21 frames of the utterance, not those that training adds.
    assert seen.posteriors.shape[0] == seen.attention["encoder"].shape[-1] == 21
