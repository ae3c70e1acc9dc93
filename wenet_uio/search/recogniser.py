"""A trained recogniser, loaded from the folder of its run: config, tokenizer, model, and the times of
its frames.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from wenet_uio.base.run_files import FINAL_WEIGHTS, TRAIN_CONFIG
from wenet_uio.config import Config, ConfigError, load_config
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.config.trust import Trust, refuse_code
from wenet_uio.dataset.lengths import frame_count
from wenet_uio.models import build_trained
from wenet_uio.models.arithmetic import dtype_for
from wenet_uio.models.interfaces import DecodingModel
from wenet_uio.search.types import DecodeOptions
from wenet_uio.text.labels import Tokenizer
from wenet_uio.text.tokenizer import build_tokenizer

CHECKPOINTS = ("avg.pt", FINAL_WEIGHTS)
"""Weights that are looked for in the folder of a run, in this order."""


@dataclass(frozen=True)
class FrameClock:
    """Times of encoder frames.

    Frame t stands for `step` seconds around the middle of the audio that the input layer sees for
    it.
    """

    step: float
    """Seconds from one encoder frame to the next."""
    offset: float
    """Seconds before the first encoder frame."""
    shift: float
    """Seconds from one feature frame to the next."""

    @classmethod
    def of(cls, model: DecodingModel, conf: DatasetConf) -> FrameClock:
        """Make the clock of a model with the features of `conf`."""
        count, encoder = frame_count(conf), model.encoder
        # In samples: from one frame to the next, of the input layer and of the encoder, and what
        # the input layer sees for one frame of the encoder.
        embed_step = encoder.embed.subsampling_rate * count.shift
        step = encoder.traits.reduction * embed_step
        seen = encoder.embed.right_context * count.shift + count.window + step - embed_step
        offset = (
            max(0.0, (seen - step) / 2 / count.sample_rate)
            - model.leading_frames * step / count.sample_rate
        )

        return cls(step / count.sample_rate, offset, count.shift / count.sample_rate)

    def edge(self, frame: float) -> float:
        """Return the start of encoder frame `frame` in seconds, which is the end of the one before.

        Frames before the audio start at 0.
        """
        return max(0.0, self.offset + frame * self.step)

    def middle(self, frame: float) -> float:
        """Return the middle of encoder frame `frame`, in seconds."""
        return self.edge(frame) + self.step / 2


@dataclass(frozen=True)
class Recogniser:
    """Everything that turns features into text."""

    config: Config
    tokenizer: Tokenizer
    model: DecodingModel

    @property
    def clock(self) -> FrameClock:
        """Times of the encoder frames."""
        return FrameClock.of(self.model, self.config.dataset_conf)


def decoding_operators(config: Config) -> list[str]:
    """Return `module:name` of the operators of the user that run in decoding."""
    return [operator.use for operator in config.dataset_conf.operators if operator.evaluation]


def load_model_config(
    path: str | Path, overrides: Iterable[str] = (), *, trust_code: Trust
) -> Config:
    """Read the train.yaml of a trained model, which may come from others.

    Args:
        overrides: `key=value` strings that change the yaml.
        trust_code: accept an encoder, a family and operators of other packages. Operators that run
            in training only are never imported here.

    Raises:
        ConfigError: the yaml is wrong, or names an encoder, a family or an operator of evaluation
            of another package without `trust_code`.
    """
    config = load_config(path, overrides, of_model=True, trust_code=trust_code)
    if getattr(config.encoder_conf, "input_layer", None) == "embed":
        raise ConfigError(
            f"{path}: encoder_conf.input_layer: embed takes label ids, so this model recognises no "
            "audio"
        )

    refuse_code(decoding_operators(config), trust_code, f"{path}: dataset_conf.operators")
    return config


def load_recogniser(
    folder: str | Path, checkpoint: str | Path | None = None, *, trust_code: Trust = False
) -> Recogniser:
    """Load train.yaml and the weights of a run, or of a model in WeNet's layout.

    Args:
        checkpoint: weights; by default avg.pt or final.pt of the folder.
        trust_code: accept operators of the user, which can be any code.

    Raises:
        OSError: a file does not exist.
        ValueError: the config is wrong or names operators that are not trusted, or the weights are
            not those of its model.
    """
    folder = Path(folder)
    if checkpoint is None:
        checkpoint = weights_in(folder)

    config = load_model_config(folder / TRAIN_CONFIG, trust_code=trust_code)
    tokenizer = build_tokenizer(config)
    return Recogniser(config, tokenizer, build_trained(config, checkpoint))


def find_weights(folder: Path) -> Path | None:
    """Return the weights in the folder of a run, or of a model of WeNet; None if there are none."""
    return next((folder / name for name in CHECKPOINTS if (folder / name).is_file()), None)


def weights_in(folder: Path) -> Path:
    """Return the weights in the folder of a run.

    Raises:
        FileNotFoundError: there are none.
    """
    weights = find_weights(folder)
    if weights is None:
        raise FileNotFoundError(
            f"{folder}: neither {' nor '.join(CHECKPOINTS)} in it; name one with --checkpoint"
        )

    return weights


def resolve_dtype(options: DecodeOptions, config: Config, device: torch.device) -> DecodeOptions:
    """Replace `dtype` None or `auto` by the arithmetic of this model on this device.

    `cudnn_attention` of the train.yaml takes effect here, too.
    """
    torch.backends.cuda.enable_cudnn_sdp(config.cudnn_attention)
    wanted = options.dtype or ("fp32" if config.dtype == "fp32" else "auto")
    return replace(options, dtype=dtype_for(wanted, device))


def use_static_batches(config: Config, batch_size: int) -> Config:
    """Copy the config with static batches of `batch_size` utterances, which suit decoding.

    Raises:
        ValueError: `batch_size` is below 1.
    """
    if batch_size < 1:
        raise ValueError(f"--batch_size: expected 1 or more, found {batch_size}")

    batch_conf = BatchConf(batch_type="static", batch_size=batch_size)
    dataset_conf = config.dataset_conf.model_copy(update={"batch_conf": batch_conf})
    return config.model_copy(update={"dataset_conf": dataset_conf})


def streaming_obstacle(model: DecodingModel, conf: DatasetConf) -> str:
    """Return the reason why a model cannot encode chunk by chunk; empty if it can."""
    traits = model.encoder.traits
    if traits.never_streams:
        return traits.obstacle
    if not traits.trained_in_chunks:
        return "the model was trained with full context only; train with use_dynamic_chunk"
    if traits.obstacle:
        return traits.obstacle
    if model.ctc_weight == 0:
        return "the model was trained with ctc_weight 0, and partial texts come from CTC"

    return features_obstacle(conf)


def features_obstacle(conf: DatasetConf) -> str:
    """Return the reason why features of parts of a waveform differ from those of the whole; empty if
    they do not.
    """
    if any(operator.evaluation for operator in conf.operators):
        return "the train.yaml names operators, which need whole utterances"
    if conf.feats_type == "log_mel_spectrogram" or not frame_count(conf).snip_edges:
        return "its features need whole utterances (log_mel_spectrogram, or snip_edges: false)"
    return ""
