"""The depthwise convolution over time."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from wenet_uio.models.convolution import ConvolutionModule
from wenet_uio.models.encoders.conformer.conf import ConformerEncoderConf

EVERY_SIZE_IN_BFLOAT16 = """
import itertools
import torch
from wenet_uio.models.convolution import DepthwiseConv

torch.set_num_threads(1)
sizes = itertools.product((1, 8, 15, 16, 17, 24, 256), (3, 14, 15, 31), (False, True), (1, 2))
for channels, kernel, causal, stride in sizes:
    if not causal and kernel % 2 == 0:
        continue
    convolution = DepthwiseConv(channels, kernel, causal, stride=stride)
    x = torch.randn(2, 50, channels)
    expected = convolution(convolution.remember(x, None)[0])
    with torch.autocast("cpu", torch.bfloat16):
        result = convolution(convolution.remember(x, None)[0])
    result.sum().backward()
    torch.testing.assert_close(result.float(), expected, atol=0.05, rtol=0.05)
    print(channels, kernel, causal, stride)
"""


@pytest.mark.all
def test_every_size_ends_in_bfloat16() -> None:
    """oneDNN's generation of code never ended for 16 channels or fewer and 15 taps or more."""
    command = [sys.executable, "-c", EVERY_SIZE_IN_BFLOAT16]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == 7 * (3 + 4) * 2


def test_a_module_with_a_batch_norm_has_the_same_frames_in_torchscript() -> None:
    torch.manual_seed(0)
    module = ConvolutionModule(ConformerEncoderConf(output_size=16)).eval()
    scripted = torch.jit.script(module)
    x, padded = torch.randn(2, 9, 16), torch.arange(9).view(1, 9, 1) >= torch.tensor([[[9]], [[5]]])

    torch.testing.assert_close(scripted(x, padded, None)[0], module(x, padded)[0])
