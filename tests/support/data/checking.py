"""Audio files and the call of the check, for tests with faulty lists."""

from __future__ import annotations

from collections import defaultdict

import soundfile

from wenet_uio.config.dataset import DatasetConf
from wenet_uio.prepare.diagnose.check import Reading, check_corpus
from wenet_uio.prepare.diagnose.check_shards import opened_for_check
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

UNITS = ["<blank>", "<unk>", "<sos/eos>", "a", "b", "c", "z"]
TOKENIZER = Tokenizer(CharSplitter(), {unit: number for number, unit in enumerate(UNITS)})


def write(path, samples, rate=16000, kind=None):
    """Write 16-bit audio; returns the path as a string."""
    soundfile.write(path, samples, rate, subtype="PCM_16", format=kind)
    return str(path)


def check(data_list, data_type, processes=2, tokenizer=TOKENIZER, filters=True, audio=True):
    reading = Reading(DatasetConf(), tokenizer, filters)
    with opened_for_check(str(data_list), data_type) as (corpus, not_indexed):
        return check_corpus(corpus, not_indexed, reading, audio=audio, processes=processes)


def keys_by_kind(report):
    found = defaultdict(list)
    for finding in report.findings:
        found[finding.kind].append(finding.key)
    return {kind: sorted(keys) for kind, keys in found.items()}
