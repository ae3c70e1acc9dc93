"""Searches: from encoder output to hypotheses."""

from wenet_uio.search.attention_beam import attention_beam_search
from wenet_uio.search.ctc_path import ctc_greedy_search
from wenet_uio.search.ctc_prefix_beam import ctc_prefix_beam_search
from wenet_uio.search.decode import decode
from wenet_uio.search.modes import MODES, check_modes, known_modes
from wenet_uio.search.rescoring import attention_rescoring
from wenet_uio.search.types import DecodeOptions, Hypothesis, NBest

__all__ = [
    "MODES",
    "DecodeOptions",
    "Hypothesis",
    "NBest",
    "attention_beam_search",
    "attention_rescoring",
    "check_modes",
    "ctc_greedy_search",
    "ctc_prefix_beam_search",
    "decode",
    "known_modes",
]
