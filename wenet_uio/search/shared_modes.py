"""Decode modes that several families share: those of CTC and of the attention decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wenet_uio.models.asr_model import ASRModel
from wenet_uio.models.interfaces import AttentionModel
from wenet_uio.search.attention_beam import attention_beam_search
from wenet_uio.search.ctc_path import ctc_greedy_search as greedy_search
from wenet_uio.search.ctc_prefix_score import CtcPrefixScore
from wenet_uio.search.decode import Decoding
from wenet_uio.search.rescoring import attention_rescoring as rescore
from wenet_uio.search.types import NBest


def ctc_greedy_search(batch: Decoding) -> list[NBest]:
    """Decode in the mode ctc_greedy_search."""
    return greedy_search(batch.ctc_log_probs, batch.lengths, batch.model.blank)


def ctc_prefix_beam_search(batch: Decoding) -> list[NBest]:
    """Decode in the mode ctc_prefix_beam_search."""
    return batch.ctc_prefixes


def attention(batch: Decoding[ASRModel]) -> list[NBest]:
    """Decode in the mode attention."""
    return _search_attention(batch, None)


def joint_ctc_attention(batch: Decoding[ASRModel]) -> list[NBest]:
    """Decode in the mode joint_ctc_attention."""
    options, model = batch.options, batch.model
    if options.ctc_weight == 0:
        return attention(batch)

    ctc = CtcPrefixScore(
        batch.ctc_log_probs, batch.lengths, options.ctc_weight, model.blank, model.eos
    )
    return _search_attention(batch, ctc)


def _search_attention(batch: Decoding[ASRModel], ctc: CtcPrefixScore | None) -> list[NBest]:
    """Search with the attention decoder, from the prompt to the finished text."""
    nbests = attention_beam_search(
        batch.model, batch.encoder_out, batch.lengths, batch.options, batch.prompts, ctc
    )
    rules = batch.prompts.rules
    if rules is not None:
        for row, nbest in enumerate(nbests):
            nbests[row] = [rules.finish(hypothesis) for hypothesis in nbest]

    return _set_languages(nbests, batch.prompts.languages)


def attention_rescoring(batch: Decoding[AttentionModel]) -> list[NBest]:
    """Decode in the mode attention_rescoring."""
    memory = batch.model.decoder_frames(batch.encoder_out, batch.lengths)
    reverse_weight = batch.options.reverse_weight
    if reverse_weight is None:  # as trained
        is_bidirectional = batch.model.decoder.bidirectional
        reverse_weight = batch.model.reverse_weight if is_bidirectional else 0.0

    prompts = batch.prompts
    nbests = rescore(
        batch.model,
        batch.ctc_prefixes,
        memory,
        batch.options.ctc_weight,
        reverse_weight,
        prompts.tokens,
    )
    return _set_languages(nbests, prompts.languages)


def _set_languages(nbests: list[NBest], languages: Sequence[str]) -> list[NBest]:
    """Return the hypotheses with the language of their utterance; `languages` is empty for a model
    without prompts.
    """
    if not languages:
        return nbests

    nbests_with_language: list[NBest] = []
    for nbest, language in zip(nbests, languages, strict=True):
        nbests_with_language.append([replace(item, language=language) for item in nbest])
    return nbests_with_language
