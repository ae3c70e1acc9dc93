"""From features to hypotheses, in one or several modes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from wenet_uio.models.asr_model import ASRModel
from wenet_uio.search.attention_beam import attention_beam_search
from wenet_uio.search.ctc_greedy import ctc_greedy_search
from wenet_uio.search.ctc_path import token_frames
from wenet_uio.search.ctc_prefix_beam import ctc_prefix_beam_search
from wenet_uio.search.rescoring import attention_rescoring
from wenet_uio.search.types import DecodeOptions, NBest, check_modes


@torch.inference_mode()
def decode(
    model: ASRModel,
    feats: torch.Tensor,
    feats_lengths: torch.Tensor,
    modes: Sequence[str],
    options: DecodeOptions,
) -> dict[str, list[NBest]]:
    """Decode a batch in each of `modes`; what modes share is computed once.

    Args:
        feats: (B, T, F).
        feats_lengths: (B,) frames.

    Returns:
        {mode: n-best hypotheses of each utterance}, modes in the order given.

    Raises:
        ValueError: for an unknown mode, before any work.
    """
    check_modes(modes)
    encoder_out, lengths = model.encode(
        feats,
        feats_lengths,
        options.decoding_chunk_size,
        options.num_decoding_left_chunks,
        options.simulate_streaming,
    )
    results: dict[str, list[NBest]] = {}
    log_probs = None
    if set(modes) - {"attention"} or options.token_times:
        log_probs = model.ctc_log_probs(encoder_out, options.blank_penalty)
    if "ctc_greedy_search" in modes:
        results["ctc_greedy_search"] = ctc_greedy_search(log_probs, lengths, model.blank)
    if "attention" in modes:
        results["attention"] = attention_beam_search(
            model, encoder_out, lengths, options.beam_size, options.length_penalty
        )
    if not {"ctc_prefix_beam_search", "attention_rescoring"}.isdisjoint(modes):
        results["ctc_prefix_beam_search"] = ctc_prefix_beam_search(log_probs, lengths, options.beam_size, model.blank)
    if "attention_rescoring" in modes:
        results["attention_rescoring"] = attention_rescoring(
            model,
            results["ctc_prefix_beam_search"],
            encoder_out,
            lengths,
            options.ctc_weight,
            _reverse_weight(model, options),
        )
    if options.token_times:
        results = {
            mode: [
                _timed(nbest, log_probs[utterance, : lengths[utterance]], model.blank)
                for utterance, nbest in enumerate(nbests)
            ]
            for mode, nbests in results.items()
        }
    return {mode: results[mode] for mode in modes}


def _reverse_weight(model: ASRModel, options: DecodeOptions) -> float:
    if options.reverse_weight is not None:
        return options.reverse_weight
    return model.reverse_weight if model.decoder.bidirectional else 0.0


def _timed(nbest: NBest, log_probs: torch.Tensor, blank: int) -> NBest:
    """The same hypotheses with the frame of each token; log_probs (T', V) of the utterance."""
    return [
        hypothesis
        if hypothesis.frames is not None
        else replace(hypothesis, frames=token_frames(log_probs, hypothesis.tokens, blank))
        for hypothesis in nbest
    ]
