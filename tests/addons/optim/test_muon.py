from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import nn

from tests.support.train.tiny import UNITS, TinyModel, small_config, tiny_config
from tests.train.test_waits import KINDS
from wenet_uio.addons.optim.muon import Muon, hidden_matrices, orthogonal_matrices
from wenet_uio.config import ConfigError
from wenet_uio.models.build import build_model
from wenet_uio.train.optimizer import build_optimizer, load_optimizer_state, optimizer_state

MUON = {"optim": "muon", "optim_conf": {"lr": 0.02, "weight_decay": 0.1}}


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 7), nn.Tanh(), nn.Linear(7, UNITS + 1)
    )


def train(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], steps: range) -> None:
    for step in steps:
        random = torch.Generator().manual_seed(step)
        model.zero_grad()
        model(torch.randn(4, 6, generator=random)).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()


def same(first: nn.Module, second: nn.Module) -> bool:
    return all(
        torch.equal(*pair) for pair in zip(first.parameters(), second.parameters(), strict=True)
    )


def test_matrices_take_the_steps_of_muon_and_the_other_weights_those_of_adamw() -> None:
    ours, reference = network(), network()
    train(ours, [build_optimizer(ours, tiny_config(dtype="bf16", **MUON))], range(20))
    matrices = [reference[0].weight, reference[2].weight]
    others = [reference[0].bias, reference[2].bias, reference[4].weight, reference[4].bias]
    rates = {"lr": 0.02, "weight_decay": 0.1}
    muon = torch.optim.Muon(matrices, adjust_lr_fn="match_rms_adamw", **rates)
    train(reference, [muon, torch.optim.AdamW(others, **rates)], range(20))
    for first, second in zip(ours.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(first, second)


@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d])
def test_a_convolution_takes_the_step_of_its_outputs_by_all_its_inputs(
    kind: type[nn.Conv1d | nn.Conv2d],
) -> None:
    layer = kind(4, 6, 3)
    matrix = nn.Parameter(layer.weight.detach().flatten(1))
    for weight in (layer.weight, matrix):
        values = torch.randn(matrix.shape, generator=torch.Generator().manual_seed(2))
        weight.grad = values.reshape(weight.shape)
        Muon([weight], [weight], **tiny_config(**MUON).optim_conf.model_dump()).step()
    torch.testing.assert_close(layer.weight.flatten(1), matrix)


@pytest.mark.parametrize("shape", [(1, 2, 2), (3, 4, 9), (2, 9, 4), (1, 64, 64), (2, 16, 200)])
def test_a_step_has_singular_values_near_1_and_the_same_vectors(shape: tuple[int, ...]) -> None:
    gradient = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    step = orthogonal_matrices(gradient, 5)
    assert step.shape == shape
    values = torch.linalg.svdvals(step)
    large = torch.linalg.svdvals(gradient) > 0.01 * gradient.norm(dim=(1, 2))[:, None]
    assert 0.5 < values[large].min() <= values.max() < 1.3
    left, _, right = torch.linalg.svd(gradient, full_matrices=False)
    inner = left.mT @ step @ right.mT
    torch.testing.assert_close(
        inner, torch.diag_embed(inner.diagonal(dim1=1, dim2=2)), atol=1e-3, rtol=0
    )


def test_a_gradient_of_zeros_gives_a_step_of_zeros() -> None:
    assert not orthogonal_matrices(torch.zeros(1, 3, 4), 5).any()


@pytest.mark.parametrize("kind", KINDS)
def test_matrices_are_hidden_layers_of_each_family(kind: str) -> None:
    config = small_config(**KINDS[kind])
    model = build_model(config)
    units = config.vocabulary_size or config.family.vocabulary(config).size
    names = {id(weight): name for name, weight in model.named_parameters()}
    matrices = [names[id(weight)] for weight in hidden_matrices(model, units)]
    assert len(matrices) == len(set(matrices))
    assert any("encoder" in name for name in matrices)
    outputs = ("ctc_lo", "output_layer", "ffn_out", "depthwise_conv", "embed_tokens")
    assert not [name for name in matrices if any(part in name for part in outputs)]


def test_a_state_that_is_saved_and_loaded_continues_bit_by_bit() -> None:
    straight, before, after = network(), network(), network(seed=1)
    config = tiny_config(**MUON)
    train(straight, [build_optimizer(straight, config)], range(12))
    first = build_optimizer(before, config)
    train(before, [first], range(7))
    after.load_state_dict(before.state_dict())
    second = build_optimizer(after, config)
    load_optimizer_state(after, second, optimizer_state(before, first))
    train(after, [second], range(7, 12))
    assert same(straight, after)


def test_a_weight_without_gradient_stays_and_modules_have_their_own_rates() -> None:
    model = TinyModel()
    keys = {"optim": "muon", "optim_conf": {"lr": [0.5, 0.1], "modules": ["hidden"]}}
    optimizer = build_optimizer(model, tiny_config(**keys))
    assert isinstance(optimizer, Muon)
    assert [(group["base_lr"], len(group["params"])) for group in optimizer.param_groups] == [
        (0.5, 2),
        (0.1, 2),
    ]
    before = model.output.weight.clone()
    hidden = model.hidden.weight.clone()
    model.hidden.weight.sum().backward()
    optimizer.step()
    assert torch.equal(model.output.weight, before)
    assert not torch.equal(model.hidden.weight, hidden)


def test_engines_that_share_weights_are_refused() -> None:
    with pytest.raises(ConfigError, match="muon needs the whole of each weight.*use torch_ddp"):
        tiny_config(optim="muon", train_engine="torch_fsdp")
