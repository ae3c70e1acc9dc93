"""Build the model that a config describes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wenet_uio.config import Config
from wenet_uio.config.model import CtlConf, WhisperConf
from wenet_uio.models.asr_model import ASRModel, Vocabulary
from wenet_uio.models.branchformer import BranchformerEncoder, EBranchformerEncoder
from wenet_uio.models.cmvn import GlobalCMVN, load_cmvn
from wenet_uio.models.contrastive import CtlModel
from wenet_uio.models.decoder import DECODERS, Decoder, TransformerDecoder
from wenet_uio.models.efficient import EfficientConformerEncoder
from wenet_uio.models.encoder import ConformerEncoder, Encoder, TransformerEncoder
from wenet_uio.models.firered import FireredConformerEncoder
from wenet_uio.models.lora import add_lora
from wenet_uio.models.squeezeformer import SqueezeformerEncoder
from wenet_uio.models.transducer import Transducer
from wenet_uio.models.whisper import Whisper
from wenet_uio.text.symbols import EOS, SOS
from wenet_uio.text.tokenizer import build_tokenizer, sos_and_eos
from wenet_uio.text.whisper_tokens import TIMESTAMPS, WhisperTokens

ENCODERS: dict[str, Callable[[int, Any, GlobalCMVN | None], Encoder]] = {
    "transformer": TransformerEncoder,
    "conformer": ConformerEncoder,
    "branchformer": BranchformerEncoder,
    "e_branchformer": EBranchformerEncoder,
    "squeezeformer": SqueezeformerEncoder,
    "efficientConformer": EfficientConformerEncoder,
    "firered_conformer": FireredConformerEncoder,
    "dual_transformer": TransformerEncoder,
    "dual_conformer": lambda size, conf, cmvn: ConformerEncoder(size, conf.conformer, cmvn),
}
"""{name in the yaml: class, called with the number of features, the section of that name, and CMVN}."""


def build_model(config: Config) -> ASRModel:
    """Build an untrained model. Reads the CMVN file, and the units file if the config has no output_dim.

    Raises:
        OSError: a file cannot be read.
        ValueError: values of the config contradict each other.
    """
    vocabulary = _vocabulary(config)
    width, heads = config.encoder_conf.output_size, config.decoder_conf.attention_heads
    if width % heads:
        raise ValueError(f"encoder_conf.output_size {width} is not divisible by decoder_conf.attention_heads {heads}")
    encoder = ENCODERS[config.encoder](config.feature_dim, config.encoder_conf, _cmvn(config))
    decoder = DECODERS[config.decoder](vocabulary.size, width, config.decoder_conf)
    sections = config.transducer
    if sections is not None:
        model = Transducer(encoder, decoder, vocabulary, sections)
    elif config.model == "whisper":
        model = _whisper(config, encoder, decoder, vocabulary)
    elif isinstance(config.model_conf, CtlConf):
        model = CtlModel(encoder, decoder, vocabulary, config.model_conf)
    else:
        model = ASRModel(encoder, decoder, vocabulary, config.model_conf)
    model.text_weight = config.text_weight
    if not config.mask_padding:
        for part in encoder.modules():
            if "masks_padding" in vars(part):
                vars(part)["masks_padding"] = False
    if config.use_lora:
        add_lora(model, config.lora_conf)
    return model


def _cmvn(config: Config) -> GlobalCMVN | None:
    if config.cmvn is None:
        return None
    conf = config.cmvn_conf
    if conf.cmvn_file is None:
        raise ValueError("cmvn is global_cmvn, but cmvn_conf.cmvn_file is missing")
    return load_cmvn(conf.cmvn_file, conf.is_json_cmvn, config.feature_dim)


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
    size, symbols = config.vocabulary_size, {}
    if size is None or SOS not in special or EOS not in special:
        tokenizer = build_tokenizer(config)
        size, symbols = size or tokenizer.vocab_size, tokenizer.symbols
    ids = sos_and_eos(config.tokenizer_conf, symbols, size)
    return Vocabulary(size, config.ctc_conf.ctc_blank_id, ids[SOS], ids[EOS])
