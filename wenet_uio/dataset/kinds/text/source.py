"""Sources of texts without audio: one text a line, or pairs of texts in two files."""

from __future__ import annotations

from wenet_uio.config.source import Paths, SourceConf, SourceType
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.kinds.text.corpus import TextCorpus, questions_of
from wenet_uio.dataset.sources.lists import expanded


class TextConf(SourceConf):
    """Text without audio, one text a line."""

    paths: Paths


class PairConf(SourceConf):
    """Two text files that are paired line by line."""

    source_paths: Paths
    target_paths: Paths
    questions_path: Paths | None = None
    """Text files of questions, one a line. Each pair gets one of them as its field `question`."""


def _open_texts(conf: TextConf) -> list[TextCorpus]:
    return [TextCorpus(path) for path in expanded(conf.paths)]


def _open_pairs(conf: PairConf) -> list[TextCorpus]:
    """Return the corpora of a source of pairs of texts: one for each pair of files."""
    targets, sources = expanded(conf.target_paths), expanded(conf.source_paths)
    if len(targets) != len(sources):
        raise ListError(f"txt_pair: {len(sources)} source_paths for {len(targets)} target_paths")

    questions = questions_of(expanded(conf.questions_path)) if conf.questions_path else ()
    return [
        TextCorpus(target, source, questions)
        for target, source in zip(targets, sources, strict=True)
    ]


TEXT = SourceType(TextConf, _open_texts, is_text=True)
PAIR = SourceType(PairConf, _open_pairs, is_text=True)
