"""Sources of conversations: JSON lines with turns of text and audio."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator

from wenet_uio.config.source import Buckets, SourceConf, SourceType
from wenet_uio.dataset.kinds.conversation.corpus import ConversationCorpus
from wenet_uio.dataset.sources.lists import expanded

SECONDS_OF_TOKEN = 0.08
"""Default of token_equivalent_duration; a source without the key takes that of its group."""


class ConversationConf(SourceConf):
    """Conversations, as NeMo has them."""

    manifest_filepath: Buckets
    token_equivalent_duration: Annotated[float, Field(gt=0)] | None = None
    """Seconds of audio that count as one token; default 0.08."""
    audio_locator_tag: str = "[audio]"
    """Stands for an audio turn in the text of a conversation."""

    @field_validator("audio_locator_tag", mode="before")
    @classmethod
    def _in_brackets(cls, tag: Any) -> Any:
        """Return the tag; [audio] without quotes is a list in yaml."""
        return f"[{', '.join(map(str, tag))}]" if isinstance(tag, list) else tag


def _open(conf: ConversationConf) -> list[ConversationCorpus]:
    seconds = conf.token_equivalent_duration or SECONDS_OF_TOKEN
    return [
        ConversationCorpus(path, seconds, conf.audio_locator_tag)
        for path in expanded(conf.manifest_filepath)
    ]


CONVERSATION = SourceType(ConversationConf, _open, is_text=True)
