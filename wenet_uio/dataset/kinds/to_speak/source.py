"""Sources of texts that an operator of the user speaks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wenet_uio.config.source import Buckets, Paths, SourceConf, SourceType
from wenet_uio.dataset.kinds.to_speak.corpus import TtsTextCorpus, speakers_of
from wenet_uio.dataset.sources.lists import expanded
from wenet_uio.dataset.sources.remote_manifest import local_manifest


class ToSpeakConf(SourceConf):
    """Texts that an operator of the user speaks: NeMo's manifests, or plain text."""

    manifest_filepath: Buckets
    speakers_filepath: Paths | None = None
    """Files of speakers, separated by blanks or line ends. Each text gets one of them in each epoch
    as its field `speaker`, unless its line states a `speaker`."""
    seconds_per_character: Annotated[float, Field(gt=0)] = 0.15
    """Seconds of the longest speech of a character. The plan counts them, and 0.5 s for each text,
    unless a line states its `duration`."""


def _open(conf: ToSpeakConf) -> list[TtsTextCorpus]:
    """Return a corpus for each file."""
    speakers = speakers_of(expanded(conf.speakers_filepath)) if conf.speakers_filepath else ()
    paths = map(local_manifest, expanded(conf.manifest_filepath))
    return [TtsTextCorpus(path, conf.seconds_per_character, speakers) for path in paths]


TO_SPEAK = SourceType(ToSpeakConf, _open)
