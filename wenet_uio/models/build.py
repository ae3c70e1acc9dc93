"""Build the model that a config describes."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from wenet_uio.cli import warn_once
from wenet_uio.config import Config
from wenet_uio.config.encoder_kind import encoder_kind
from wenet_uio.config.model import CtlConf, DecoderConf, WhisperConf
from wenet_uio.config.sanm import (
    CifPredictorConf,
    ParaformerConf,
    ParaformerPredictorConf,
    SanmDecoderConf,
    SenseVoiceConf,
)
from wenet_uio.families.ctl.model import CtlModel
from wenet_uio.families.paraformer.cif import CifPredictor, ParaformerPredictor
from wenet_uio.families.paraformer.decoder import SanmDecoder
from wenet_uio.families.paraformer.model import Paraformer
from wenet_uio.families.sensevoice.model import SenseVoice
from wenet_uio.families.transducer.model import Transducer
from wenet_uio.families.whisper.model import Whisper
from wenet_uio.models.asr_model import ASRModel, Vocabulary
from wenet_uio.models.cmvn import GlobalCMVN, load_cmvn
from wenet_uio.models.decoder import DECODERS, Decoder, TransformerDecoder
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.encoders.sanm.encoder import SanmEncoder, SanmEncoderWithTp
from wenet_uio.models.inter_ctc import NO_CHUNKS, InterCtc
from wenet_uio.models.lora import add_lora, is_lora
from wenet_uio.models.weights import fill, read_weights
from wenet_uio.text.symbols import EOS, SOS
from wenet_uio.text.tokenizer import build_tokenizer, sos_and_eos
from wenet_uio.text.whisper_tokens import TIMESTAMPS, WhisperTokens


def build_model(config: Config) -> ASRModel:
    """Build an untrained model. Reads the CMVN file, and the units file if the config has no
    output_dim.

    Raises:
        OSError: a file cannot be read.
        ValueError: values of the config contradict each other.
    """
    vocabulary = _vocabulary(config)
    encoder = _encoder(config)
    model = _assemble(config, encoder, vocabulary)
    model.text_weight = config.text_weight
    model.cr_weight = config.cr_loss_scale
    model.ctc.smoothing = config.ctc_label_smoothing
    if config.interctc_layer_idx:
        _add_inter_ctc(model, config)
    if not config.mask_padding:
        for part in model.modules():
            if "masks_padding" in vars(part):
                vars(part)["masks_padding"] = False
    if config.use_lora:
        add_lora(model, config.lora_conf)
    return model


def _add_inter_ctc(model: ASRModel, config: Config) -> None:
    """Give the encoder a CTC loss after blocks in the middle."""
    encoder, conditioning = model.encoder, None
    if type(encoder).forward is not Encoder.forward:
        raise ValueError(
            f"interctc_layer_idx: encoder {config.encoder} has no CTC loss in the middle"
        )
    if encoder.width != encoder.output_size:
        raise ValueError(
            f"interctc_layer_idx: the layers have the width {encoder.width} and the CTC layer "
            f"{encoder.output_size}; "
            "train with equal widths"
        )
    if config.interctc_conditioning:
        encoder.conditioning_layer = conditioning = nn.Linear(model.vocab_size, encoder.width)
        encoder.obstacle = encoder.obstacle or NO_CHUNKS
    encoder.inter_ctc = InterCtc(config.interctc_layer_idx or (), model.ctc, conditioning)
    model.interctc_weight = config.interctc_weight


def build_trained(config: Config, checkpoint: str | Path) -> ASRModel:
    """Build the model of a config with trained weights.

    A file without low-rank weights (LoRA), as `average_model.py --merge_lora` writes it, is that of
    a model without them, whatever `use_lora` says.

    Raises:
        OSError: a file cannot be read.
        ValueError: values of the config contradict each other, or the weights are those of another
            model.
    """
    weights = read_weights(checkpoint)
    if config.use_lora and not any(map(is_lora, weights)):
        warn_once(
            f"{checkpoint} has no low-rank weights (LoRA): they are merged, or were never trained"
        )
        config = config.model_copy(update={"use_lora": False, "only_optimize_lora": False})
    model = build_model(config)
    fill(model, weights, str(checkpoint))
    return model


def _assemble(config: Config, encoder: Encoder, vocabulary: Vocabulary) -> ASRModel:
    """The model of an encoder and the parts that `config.model` names."""
    if isinstance(config.model_conf, SenseVoiceConf):
        assert isinstance(encoder, SanmEncoderWithTp), "config.parts checks the kinds"
        return SenseVoice(encoder, vocabulary, config.model_conf, config.encoder_input_dim)
    width, heads = encoder.output_size, config.decoder_conf.attention_heads
    if width % heads:
        raise ValueError(
            f"encoder_conf.output_size {width} is not divisible by decoder_conf.attention_heads "
            f"{heads}"
        )
    if config.model == "paraformer":
        return _paraformer(config, encoder, vocabulary)
    assert isinstance(config.decoder_conf, DecoderConf), "config.parts checks it"
    assert config.decoder is not None, "config.parts checks it"
    decoder = DECODERS[config.decoder](vocabulary.size, width, config.decoder_conf)
    if config.transducer is not None:
        return Transducer(encoder, decoder, vocabulary, config.transducer)
    if config.model == "whisper":
        return _whisper(config, encoder, decoder, vocabulary)
    if isinstance(config.model_conf, CtlConf):
        return CtlModel(encoder, decoder, vocabulary, config.model_conf)
    return ASRModel(encoder, decoder, vocabulary, config.model_conf)


def _paraformer(config: Config, encoder: Encoder, vocabulary: Vocabulary) -> Paraformer:
    width, decoder_conf, predictor_conf = (
        encoder.output_size,
        config.decoder_conf,
        config.predictor_conf,
    )
    assert isinstance(encoder, SanmEncoder), "config.parts checks the kinds"
    assert isinstance(config.model_conf, ParaformerConf)
    assert isinstance(decoder_conf, SanmDecoderConf)
    assert isinstance(predictor_conf, CifPredictorConf)
    if width % (predictor_conf.cnn_groups or 1):
        raise ValueError(
            f"encoder_conf.output_size {width} is not divisible by cnn_groups "
            f"{predictor_conf.cnn_groups}"
        )
    if isinstance(predictor_conf, ParaformerPredictorConf):
        predictor: CifPredictor = ParaformerPredictor(width, predictor_conf)
    else:
        predictor = CifPredictor(width, predictor_conf)
    decoder = SanmDecoder(vocabulary.size, width, decoder_conf)
    return Paraformer(encoder, decoder, predictor, vocabulary, config.model_conf)


def _encoder(config: Config) -> Encoder:
    """Build the encoder that the config names.

    Raises:
        ValueError: a third party's kind of encoder builds something else.
    """
    build = encoder_kind(config.encoder).build
    encoder = build(config.encoder_input_dim, config.encoder_conf, _cmvn(config))
    if not isinstance(encoder, Encoder):
        raise ValueError(
            f"encoder {config.encoder}: expected an Encoder of wenet_uio.models.encoder, but it "
            f"built {type(encoder).__name__}"
        )
    return encoder


def _cmvn(config: Config) -> GlobalCMVN | None:
    if config.cmvn is None:
        return None
    conf = config.cmvn_conf
    if conf.cmvn_file is None:
        raise ValueError("cmvn is global_cmvn, but cmvn_conf.cmvn_file is missing")
    return load_cmvn(conf.cmvn_file, conf.is_json_cmvn, config.encoder_input_dim)


def _whisper(config: Config, encoder: Encoder, decoder: Decoder, vocabulary: Vocabulary) -> Whisper:
    assert isinstance(config.model_conf, WhisperConf)
    if not isinstance(decoder, TransformerDecoder):
        raise ValueError(f"model whisper needs decoder transformer, found {config.decoder}")
    tokens = WhisperTokens.of(config.tokenizer_conf)
    languages = config.dataset_conf.language_conf.limited_langs
    return Whisper(encoder, decoder, vocabulary, config.model_conf, tokens, languages)


def _vocabulary(config: Config) -> Vocabulary:
    """Size and labels from the config; what is missing there from the units file."""
    if config.model == "whisper":
        ids = WhisperTokens.of(config.tokenizer_conf).ids
        size = config.vocabulary_size or ids["timestamp_begin"] + TIMESTAMPS
        return Vocabulary(size, config.ctc_conf.ctc_blank_id, ids["sot"], ids["eot"])
    special = config.tokenizer_conf.special_tokens or {}
    if config.model == "sensevoice_small" and config.vocabulary_size:
        ids = (special.get("<s>", 1), special.get("</s>", 2))
        return Vocabulary(config.vocabulary_size, config.ctc_conf.ctc_blank_id, *ids)
    size, symbols = config.vocabulary_size, {}
    if size is None or SOS not in special or EOS not in special:
        tokenizer = build_tokenizer(config)
        size, symbols = size or tokenizer.vocab_size, tokenizer.symbols
    ids = sos_and_eos(config.tokenizer_conf, symbols, size)
    return Vocabulary(size, config.ctc_conf.ctc_blank_id, ids[SOS], ids[EOS])
