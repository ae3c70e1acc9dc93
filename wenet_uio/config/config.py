"""The whole configuration of a training run: `Config`, and functions that read, check and write a
train.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, SerializeAsAny, create_model, field_validator

from wenet_uio.config.base import ConfigError, Section, parse
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.config.encoder import EncoderSection
from wenet_uio.config.encoder_kind import EncoderSections, encoder_kind, is_third_party
from wenet_uio.config.mixture import MixtureConf
from wenet_uio.config.model import (
    DECODER_CONFS,
    BiTransformerDecoderConf,
    CmvnConf,
    CtcConf,
    CtlConf,
    DecoderConf,
    ModelConf,
    WhisperConf,
)
from wenet_uio.config.named_files import locate_files
from wenet_uio.config.names import known_name
from wenet_uio.config.nemo import from_nemo, renamed
from wenet_uio.config.parts import check_parts, with_own_parts, with_widths
from wenet_uio.config.regularisation import check_ctc_losses, refuse_derived, with_views
from wenet_uio.config.sanm import (
    CifPredictorConf,
    ParaformerConf,
    ParaformerPredictorConf,
    SanmDecoderConf,
    SenseVoiceConf,
)
from wenet_uio.config.text import TokenizerConf
from wenet_uio.config.train import OPTIM_CONFS, SCHEDULER_CONFS, TrainKeys
from wenet_uio.config.wenet import add_last_id, from_wenet, refuse_other_parts, to_wenet
from wenet_uio.config.yaml_file import parse_yaml, read_yaml
from wenet_uio.families.transducer.conf import (
    JOINT_CONFS,
    PREDICTOR_CONFS,
    JointConf,
    PredictorConf,
    TransducerConf,
    TransducerSections,
)
from wenet_uio.files import written_aside
from wenet_uio.uris import shown_values

AnyModelConf = WhisperConf | TransducerConf | ParaformerConf | SenseVoiceConf
MODEL_CONFS: dict[str, type[AnyModelConf]] = {
    "asr_model": ModelConf,
    "asrmodel": ModelConf,
    "transducer": TransducerConf,
    "whisper": WhisperConf,
    "ctl_model": CtlConf,
    "firered": WhisperConf,
    "paraformer": ParaformerConf,
    "sensevoice_small": SenseVoiceConf,
}
CHOICES: dict[str, Mapping[str, type[Section]]] = {
    "encoder": EncoderSections(),
    "decoder": {**DECODER_CONFS, "sanm_decoder": SanmDecoderConf},
    "predictor": {
        **PREDICTOR_CONFS,
        "cif_predictor": CifPredictorConf,
        "paraformer_predictor": ParaformerPredictorConf,
    },
    "joint": JOINT_CONFS,
    "model": MODEL_CONFS,
    "optim": OPTIM_CONFS,
    "scheduler": SCHEDULER_CONFS,
}
"""{key: {name: section class}}: the name under `key` selects the class of the section
`key`_conf."""
KNOWN_NAMES: dict[str, tuple[str, ...]] = {
    **{key: tuple(sections) for key, sections in CHOICES.items()},
    "ctc": ("ctc",),
    "cmvn": ("global_cmvn",),
    "tokenizer": (
        "char",
        "bpe",
        "whisper",
        "huggingface",
        "sentencepiece",
        "paraformer",
        "aggregate",
    ),
    "dataset": ("asr",),
}


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
    """Null for sensevoice_small, which has no decoder."""
    decoder_conf: DecoderConf | SanmDecoderConf = BiTransformerDecoderConf()
    ctc: str = "ctc"
    ctc_conf: CtcConf = CtcConf()
    cmvn: str | None = None
    """`global_cmvn`, or null for features without normalisation."""
    cmvn_conf: CmvnConf = CmvnConf()
    predictor: str | None = None
    """Of a transducer: network over the tokens so far; default rnn. Of a paraformer: finds the
    tokens; default paraformer_predictor."""
    predictor_conf: PredictorConf | CifPredictorConf | None = None
    """Transducer and paraformer only."""
    joint: str | None = None
    """Transducer only: network that combines encoder frames and predictor outputs; default
    transducer_joint."""
    joint_conf: JointConf | None = None
    """Transducer only."""
    model: str = "asr_model"
    model_conf: AnyModelConf = ModelConf()
    tokenizer: str = "char"
    tokenizer_conf: TokenizerConf = TokenizerConf()
    dataset: str = "asr"
    dataset_conf: DatasetConf = DatasetConf()
    data: str | MixtureConf | None = None
    """Training data: a data list, a yaml file of sources, or the sources. --train_data overrides
    this key."""
    text_weight: float = Field(default=1.0, ge=0)
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
        return (
            self.input_dim or 0
        ) // self.model_conf.stacked_frames or self.dataset_conf.feature_dim

    @property
    def encoder_input_dim(self) -> int:
        """Width of the encoder's input: `feature_dim`, times the number of frames that the model
        stacks.
        """
        return self.feature_dim * self.model_conf.stacked_frames

    @property
    def vocabulary_size(self) -> int | None:
        """Size of the vocabulary: `output_dim` or `vocab_size`. None: take the size of the
        tokenizer's vocabulary.
        """
        return self.output_dim or self.vocab_size

    @property
    def transducer(self) -> TransducerSections | None:
        """The sections that only a transducer has; None for other models."""
        if not isinstance(self.model_conf, TransducerConf):
            return None
        assert self.predictor is not None
        assert isinstance(self.predictor_conf, PredictorConf)
        assert self.joint_conf is not None
        return TransducerSections(
            self.model_conf, self.predictor, self.predictor_conf, self.joint_conf
        )

    @field_validator(
        "encoder", "decoder", "predictor", "joint", "ctc", "cmvn", "model", "tokenizer", "dataset"
    )
    @classmethod
    def _is_known(cls, name: str | None, info: Any) -> str | None:
        if name is None or (info.field_name == "encoder" and is_third_party(name)):
            return name
        return known_name(name, KNOWN_NAMES[info.field_name])


def parse_config(values: dict[str, Any], where: str) -> Config:
    """Check a mapping that has the shape of a train.yaml; error messages begin with `where`.

    Raises:
        ConfigError: one message that names every unknown key, wrong type and impossible value.
    """
    values = from_nemo(values, where)
    refuse_other_parts(values, where, KNOWN_NAMES)
    refuse_derived(values, where)
    values = with_own_parts(from_wenet(values, where), where)
    sections_of: dict[str, Any] = {}
    for role, sections in CHOICES.items():
        name = values.get(role, Config.model_fields[role].default)
        if name is None and role in ("predictor", "joint"):
            continue
        # The keys of an unknown part cannot be checked: the message is about its name alone.
        section = sections.get(name, Any) if isinstance(name, str) else Any
        sections_of[f"{role}_conf"] = section
        values = {f"{role}_conf": {}, **values}
    config = parse(_config_class(tuple(sections_of.items())), values, where)
    check_parts(config, where)
    check_ctc_losses(config, where)
    return with_views(with_widths(config, where), where)


@lru_cache(maxsize=64)
def _config_class(sections: tuple[tuple[str, Any], ...]) -> type[Config]:
    """Config with the sections {key: class} of the chosen parts. Its validator takes 10 ms to make,
    a config 0.1 ms.
    """
    fields: dict[str, Any] = {key: (section, ...) for key, section in sections}
    return create_model("Config", __base__=Config, **fields)


def load_config(
    path: str | Path, overrides: Iterable[str] = (), *, of_model: bool = False
) -> Config:
    """Read a train.yaml and apply `overrides` of the form `encoder_conf.num_blocks=6`.

    Files that the yaml names are found beside it, see `locate_files`; paths in `overrides` stay as
    they are.

    Args:
        of_model: the yaml belongs to a trained model, which may have been moved.

    Raises:
        ConfigError: the file is not yaml, or `parse_config` finds problems.
    """
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected `key: value` lines, found {type(values).__name__}")
    values = from_wenet(values, str(path))
    if of_model or values.get(
        "model_dir"
    ):  # WeNet writes model_dir; a model of WeNet may be trained further here
        add_last_id(values, str(path))
    locate_files(values, Path(path), of_model=of_model)
    for override in overrides:
        _apply(values, override)
    return parse_config(values, str(path))


def save_config(config: Config, path: str | Path) -> None:
    """Write the config with all defaults, in the form that WeNet reads; `load_config` restores an
    equal config.

    URIs are shown without passwords and signatures, because the file is passed on with the model.
    Decoding does not need the data; the next start of the run reads the true URIs from the config
    of its command line.
    """
    text = yaml.safe_dump(shown_values(to_wenet(config)), sort_keys=False, allow_unicode=True)
    with written_aside(path, "w") as file:
        file.write(text)


def _apply(values: dict[str, Any], override: str) -> None:
    """Set the value that an override names, in place."""
    dotted, equals, text = override.partition("=")
    if not equals or " " in dotted.strip():  # "key value" is WeNet's form
        dotted, equals, text = override.strip().partition(" ")
    if not equals:
        raise ConfigError(f"--override_config {override}: expected key.subkey=value")
    *parents, last = renamed(dotted.strip()).split(".")
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise ConfigError(f"--override_config {override}: {parent} is a value, not a section")
    try:
        values[last] = parse_yaml(text, last)
    except ConfigError:
        raise ConfigError(
            f"--override_config {override}: the value is not yaml; write a text as {last}='text'"
        ) from None
