"""From features to hypotheses, in one or several decode modes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import torch

from wenet_uio.families.paraformer.model import Paraformer
from wenet_uio.families.paraformer.search import (
    ScoredTokens,
    paraformer_beam_search,
    paraformer_greedy_search,
)
from wenet_uio.families.sensevoice.model import SenseVoice
from wenet_uio.families.transducer.model import Transducer
from wenet_uio.families.transducer.rnnt_beam import rnnt_beam_search
from wenet_uio.families.transducer.rnnt_greedy import rnnt_greedy_search
from wenet_uio.families.whisper.model import Whisper
from wenet_uio.families.whisper.timestamps import with_spans
from wenet_uio.models.arithmetic import autocast, dtype_for
from wenet_uio.models.asr_model import ASRModel
from wenet_uio.search.attention_beam import attention_beam_search
from wenet_uio.search.ctc_greedy import ctc_greedy_search
from wenet_uio.search.ctc_path import align_tokens
from wenet_uio.search.ctc_prefix_beam import ctc_prefix_beam_search
from wenet_uio.search.ctc_prefix_score import CtcPrefixScore
from wenet_uio.search.modes import PARTS, check_modes, check_parts
from wenet_uio.search.prefix_scorer import PrefixScorer
from wenet_uio.search.prompts import Prompts, prompts_of
from wenet_uio.search.rescoring import attention_rescoring
from wenet_uio.search.types import DecodeOptions, Hypothesis, NBest


class Search(NamedTuple):
    """How to search; the last three arguments of `decode`."""

    modes: Sequence[str]
    options: DecodeOptions
    scorers: Sequence[PrefixScorer] = ()
    """Hot words and a language model."""


class Decoding:
    """One batch in several modes; what modes share is computed once, when the first of them needs
    it.
    """

    def __init__(
        self,
        model: ASRModel,
        encoded: tuple[torch.Tensor, torch.Tensor],
        options: DecodeOptions,
        scorers: Sequence[PrefixScorer] = (),
    ) -> None:
        """`encoded`: encoder frames (B, T', D) and lengths (B,)."""
        self.model, self.options, self.scorers = model, options, scorers
        self.encoder_out, self.lengths = encoded

    @cached_property
    def ctc_log_probs(self) -> torch.Tensor:
        """CTC log-probabilities (B, T', V)."""
        return self.model.ctc_log_probs(self.encoder_out, self.options.blank_penalty)

    @cached_property
    def prompts(self) -> Prompts:
        """The tokens with which the decoder starts."""
        return prompts_of(self.model, self.encoder_out, self.lengths, self.options)

    @cached_property
    def ctc_prefixes(self) -> list[NBest]:
        """The hypotheses of CTC prefix beam search."""
        return ctc_prefix_beam_search(
            self.ctc_log_probs, self.lengths, self.options.beam_size, self.model.blank, self.scorers
        )

    @cached_property
    def scored_tokens(self) -> ScoredTokens:
        """The scores of all tokens, from a paraformer."""
        assert isinstance(self.model, Paraformer), "check_parts comes first"
        log_probs, predicted = self.model.predict(self.encoder_out, self.lengths)
        return ScoredTokens(log_probs, predicted.counts, self.model.token_frames(predicted))

    @property
    def silent(self) -> set[int]:
        """Labels that are no text."""
        return {self.model.blank, self.model.sos, self.model.eos}

    @property
    def reverse_weight(self) -> float:
        """The option, or the weight of the model if the option is None."""
        if self.options.reverse_weight is not None:
            return self.options.reverse_weight
        return self.model.reverse_weight if self.model.decoder.bidirectional else 0.0


def _ctc_greedy(batch: Decoding) -> list[NBest]:
    return ctc_greedy_search(batch.ctc_log_probs, batch.lengths, batch.model.blank)


def _ctc_prefix_beam(batch: Decoding) -> list[NBest]:
    return batch.ctc_prefixes


def _attention(batch: Decoding) -> list[NBest]:
    return _attended(batch, None)


def _joint(batch: Decoding) -> list[NBest]:
    options, model = batch.options, batch.model
    if options.ctc_weight == 0:
        return _attention(batch)
    ctc = CtcPrefixScore(
        batch.ctc_log_probs, batch.lengths, options.ctc_weight, model.blank, model.eos
    )
    return _attended(batch, ctc)


def _attended(batch: Decoding, ctc: CtcPrefixScore | None) -> list[NBest]:
    found = attention_beam_search(
        batch.model, batch.encoder_out, batch.lengths, batch.options, batch.prompts, ctc
    )
    if batch.prompts.rules is not None:
        tokens = batch.prompts.rules.tokens
        found = [[with_spans(hypothesis, tokens) for hypothesis in nbest] for nbest in found]
    return _with_languages(found, batch.prompts.languages)


def _rescoring(batch: Decoding) -> list[NBest]:
    memory = batch.model.decoder_frames(batch.encoder_out, batch.lengths)
    prompts = batch.prompts
    found = attention_rescoring(
        batch.model,
        batch.ctc_prefixes,
        memory,
        batch.options.ctc_weight,
        batch.reverse_weight,
        prompts.tokens,
    )
    return _with_languages(found, prompts.languages)


def _with_languages(nbests: list[NBest], languages: Sequence[str]) -> list[NBest]:
    """Add the language of each utterance to its hypotheses; `languages` is empty for a model
    without prompts.
    """
    if not languages:
        return nbests
    return [
        [replace(hypothesis, language=language) for hypothesis in nbest]
        for nbest, language in zip(nbests, languages, strict=True)
    ]


def _rnnt_greedy(batch: Decoding) -> list[NBest]:
    return rnnt_greedy_search(_transducer(batch), batch.encoder_out, batch.lengths)


def _rnnt_beam(batch: Decoding) -> list[NBest]:
    options = batch.options
    log_probs = batch.ctc_log_probs if options.transducer_weight < 1 else None
    return rnnt_beam_search(
        _transducer(batch),
        batch.encoder_out,
        batch.lengths,
        options.beam_size,
        log_probs,
        options.transducer_weight,
    )


def _transducer(batch: Decoding) -> Transducer:
    assert isinstance(batch.model, Transducer), "check_parts comes first"
    return batch.model


def _paraformer_greedy(batch: Decoding) -> list[NBest]:
    return paraformer_greedy_search(batch.scored_tokens, batch.silent)


def _paraformer_beam(batch: Decoding) -> list[NBest]:
    return paraformer_beam_search(batch.scored_tokens, batch.options.beam_size, batch.silent)


MODES: dict[str, Callable[[Decoding], list[NBest]]] = {
    "attention": _attention,
    "attention_rescoring": _rescoring,
    "ctc_greedy_search": _ctc_greedy,
    "ctc_prefix_beam_search": _ctc_prefix_beam,
    "joint_ctc_attention": _joint,
}
"""{name: function from a batch to the hypotheses of each utterance}."""
TRANSDUCER_MODES: dict[str, Callable[[Decoding], list[NBest]]] = {
    "rnnt_beam_search": _rnnt_beam,
    "rnnt_greedy_search": _rnnt_greedy,
}
"""As MODES, for models with a predictor and a joint network."""
PARAFORMER_MODES: dict[str, Callable[[Decoding], list[NBest]]] = {
    "paraformer_beam_search": _paraformer_beam,
    "paraformer_greedy_search": _paraformer_greedy,
}
"""As MODES, for paraformers."""
ALL_MODES = MODES | TRANSDUCER_MODES | PARAFORMER_MODES


@torch.inference_mode()
def decode(
    model: ASRModel,
    feats: torch.Tensor,
    feats_lengths: torch.Tensor,
    modes: Sequence[str],
    options: DecodeOptions,
    scorers: Sequence[PrefixScorer] = (),
) -> dict[str, list[NBest]]:
    """Decode a batch in each of `modes`, in the arithmetic `options.dtype` (None: fp32).

    What modes share is computed once.

    Args:
        feats: (B, T, F).
        feats_lengths: (B,) frames.
        scorers: hot words and language model; ctc_prefix_beam_search and attention_rescoring use
            them.

    Returns:
        {mode: n-best hypotheses of each utterance}, modes in the order given.

    Raises:
        ValueError: before any work, for an unknown mode or for a transducer mode with another
            model.
    """
    _check(model, modes, options)
    with autocast(feats.device, dtype_for(options.dtype or "fp32", feats.device)):
        if isinstance(model, SenseVoice):
            languages = (
                options.language
                if isinstance(options.language, tuple)
                else (options.language,) * len(feats)
            )
            encoded = model.encode_asked(feats, feats_lengths, languages, itn=options.itn)
        else:
            chunks = (
                options.decoding_chunk_size,
                options.num_decoding_left_chunks,
                options.simulate_streaming,
            )
            encoded = model.encode(feats, feats_lengths, *chunks)
        return decode_encoded(model, encoded, Search(modes, options, scorers))


@torch.inference_mode()
def decode_encoded(
    model: ASRModel,
    encoded: tuple[torch.Tensor, torch.Tensor],
    search: Search,
    ctc_prefixes: list[NBest] | None = None,
) -> dict[str, list[NBest]]:
    """As `decode`, from encoder frames (B, T', D) and their lengths (B,).

    Args:
        ctc_prefixes: what CTC prefix beam search found, if it ran before.
    """
    modes, options, scorers = search
    _check(model, modes, options)
    batch = Decoding(model, encoded, options, scorers)
    if ctc_prefixes is not None:
        batch.ctc_prefixes = ctc_prefixes
    return {
        mode: [_wanted(batch, row, nbest) for row, nbest in enumerate(ALL_MODES[mode](batch))]
        for mode in modes
    }


def _check(model: ASRModel, modes: Sequence[str], options: DecodeOptions) -> None:
    check_modes(modes)
    if isinstance(model, SenseVoice):
        _check_queries(options)
    else:
        _check_prompts(model, modes, options)
    no_attention = model.parallel_weight or model.decoder is None
    of_kinds = [
        mode
        for mode in modes
        if mode not in MODES or (no_attention and "attention_weight" in PARTS[mode])
    ]
    check_parts(model, of_kinds, options.transducer_weight)


def _check_queries(options: DecodeOptions) -> None:
    """Raise a ValueError if a SenseVoice does not have the options."""
    if options.decoding_chunk_size > 0 or options.simulate_streaming:
        raise ValueError(
            "decoding_chunk_size: a model sensevoice_small decodes with full context only"
        )
    if options.timestamps or options.task != DecodeOptions.task:
        raise ValueError("task and timestamps are options of models whisper; this model is another")


def _check_prompts(model: ASRModel, modes: Sequence[str], options: DecodeOptions) -> None:
    """Raise a ValueError if the options are for a whisper and the model is another, or for another
    mode.
    """
    given = options.language or options.timestamps or options.task != DecodeOptions.task
    if given and not isinstance(model, Whisper):
        raise ValueError(
            "language, task and timestamps are options of models whisper; this model is another"
        )
    if options.itn:
        raise ValueError("itn is an option of models sensevoice_small; this model is another")
    if options.timestamps and (others := [mode for mode in modes if mode != "attention"]):
        raise ValueError(f"timestamps: only the mode attention has them, found {', '.join(others)}")


def _wanted(batch: Decoding, row: int, nbest: NBest) -> NBest:
    """The first `options.nbest` hypotheses of utterance `row`, with frames of the tokens if
    `options.token_times`.
    """
    nbest = nbest[: batch.options.nbest]
    if not batch.options.token_times or batch.model.ctc_weight == 0 < batch.model.attention_weight:
        return nbest  # CTC that is not trained knows no times
    return [
        _timed(hypothesis, batch.ctc_log_probs[row, : batch.lengths[row]], batch.model.blank)
        for hypothesis in nbest
    ]


def _timed(hypothesis: Hypothesis, log_probs: torch.Tensor, blank: int) -> Hypothesis:
    """Add frame and confidence of each token to the hypothesis; log_probs (T', V) are those of its
    utterance.
    """
    if hypothesis.frames is not None:
        return hypothesis
    aligned = align_tokens(log_probs, hypothesis.tokens, blank)
    if aligned is None:
        return hypothesis
    path, _ = aligned
    return replace(hypothesis, frames=path.peaks, confidences=tuple(map(math.exp, path.scores)))
