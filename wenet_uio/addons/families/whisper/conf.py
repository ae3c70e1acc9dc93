"""Keys of a whisper that follow from others."""

from __future__ import annotations

from wenet_uio.config import Config


def pad_where_all_frames_are_needed(config: Config, _: str) -> Config:
    """Return the config; training pads as decoding does if it needs each frame of the silence."""
    mel = config.dataset_conf.log_mel_spectrogram_conf
    needs_all = bool(config.interctc_layer_idx) or config.store_frames or not config.mask_padding
    if mel.pad_in_training or not needs_all:
        return config

    mel = mel.model_copy(update={"pad_in_training": True})
    dataset_conf = config.dataset_conf.model_copy(update={"log_mel_spectrogram_conf": mel})
    return config.model_copy(update={"dataset_conf": dataset_conf})
