"""Config -> model."""

from __future__ import annotations

from wenet_uio.config import Config
from wenet_uio.models.asr_model import ASRModel
from wenet_uio.models.branchformer import BranchformerEncoder, EBranchformerEncoder
from wenet_uio.models.cmvn import GlobalCMVN, load_cmvn
from wenet_uio.models.ctc import CTC
from wenet_uio.models.decoder import DECODERS
from wenet_uio.models.encoder import ConformerEncoder, Encoder, TransformerEncoder
from wenet_uio.models.joint import TransducerJoint
from wenet_uio.models.lora import add_lora
from wenet_uio.models.predictor import PREDICTORS
from wenet_uio.models.squeezeformer import SqueezeformerEncoder
from wenet_uio.models.transducer import Transducer
from wenet_uio.text.symbols import SOS_EOS
from wenet_uio.text.tokenizer import build_tokenizer

ENCODERS: dict[str, type[Encoder]] = {
    "transformer": TransformerEncoder,
    "conformer": ConformerEncoder,
    "branchformer": BranchformerEncoder,
    "e_branchformer": EBranchformerEncoder,
    "squeezeformer": SqueezeformerEncoder,
}


def build_model(config: Config) -> ASRModel:
    """Build an untrained model; reads the CMVN file, and the vocabulary where the config does not give its size.

    Raises:
        OSError: for a file that cannot be read.
        ValueError: for values that do not fit one another.
    """
    feature_dim = config.input_dim or config.dataset_conf.feature_dim
    vocab_size, sos, eos = _vocabulary(config)
    blank = config.ctc_conf.ctc_blank_id
    for name, token in (("ctc_blank_id", blank), ("<sos>", sos), ("<eos>", eos)):
        if token >= vocab_size:
            raise ValueError(f"{name} {token} is outside of the vocabulary of {vocab_size}")
    width, heads = config.encoder_conf.output_size, config.decoder_conf.attention_heads
    if width % heads:
        raise ValueError(f"encoder_conf.output_size {width} is not divisible by decoder_conf.attention_heads {heads}")
    encoder = ENCODERS[config.encoder](feature_dim, config.encoder_conf, _cmvn(config, feature_dim))
    decoder = DECODERS[config.decoder](vocab_size, width, config.decoder_conf)
    ctc = CTC(vocab_size, width, blank)
    parts = (encoder, decoder, ctc, vocab_size, sos, eos, config.model_conf)
    if config.model == "transducer":
        predictor = PREDICTORS[config.predictor](vocab_size, config.predictor_conf)
        joint = TransducerJoint(vocab_size, width, config.predictor_conf.output_size, config.joint_conf)
        model = Transducer(*parts, predictor, joint)
    else:
        model = ASRModel(*parts)
    model.text_weight = config.text_weight
    if config.use_lora:
        add_lora(model, config.lora_conf)
    return model


def _cmvn(config: Config, feature_dim: int) -> GlobalCMVN | None:
    if config.cmvn is None:
        return None
    if config.cmvn_conf.cmvn_file is None:
        raise ValueError("cmvn is global_cmvn, but cmvn_conf.cmvn_file is missing")
    return load_cmvn(config.cmvn_conf.cmvn_file, config.cmvn_conf.is_json_cmvn, feature_dim)


def _vocabulary(config: Config) -> tuple[int, int, int]:
    """(size, sos, eos): named by the config, else by the vocabulary, else the last token is both."""
    special = config.tokenizer_conf.special_tokens or {}
    size = config.output_dim or config.vocab_size
    if size is None or "<sos>" not in special or "<eos>" not in special:
        tokenizer = build_tokenizer(config)
        size = size or tokenizer.vocab_size
        special = {
            name: tokenizer.symbols[SOS_EOS] for name in ("<sos>", "<eos>") if SOS_EOS in tokenizer.symbols
        } | special
    return size, special.get("<sos>", size - 1), special.get("<eos>", size - 1)
