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
        kernel_width = self.kernel_size[1]
        stride = (self.stride[0], self.stride[1])
        has_one_column = input.size(3) < kernel_width + stride[1]
        if has_one_column:
            # In bf16 on CPUs with AMX, oneDNN 3.10 reads outside of the input if the stride along
            # that axis is not 1.
            input = input[:, :, :, :kernel_width]
            stride = (stride[0], 1)

        if self.training:
            return convolved(input, self.weight, self.bias, stride)
        return conv2d(input, self.weight, self.bias, stride)


@torch.jit.unused
def convolved(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: tuple[int, int]
) -> torch.Tensor:
    """Convolve x (B, C, T, F) with weights (C', C, K, K) -> (B, C', T', F') in training; on CPUs in
    fp32 with a gradient of the weights that is faster than torch's.
    """
    in_fp32 = x.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    is_slow_in_torch = x.device.type == "cpu" and in_fp32 and x.size(1) >= NARROW
    if is_slow_in_torch and not torch.compiler.is_compiling():
        return _Convolution.apply(x, weight, bias, stride)

    return conv2d(x, weight, bias, stride)


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
    _, channels, _, bins = x.shape
    weight = linear.weight.view(linear.out_features, channels, bins)
    weight = weight.transpose(1, 2).flatten(1)  # (D, F * C)
    frames = x.permute(0, 2, 3, 1).flatten(2)  # (B, T, F * C)
    return nn.functional.linear(frames, weight, linear.bias)


class _Convolution(torch.autograd.Function):
    """conv2d of x (B, C, T, F) with weights (C', C, K, K), and its gradients."""

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
        of_x = of_weight = of_bias = None
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        if needs_x:
            of_x = _input_gradient(x, weight, grad, ctx.stride)
        if needs_weight:
            of_weight = _weight_gradient(x, weight.shape, grad, ctx.stride)
        if needs_bias:
            of_bias = grad.sum((0, 2, 3))

        return of_x, of_weight, of_bias, None


def _input_gradient(
    x: torch.Tensor, weight: torch.Tensor, grad: torch.Tensor, stride: tuple[int, int]
) -> torch.Tensor:
    """Return the gradient of x; unlike torch.nn.grad.conv2d_input it makes no copy of the size of
    x.
    """
    # Of conv2d: no bias, padding 0, dilation 1, not transposed, one group; the gradient of x alone.
    gradient, _, _ = torch.ops.aten.convolution_backward(
        grad, x, weight, None, stride, (0, 0), (1, 1), False, (0, 0), 1, (True, False, False)
    )
    return gradient


def _weight_gradient(
    x: torch.Tensor, shape: torch.Size, grad: torch.Tensor, stride: tuple[int, int]
) -> torch.Tensor:
    """Return the gradient of weights (C', C, K, K) from the input x (B, C, T, F) and the gradient of
    the output (B, C', T', F'), both with channels last: the sum, over all windows of the input, of
    the window times the gradient of its output.
    """
    channels_out, channels, height, width = shape
    x = x.permute(0, 2, 3, 1)  # (B, T, F, C)
    grad = grad.permute(0, 2, 3, 1)  # (B, T', F', C')
    batch, rows, columns, _ = grad.shape
    gradients = grad.reshape(-1, channels_out).t()  # (C', B * T' * F')
    result = x.new_empty(channels_out, height, width * channels)

    # A kernel row of a window is the channels of `width` columns, next to each other in memory. One
    # row at a time bounds the copies.
    strides = (x.stride(0), stride[0] * x.stride(1), stride[1] * x.stride(2), 1)
    for row in range(height):
        windows = x[:, row:].as_strided((batch, rows, columns, width * channels), strides)
        result[:, row] = gradients @ windows.reshape(-1, width * channels)

    return result.view(channels_out, height, width, channels).permute(0, 3, 1, 2)
