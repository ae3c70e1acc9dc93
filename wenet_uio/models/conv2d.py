"""Convolutions of the input layers, with channels last, and the projection of what they give.

Conv2d has a faster gradient of its weights on CPUs. In fp32 with channels last, oneDNN 3.10 takes
longer for this gradient than matrix products over the windows of the input. Both passes of a layer
of 144 channels took 1.09 times as long with AVX-512 and 1.37 times with AVX2, of 512 channels 1.76
times. Narrow layers and bf16 gain nothing.
"""

from typing import Any, TypeVar

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import conv2d

AnyModule = TypeVar("AnyModule", bound=nn.Module)

NARROW = 128
"""Below so many input channels, the copies of the windows take longer than they save."""


class Conv2d(nn.Conv2d):
    """nn.Conv2d without padding, dilation and groups, with the gradient of `convolved`."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int | tuple[int, int]
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Convolve (B, C, T, F) -> (B, C', T', F')."""
        stride = (self.stride[0], self.stride[1])
        if input.size(3) < self.kernel_size[1] + stride[1]:
            # One column is the result. In bf16 on CPUs with AMX, oneDNN 3.10 reads outside of the
            # input if the stride along that axis is not 1.
            input = input[:, :, :, : self.kernel_size[1]]
            stride = (stride[0], 1)

        if self.training:
            return convolved(input, self.weight, self.bias, stride)
        return conv2d(input, self.weight, self.bias, stride)


@torch.jit.unused
def convolved(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: tuple[int, int]
) -> torch.Tensor:
    """Convolve x (B, C, T, F) with weights (C', C, K, K) -> (B, C', T', F') in training."""
    plain = x.device.type != "cpu" or x.dtype != torch.float32 or weight.dtype != torch.float32
    if (
        plain
        or x.size(1) < NARROW
        or torch.is_autocast_enabled("cpu")
        or torch.compiler.is_compiling()
    ):
        return conv2d(x, weight, bias, stride)

    return _Convolution.apply(x, weight, bias, stride)


def channels_last(module: AnyModule) -> AnyModule:
    """Store weights with channels last: about 1.3 times as fast on CPUs, and the layout that tensor
    cores need.
    """
    # The stub of Module.to lacks the overload with memory_format alone, which torch documents.
    return module.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


def spread(x: torch.Tensor) -> torch.Tensor:
    """Put channels and bins side by side: (B, C, T, F) -> (B, T, C * F)."""
    return x.transpose(1, 2).flatten(2)


def projected(x: torch.Tensor, linear: nn.Linear) -> torch.Tensor:
    """Compute `linear(spread(x))` of x (B, C, T, F) -> (B, T, D).

    Convolutions leave their channels last in memory. So x is not copied, as `spread` does, but the
    weights, which are smaller, are brought into its order.
    """
    weight = (
        linear.weight.view(linear.out_features, x.size(1), x.size(3)).transpose(1, 2).flatten(1)
    )
    return nn.functional.linear(x.permute(0, 2, 3, 1).flatten(2), weight, linear.bias)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: tuple[int, int]
    ) -> torch.Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        ctx.save_for_backward(x, weight)
        ctx.stride = stride
        return conv2d(x, weight, bias, stride)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad = grad.contiguous(memory_format=torch.channels_last)
        to_x, to_weight, to_bias, _ = ctx.needs_input_grad
        return (
            _input_gradient(x, weight, grad, ctx.stride) if to_x else None,
            _weight_gradient(x, weight.shape, grad, ctx.stride) if to_weight else None,
            grad.sum((0, 2, 3)) if to_bias else None,
            None,
        )


def _input_gradient(
    x: torch.Tensor, weight: torch.Tensor, grad: torch.Tensor, stride: tuple[int, int]
) -> torch.Tensor:
    """Return the gradient of x; unlike torch.nn.grad.conv2d_input it makes no copy of the size of
    x.
    """
    backward = torch.ops.aten.convolution_backward
    return backward(
        grad, x, weight, None, stride, (0, 0), (1, 1), False, (0, 0), 1, (True, False, False)
    )[0]


def _weight_gradient(
    x: torch.Tensor, shape: torch.Size, grad: torch.Tensor, stride: tuple[int, int]
) -> torch.Tensor:
    """Return the gradient of weights (C', C, K, K) from x and the gradient of the output, both with
    channels last.
    """
    channels_out, channels, height, width = shape
    x, grad = x.permute(0, 2, 3, 1), grad.permute(0, 2, 3, 1)
    batch, rows, columns, _ = grad.shape
    gradients = grad.reshape(-1, channels_out).t()
    result = x.new_empty(channels_out, height, width * channels)
    # Next to each other in memory: the channels of `width` columns. One kernel row at a time bounds
    # the copies.
    strides = (x.stride(0), stride[0] * x.stride(1), stride[1] * x.stride(2), 1)
    for row in range(height):
        windows = x[:, row:].as_strided((batch, rows, columns, width * channels), strides)
        result[:, row] = gradients @ windows.reshape(-1, width * channels)

    return result.view(channels_out, height, width, channels).permute(0, 3, 1, 2)
