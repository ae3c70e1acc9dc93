"""The table of the kinds of samples: one line each."""

from __future__ import annotations

from wenet_uio.dataset.kinds.audio.example import audio_example
from wenet_uio.dataset.kinds.conversation.example import conversation_example
from wenet_uio.dataset.kinds.kind import Kind
from wenet_uio.dataset.kinds.text.example import pair_example, text_example
from wenet_uio.dataset.kinds.to_speak.example import example_to_speak
from wenet_uio.dataset.types import (
    AudioUtterance,
    ConversationUtterance,
    PairUtterance,
    TextUtterance,
    Utterance,
    UtteranceToSpeak,
)

KINDS: dict[type[Utterance], Kind] = {
    AudioUtterance: Kind(audio_example),
    TextUtterance: Kind(text_example),
    PairUtterance: Kind(pair_example),
    ConversationUtterance: Kind(conversation_example),
    UtteranceToSpeak: Kind(example_to_speak),
}
"""{type of an utterance: its kind}."""
