"""Whisper: a decoder that starts with a prompt of language and task."""

from __future__ import annotations

from wenet_uio.addons.families.whisper.conf import pad_where_all_frames_are_needed
from wenet_uio.config.checkpoint_layout import CheckpointLayout
from wenet_uio.config.decode_modes import ATTENTION_CTC_MODES, RECIPE_MODES
from wenet_uio.config.family import (
    DecodingRules,
    ExchangeRules,
    Family,
    PartRules,
    TrainingRules,
)
from wenet_uio.config.model import CtcAttentionConf
from wenet_uio.config.named_code import Loaded

_FOLDER = "wenet_uio.addons.families.whisper"
WHISPER = Family(
    name="whisper",
    section=CtcAttentionConf,
    build=Loaded(f"{_FOLDER}.model:build"),
    vocabulary=Loaded(f"{_FOLDER}.model:config_vocabulary"),
    special_tokens=Loaded(f"{_FOLDER}.tokenizer:special_tokens_in"),
    parts=PartRules(complete=pad_where_all_frames_are_needed),
    training=TrainingRules(
        # All frames of 30 s cost ten times the encoder of 3 s. See silence.py.
        fine_tuning={"dataset_conf": {"log_mel_spectrogram_conf": {"pad_in_training": False}}},
        notes=(
            "whisper: texts are learned as the data has them, with capitals and punctuation as written",
            "whisper: timestamps are not trained: each text follows <|notimestamps|>",
        ),
    ),
    decoding=DecodingRules(
        modes=ATTENTION_CTC_MODES,
        recipe_modes=RECIPE_MODES,
        options=("language", "task", "timestamps"),
        check_search=Loaded(f"{_FOLDER}.prompts:check_search"),
        prompts=Loaded(f"{_FOLDER}.prompts:decoder_prompts"),
        check_transcripts=Loaded(f"{_FOLDER}.transcript_rules:check_transcripts"),
        longest_window=30.0,
        kept_quiet=1.0,
    ),
    exchange=ExchangeRules(
        sherpa=Loaded(f"{_FOLDER}.export:sherpa"),
        wenet_obstacle=(
            "WeNet's runtime starts the decoder with sos alone, not with the prompt of a whisper"
        ),
        layouts={
            "openai": CheckpointLayout(
                "a .pt file of a Whisper of OpenAI",
                Loaded(f"{_FOLDER}.convert:is_openai"),
                Loaded(f"{_FOLDER}.convert:from_openai"),
            ),
            "huggingface": CheckpointLayout(
                "a folder of a Whisper of Hugging Face",
                Loaded(f"{_FOLDER}.convert:is_hugging_face"),
                Loaded(f"{_FOLDER}.convert:from_hugging_face"),
            ),
            "peft": CheckpointLayout(
                "a folder with an adapter (LoRA) of PEFT for a Whisper of Hugging Face",
                Loaded(f"{_FOLDER}.adapter:is_adapter"),
                Loaded(f"{_FOLDER}.convert:from_adapter"),
            ),
        },
    ),
)
