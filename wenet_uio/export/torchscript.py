"""Export to TorchScript for WeNet's C++ runtime: a scripted module with the methods that the
runtime calls.
"""

from __future__ import annotations

import io
import warnings

import torch
from torch import nn

from wenet_uio.models.asr_model import ASRModel
from wenet_uio.models.ctc import NO_CHUNKS
from wenet_uio.models.encoder import Encoder


class RuntimeModel(nn.Module):
    """The parts of a recogniser that decoding needs, with the methods that the runtime calls.

    Submodules keep their names, so the weights have the names of the checkpoint.
    """

    def __init__(self, model: ASRModel) -> None:
        super().__init__()
        self.encoder = model.encoder
        self.ctc = model.ctc
        self.decoder = model.decoder
        self.sos = model.sos
        self.eos = model.eos
        self.bidirectional = model.decoder.bidirectional

    @torch.jit.export
    def subsampling_rate(self) -> int:
        """Return the feature frames per encoder frame."""
        return self.encoder.embed.subsampling_rate

    @torch.jit.export
    def right_context(self) -> int:
        """Return the feature frames that an encoder frame depends on after its first."""
        return self.encoder.embed.right_context

    @torch.jit.export
    def sos_symbol(self) -> int:
        """Return the label that starts every hypothesis."""
        return self.sos

    @torch.jit.export
    def eos_symbol(self) -> int:
        """Return the label that ends every hypothesis."""
        return self.eos

    @torch.jit.export
    def is_bidirectional_decoder(self) -> bool:
        """Tell whether `forward_attention_decoder` can score right to left."""
        return self.bidirectional

    @torch.jit.export
    def forward_encoder_chunk(
        self,
        xs: torch.Tensor,
        offset: int,
        required_cache_size: int,
        att_cache: torch.Tensor,
        cnn_cache: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Encode one chunk of one utterance; see Encoder.forward_chunk."""
        return self.encoder.forward_chunk(xs, offset, required_cache_size, att_cache, cnn_cache)

    @torch.jit.export
    def ctc_activation(self, xs: torch.Tensor) -> torch.Tensor:
        """Compute CTC log-probabilities (B, T', V) of encoder frames (B, T', D)."""
        return self.ctc.log_softmax(xs)

    @torch.jit.export
    def forward_attention_decoder(
        self,
        hyps: torch.Tensor,
        hyps_lens: torch.Tensor,
        encoder_out: torch.Tensor,
        reverse_weight: float = 0.0,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Score the hypotheses of one utterance; see Decoder.score_hypotheses."""
        return self.decoder.score_hypotheses(hyps, hyps_lens, encoder_out, self.eos, reverse_weight)


def check_encoder(encoder: Encoder) -> None:
    """Raise a ValueError for an encoder that feeds predictions between its blocks."""
    inter = encoder.inter_ctc
    if inter is not None and inter.conditioning is not None:
        raise ValueError(
            f"{NO_CHUNKS}, or export whole utterances to ONNX: the runtime encodes chunks with "
            "caches"
        )


def to_torchscript(model: ASRModel, *, quantize: bool = False) -> bytes:
    """Return the content of `final.zip`.

    With `quantize`, linear layers have int8 weights, and activations are quantised at run time.

    Raises:
        ValueError: see `check_encoder`.
    """
    check_encoder(model.encoder)
    runtime: nn.Module = RuntimeModel(model).eval()
    with warnings.catch_warnings():
        # torch recommends torch.export, but the runtime loads only TorchScript.
        warnings.simplefilter("ignore", DeprecationWarning)
        if quantize:
            runtime = torch.ao.quantization.quantize_dynamic(
                runtime, {nn.Linear}, dtype=torch.qint8
            )

        content = io.BytesIO()
        torch.jit.save(torch.jit.script(runtime), content)

    return content.getvalue()


def from_torchscript(content: bytes) -> torch.jit.ScriptModule:
    """Load the content of `final.zip`, as the runtime does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.load(io.BytesIO(content), map_location="cpu")
