"""Whether an exported model recognises what its checkpoint recognises."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch

from wenet_uio.dataset.types import Batch
from wenet_uio.models.asr_model import ASRModel
from wenet_uio.search.decode import decode
from wenet_uio.search.types import DecodeOptions

MODES = ("ctc_greedy_search", "attention_rescoring")


@dataclass(frozen=True)
class Difference:
    """An utterance for which the exported model gives other tokens."""

    key: str
    mode: str
    checkpoint: tuple[int, ...]
    exported: tuple[int, ...]


@dataclass(frozen=True)
class Agreement:
    """What the check found."""

    utterances: int
    differences: tuple[Difference, ...]
    largest: float
    """Largest absolute difference of a CTC log-probability."""

    @property
    def differing(self) -> int:
        """Utterances that differ in any mode."""
        return len({difference.key for difference in self.differences})


class ExportedDecoder:
    """The runtime's `forward_attention_decoder` in the place of a model's decoder, for one utterance at a time."""

    def __init__(self, runtime: torch.jit.ScriptModule) -> None:
        self.runtime = runtime
        self.bidirectional = runtime.is_bidirectional_decoder()

    def __call__(
        self,
        memory: torch.Tensor,
        memory_mask: torch.Tensor,
        ys_in_pad: torch.Tensor,
        ys_in_lens: torch.Tensor,
        r_ys_in_pad: torch.Tensor,
        reverse_weight: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As Decoder.forward; the runtime makes mask and reversed tokens itself."""
        return self.runtime.forward_attention_decoder(ys_in_pad, ys_in_lens, memory[:1], reverse_weight)


class ExportedModel:
    """The runtime's methods behind the interface that the searches know, for one utterance at a time."""

    def __init__(self, runtime: torch.jit.ScriptModule, model: ASRModel) -> None:
        self.runtime = runtime
        self.decoder = ExportedDecoder(runtime)
        self.sos, self.eos = runtime.sos_symbol(), runtime.eos_symbol()
        self.blank, self.reverse_weight = model.blank, model.reverse_weight

    def encode(
        self,
        feats: torch.Tensor,
        feats_lengths: torch.Tensor,
        decoding_chunk_size: int = -1,
        num_decoding_left_chunks: int = -1,
        simulate_streaming: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The whole utterance (1, T, F) as one chunk -> (1, T', D), lengths (1,)."""
        empty = feats.new_zeros(0, 0, 0, 0)
        encoder_out, _, _ = self.runtime.forward_encoder_chunk(feats, 0, -1, empty, empty)
        return encoder_out, torch.tensor([encoder_out.size(1)])

    def ctc_log_probs(self, encoder_out: torch.Tensor, blank_penalty: float = 0.0) -> torch.Tensor:
        """(1, T', D) -> (1, T', V)."""
        return self.runtime.ctc_activation(encoder_out)


def utterances(batches: Iterable[Batch]) -> Iterator[tuple[str, torch.Tensor]]:
    """Keys and features (1, T, F) without padding."""
    for batch in batches:
        for key, feats, length in zip(batch.keys, batch.feats, batch.feats_lengths.tolist(), strict=True):
            yield key, feats[:length].unsqueeze(0)


@torch.inference_mode()
def compare(
    model: ASRModel, runtime: torch.jit.ScriptModule, examples: Iterable[tuple[str, torch.Tensor]], limit: int
) -> Agreement:
    """Decode the first `limit` examples (key, feats (1, T, F)) with checkpoint and exported model.

    Examples shorter than one window of the input layer have no encoder frames and are passed over.

    Raises:
        ValueError: when there is nothing to compare.
    """
    exported = ExportedModel(runtime, model.eval())
    options = DecodeOptions()
    differences: list[Difference] = []
    largest, count = 0.0, 0
    long_enough = ((key, feats) for key, feats in examples if feats.size(1) > runtime.right_context())
    for key, feats in islice(long_enough, limit):
        lengths = torch.tensor([feats.size(1)])
        expected = model.ctc_log_probs(model.encode(feats, lengths)[0])
        found = exported.ctc_log_probs(exported.encode(feats, lengths)[0])
        largest = max(largest, (expected - found).abs().max().item())
        ours = decode(model, feats, lengths, MODES, options)
        theirs = decode(exported, feats, lengths, MODES, options)
        for mode in MODES:
            tokens, exported_tokens = ours[mode][0][0].tokens, theirs[mode][0][0].tokens
            if tokens != exported_tokens:
                differences.append(Difference(key, mode, tokens, exported_tokens))
        count += 1
    if count == 0:
        raise ValueError("no utterance to check the exported model with")
    return Agreement(count, tuple(differences), largest)
