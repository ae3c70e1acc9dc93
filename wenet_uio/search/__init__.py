"""Searches: from encoder output to hypotheses."""

from wenet_uio.families.transducer.rnnt_beam import rnnt_beam_search
from wenet_uio.families.transducer.rnnt_greedy import rnnt_greedy_search
from wenet_uio.search.attention_beam import attention_beam_search
from wenet_uio.search.ctc_greedy import ctc_greedy_search
from wenet_uio.search.ctc_prefix_beam import ctc_prefix_beam_search
from wenet_uio.search.decode import ALL_MODES, MODES, decode
from wenet_uio.search.modes import check_modes
from wenet_uio.search.rescoring import attention_rescoring
from wenet_uio.search.types import DecodeOptions, Hypothesis, NBest

__all__ = [
    "ALL_MODES",
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
    "rnnt_beam_search",
    "rnnt_greedy_search",
]
