"""The whole configuration of a training run: `Config`."""

from __future__ import annotations

from typing import Any

from pydantic import Field, SerializeAsAny, field_validator

from wenet_uio.config.base import Section, ZeroOrMore, known_name
from wenet_uio.config.choices import KNOWN_NAMES
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.config.encoder import EncoderSection, StackConf
from wenet_uio.config.encoder_kind import encoder_kind
from wenet_uio.config.family import Family, family_of
from wenet_uio.config.mixture import MixtureConf
from wenet_uio.config.model import BiTransformerDecoderConf, CmvnConf, CtcConf, ModelKeys
from wenet_uio.config.named_code import is_third_party
from wenet_uio.config.text import TokenizerConf
from wenet_uio.config.train import TrainKeys


class Config(TrainKeys):
    """Everything that defines a training run. The fields are the keys of a train.yaml.

    The name of a part selects the keys of its `_conf` section: `encoder: conformer` gives
    `encoder_conf` the keys of ConformerEncoderConf. CHOICES lists these pairs. `parse_config`
    creates sections that the yaml leaves out.
    """

    encoder: str = "conformer"
    """Kind of the encoder: a name of this package, or `module:name` of an EncoderKind elsewhere."""
    encoder_conf: SerializeAsAny[EncoderSection] = Field(
        default_factory=lambda: encoder_kind("conformer").section()
    )
    decoder: str | None = "bitransformer"
    """Null for families without a decoder."""
    decoder_conf: SerializeAsAny[StackConf] = BiTransformerDecoderConf()
    ctc: str = "ctc"
    ctc_conf: CtcConf = CtcConf()
    cmvn: str | None = None
    """`global_cmvn`, or null for features without normalisation."""
    cmvn_conf: CmvnConf = CmvnConf()
    predictor: str | None = None
    """Of a transducer: network over the tokens so far; default rnn. Of a model that scores all
    tokens at once: finds the tokens."""
    predictor_conf: SerializeAsAny[Section] | None = None
    """Families with a predictor only."""
    joint: str | None = None
    """Transducer only: network that combines encoder frames and predictor outputs; default
    transducer_joint."""
    joint_conf: SerializeAsAny[Section] | None = None
    """Transducer only."""
    model: str = "asr_model"
    """Family of the model: a name of this package, or `module:name` of a Family elsewhere."""
    model_conf: SerializeAsAny[ModelKeys] = Field(
        default_factory=lambda: family_of("asr_model").section.model_validate({})
    )
    tokenizer: str = "char"
    tokenizer_conf: TokenizerConf = TokenizerConf()
    dataset: str = "asr"
    dataset_conf: DatasetConf = DatasetConf()
    data: str | MixtureConf | None = None
    """Training data: a data list, a yaml file of sources, or the sources. --train_data overrides
    this key."""
    cv_data: str | MixtureConf | None = None
    """Validation data, as `data`. --cv_data overrides this key."""
    text_weight: ZeroOrMore = 1.0
    """Weight of the decoder's loss on text without audio. It is not in model_conf: WeNet passes
    every key of that section to its model."""
    mask_padding: bool = True
    """Compute for an utterance in a padded batch what is computed for the utterance alone. False:
    as in WeNet, padding changes the last frames of some encoders, and attention search continues to
    the length of the longest utterance. Tests compare with WeNet's numbers by false."""
    input_dim: int | None = None
    """Width of the encoder's input; default: `dataset_conf.feature_dim`, times 7 for models that
    stack 7 frames."""
    output_dim: int | None = None
    """Size of the vocabulary; default: the size of the tokenizer's vocabulary."""
    vocab_size: int | None = None
    """Second name of output_dim in WeNet's files."""

    @property
    def feature_dim(self) -> int:
        """Number of features of a frame: from `input_dim`, or the number that `dataset_conf`
        computes.
        """
        stated_dim = (self.input_dim or 0) // self.model_conf.stacked_frames
        return stated_dim or self.dataset_conf.feature_dim

    @property
    def encoder_input_dim(self) -> int:
        """Width of the encoder's input: `feature_dim`, times the number of frames that the model
        stacks.
        """
        return self.feature_dim * self.model_conf.stacked_frames

    @property
    def family(self) -> Family:
        """The record of the family that `model` names."""
        return family_of(self.model)

    @property
    def vocabulary_size(self) -> int | None:
        """Size of the vocabulary: `output_dim` or `vocab_size`. None: take the size of the
        tokenizer's vocabulary.
        """
        return self.output_dim or self.vocab_size

    @field_validator(
        "encoder", "decoder", "predictor", "joint", "ctc", "cmvn", "model", "tokenizer", "dataset"
    )
    @classmethod
    def _is_known(cls, name: str | None, info: Any) -> str | None:
        if name is None or (info.field_name in ("encoder", "model") and is_third_party(name)):
            return name
        return known_name(name, KNOWN_NAMES[info.field_name])
