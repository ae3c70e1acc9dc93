"""Build the model that a config describes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from wenet_uio.base.messages import warn_once
from wenet_uio.config import Config
from wenet_uio.config.encoder_kind import encoder_kind
from wenet_uio.config.model import DecoderConf
from wenet_uio.models.cmvn import GlobalCMVN, load_cmvn
from wenet_uio.models.ctc import InterCtc
from wenet_uio.models.decoder import DECODERS, BiTransformerDecoder, TransformerDecoder
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.layered_encoder import LayeredEncoder
from wenet_uio.models.lora import add_lora, is_lora
from wenet_uio.models.speech_model import SpeechModel, Vocabulary
from wenet_uio.models.trainable_model import TrainableModel
from wenet_uio.models.weights import fill_weights, read_lora, read_weights


def build_model(config: Config) -> SpeechModel:
    """Build an untrained model.

    Reads the CMVN file, and the units file unless the config has both output_dim and the ids of
    <sos> and <eos> in special_tokens.

    Raises:
        OSError: a file cannot be read.
        ValueError: values of the config contradict each other.
    """
    family = config.family
    vocabulary = family.vocabulary(config)
    model = family.build(config, _build_encoder(config), vocabulary)
    if not isinstance(model, SpeechModel):
        raise ValueError(
            f"model {config.model}: {family.build.use} returned {type(model).__name__}, expected "
            "a SpeechModel"
        )

    if isinstance(model, TrainableModel) and config.interctc_layer_idx:
        _add_inter_ctc(model, config)
    if config.ctc_texts:
        model.ctc.learn_used()
    if not config.mask_padding:
        _let_layers_see_padding(model)
    if config.use_lora:
        add_lora(model, config.lora_conf)

    return model


def _let_layers_see_padding(model: nn.Module) -> None:
    """Compute as WeNet does: `mask_padding: false` of the yaml, for comparisons with its numbers.

    By default the frames of an utterance do not depend on its batch. WeNet lets some layers see the
    padding. Layers that differ have an attribute `masks_padding`.
    """
    for part in model.modules():
        if "masks_padding" in vars(part):
            vars(part)["masks_padding"] = False


def _add_inter_ctc(model: TrainableModel, config: Config) -> None:
    """Give the encoder a CTC loss after blocks in the middle."""
    encoder, conditioning = model.encoder, None
    layered = isinstance(encoder, LayeredEncoder)
    if not layered or type(encoder).forward is not LayeredEncoder.forward:
        raise ValueError(
            f"interctc_layer_idx: encoder {config.encoder} has no CTC loss in the middle"
        )

    width, output_size = encoder.traits.width, encoder.traits.output_size
    if width != output_size:
        raise ValueError(
            f"interctc_layer_idx: the layers have the width {width} and the CTC layer "
            f"{output_size}; "
            "train with equal widths"
        )

    if config.interctc_conditioning:
        conditioning = nn.Linear(model.vocab_size, width)

    encoder.use_inter_ctc(InterCtc(config.interctc_layer_idx or (), model.ctc, conditioning))


def build_trained(
    config: Config, checkpoint: str | Path, lora: str | Path | None = None
) -> SpeechModel:
    """Build the model of a config with trained weights, and with the low-rank weights (LoRA) of the
    file `lora`.

    A file without low-rank weights (LoRA), as `average_model.py --merge_lora` writes it, is that of
    a model without them, whatever `use_lora` says.

    Raises:
        OSError: a file cannot be read.
        ValueError: values of the config contradict each other, or the weights are those of another
            model.
    """
    weights = read_weights(checkpoint) | (read_lora(lora) if lora else {})
    return build_with_weights(config, weights, str(checkpoint))


def build_with_weights(
    config: Config, weights: Mapping[str, torch.Tensor], source: str
) -> SpeechModel:
    """As `build_trained`, with weights that are read; messages begin with `source`.

    Raises:
        OSError, ValueError: as build_trained.
    """
    if config.use_lora and not any(map(is_lora, weights)):
        warn_once(
            f"{source} has no low-rank weights (LoRA): they are merged, or were never trained"
        )
        config = config.model_copy(update={"use_lora": False, "only_optimize_lora": False})

    model = build_model(config)
    fill_weights(model, weights, source)
    return model


def build_trainable(config: Config) -> TrainableModel:
    """As `build_model`, for training.

    Raises:
        ValueError: models of this family cannot be trained, or as build_model.
    """
    model = build_model(config)
    if not isinstance(model, TrainableModel):
        raise ValueError(f"model: {config.family.training.obstacle or 'it cannot be trained'}")
    return model


def build_decoder(
    config: Config, encoder: Encoder, vocabulary: Vocabulary
) -> TransformerDecoder | BiTransformerDecoder:
    """Build the attention decoder that `decoder` and `decoder_conf` describe.

    Raises:
        ValueError: its heads do not divide the width of the encoder.
    """
    assert isinstance(config.decoder_conf, DecoderConf), "config.checks checks it"
    assert config.decoder is not None, "config.checks checks it"
    check_heads(config, encoder)
    return DECODERS[config.decoder](
        vocabulary.size, encoder.traits.output_size, config.decoder_conf
    )


def check_heads(config: Config, encoder: Encoder) -> None:
    """Raise a ValueError if the heads of the decoder do not divide the width of the encoder."""
    width, heads = encoder.traits.output_size, config.decoder_conf.attention_heads
    if width % heads:
        raise ValueError(
            f"encoder_conf.output_size {width} is not divisible by decoder_conf.attention_heads "
            f"{heads}"
        )


def _build_encoder(config: Config) -> Encoder:
    """Build the encoder that the config names.

    Raises:
        ValueError: a third party's kind of encoder builds something else.
    """
    build = encoder_kind(config.encoder).build
    encoder = build(config.encoder_input_dim, config.encoder_conf, _load_global_cmvn(config))
    if not isinstance(encoder, Encoder):
        raise ValueError(
            f"encoder {config.encoder}: expected an Encoder of wenet_uio.models.encoder, but it "
            f"built {type(encoder).__name__}"
        )

    return encoder


def _load_global_cmvn(config: Config) -> GlobalCMVN | None:
    """Load the mean and variance that normalise the features; None if the config has none."""
    if config.cmvn is None:
        return None

    conf = config.cmvn_conf
    if conf.cmvn_file is None:
        raise ValueError("cmvn is global_cmvn, but cmvn_conf.cmvn_file is missing")

    return load_cmvn(conf.cmvn_file, conf.is_json_cmvn, config.encoder_input_dim)
