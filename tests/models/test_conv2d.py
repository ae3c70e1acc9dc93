import copy

import pytest
import torch
from torch import nn

from wenet_uio.models import conv2d
from wenet_uio.models.conv2d import NARROW, Conv2d, channels_last, projected, spread


def gradients(layer: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    out = layer(x).relu_()  # in place, as the input layers do
    batch, channels, frames, bins = out.shape
    grad = (
        torch.linspace(-1, 1, out.numel()).view(batch, frames, bins, channels).permute(0, 3, 1, 2)
    )
    out.backward(grad.contiguous() if x.is_contiguous() else grad)
    return [out.detach(), x.grad, *(weight.grad for weight in layer.parameters())]


def layers(kernel: int, stride: int | tuple[int, int]) -> tuple[Conv2d, nn.Conv2d]:
    """Ours and torch's, with the same weights."""
    torch.manual_seed(0)
    ours = channels_last(Conv2d(NARROW, 12, kernel, stride))
    torchs = channels_last(nn.Conv2d(NARROW, 12, kernel, stride))
    torchs.load_state_dict(ours.state_dict())
    return ours, torchs


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize(
    ("kernel", "stride", "frames", "bins"),
    [(3, 2, 20, 9), (3, 2, 3, 3), (5, 3, 21, 10), (3, (1, 2), 7, 8), (3, 1, 5, 4)],
)
def test_values_and_gradients_are_those_of_torch(kernel, stride, frames, bins, layout):
    ours, torchs = layers(kernel, stride)
    x = torch.randn(2, NARROW, frames, bins).contiguous(memory_format=layout)
    for one, other in zip(gradients(ours, x), gradients(torchs, x), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("stride", [2, 3, (1, 2)])
@pytest.mark.parametrize("bins", [3, 4])
def test_a_single_column_in_bf16_is_that_of_fp32(bins, stride, layout):
    """In each of several calls: a fault of a kernel depended on what memory held before."""
    ours, torchs = layers(3, stride)
    x = torch.randn(2, NARROW, 45, bins).contiguous(memory_format=layout)
    expected = torchs(x)
    for training in (True, False):
        ours.train(training)
        for _ in range(4):
            torch.full((100_000,), float("nan"))
            with torch.autocast("cpu", torch.bfloat16):
                torch.testing.assert_close(ours(x).float(), expected, rtol=0.05, atol=0.05)


def test_gradients_of_the_weights_are_made_by_matrix_products_in_fp32_only(monkeypatch):
    calls = []
    monkeypatch.setattr(conv2d, "_weight_gradient", lambda *_: calls.append(1))
    ours, _ = layers(3, 2)
    x = torch.randn(1, NARROW, 9, 9)
    ours(x).sum().backward()
    assert calls == [1]
    with torch.autocast("cpu", torch.bfloat16):
        out = ours(x)
    out.float().sum().backward()
    copy.deepcopy(ours).double()(x.double()).sum().backward()
    Conv2d(NARROW - 1, 2, 3, 2)(x[:, 1:]).sum().backward()
    assert calls == [1]


def test_frozen_weights_get_no_gradient():
    ours, torchs = layers(3, 2)
    for layer in (ours, torchs):
        layer.weight.requires_grad_(False)
    x = torch.randn(1, NARROW, 9, 9)
    for one, other in zip(gradients(ours, x), gradients(torchs, x), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_layers_can_be_scripted():
    ours, torchs = layers(3, 2)
    x = torch.randn(1, NARROW, 9, 9)
    scripted = torch.jit.script(ours.eval())
    torch.testing.assert_close(scripted(x), torchs(x))


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_projections_of_training_are_those_of_decoding(layout):
    linear = nn.Linear(5 * 4, 7)
    maps = torch.randn(2, 5, 6, 4).contiguous(memory_format=layout).requires_grad_()
    found = []
    for out in (projected(maps, linear), linear(spread(maps))):
        assert out.shape == (2, 6, 7)
        found.append((out, *torch.autograd.grad(out.square().sum(), (maps, *linear.parameters()))))
    for ours, other in zip(*found, strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-4)
