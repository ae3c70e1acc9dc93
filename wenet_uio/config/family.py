"""Model families: one record each, found by the name that `model` has in the yaml."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from wenet_uio.config.base import Section
from wenet_uio.config.checkpoint_layout import CheckpointLayout
from wenet_uio.config.decode_modes import DecodeMode
from wenet_uio.config.model import ModelKeys
from wenet_uio.config.named_code import Loaded, installed_records, named_record

FAMILIES: dict[str, str] = {
    "asr_model": "wenet_uio.families.hybrid:HYBRID",
    "asrmodel": "wenet_uio.families.hybrid:HYBRID",
    "transducer": "wenet_uio.families.transducer:TRANSDUCER",
    "whisper": "wenet_uio.addons.families.whisper:WHISPER",
    "ctl_model": "wenet_uio.addons.families.ctl:CTL",
    "firered": "wenet_uio.families.hybrid:FIRERED",
    "paraformer": "wenet_uio.addons.families.paraformer:PARAFORMER",
    "sensevoice_small": "wenet_uio.addons.families.sensevoice:SENSEVOICE",
}
"""{name in the yaml: `module:name` of its Family}. Nothing else in the core names a family."""

_VOCABULARY = Loaded("wenet_uio.models.speech_model:vocabulary_of")
_ENCODE = Loaded("wenet_uio.search.decode:encode_in_chunks")
_PROMPTS = Loaded("wenet_uio.search.decode:sos_prompts")
MODEL_KEYS = ("ctc_weight", "ignore_id", "lsm_weight", "length_normalized_loss")
"""Keys of `model_conf` that the losses of every model read."""
TASKS = ("transcribe", "translate")
"""Values of the option task."""
PROMPT_OPTIONS = ("language", "task", "timestamps", "itn")
"""Options of decoding that only some families know."""


@dataclass(frozen=True, kw_only=True)
class PartRules:
    """Which parts a model of a family has, beside the encoder."""

    own: Mapping[str, Mapping[str, type[Section]]] = field(default_factory=dict)
    """{decoder, predictor or joint: {name: section}} of parts that only this family has."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """{predictor or joint: name}, if the yaml has none."""
    allowed: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    """{encoder, decoder, predictor or joint: names}; a key that is absent has no limits."""
    complete: Callable[[Any, str], Any] | None = None
    """`complete(config, where)` returns the config with the values that follow from others, and
    raises a ConfigError for parts that do not fit each other."""


@dataclass(frozen=True, kw_only=True)
class TrainingRules:
    """How models of a family are trained."""

    obstacle: str = ""
    """Why models of this family cannot be trained."""
    views_obstacle: str = ""
    """Why a training batch cannot have two views of each utterance."""
    inter_ctc: bool = True
    """Whether the losses include CTC in the middle of the encoder."""
    text_advice: str = "give it a weight in model_conf (ctc_weight below 1)"
    """How to train the decoder on text without audio if its weight in the loss is 0."""
    notes: tuple[str, ...] = ()
    """What the log of a new run says about this family, a line each."""
    fine_tuning: Mapping[str, Any] = field(default_factory=dict)
    """Keys of a train.yaml that differ from those of a trained model when a training starts from
    it, unless the recipe states them."""


@dataclass(frozen=True, kw_only=True)
class DecodingRules:
    """How models of a family decode."""

    modes: tuple[DecodeMode, ...]
    """Decode modes of a model whose parts are all trained."""
    recipe_modes: tuple[str, ...] = ()
    """Names of the modes of a recipe that names none, in the order of its table of error rates;
    default: all modes."""
    usual_mode: str = "ctc_prefix_beam_search"
    """Mode of a model that is trained for it, if the user names none: at every entrance, so that a
    recording has one text."""
    usual_scored_mode: str = "ctc_prefix_beam_search"
    """As usual_mode, with hot words or a language model."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """{weight that a mode needs: why no model of this family has such a part}."""
    options: tuple[str, ...] = ()
    """Options of decoding that this family knows, of PROMPT_OPTIONS."""
    check_search: Loaded | None = None
    """`check_search(model, modes, options)` raises a ValueError for a search that the model cannot
    do."""
    encode: Loaded = _ENCODE
    """`encode(model, feats, feats_lengths, options)` returns encoder frames and their lengths."""
    prompts: Loaded = _PROMPTS
    """`prompts(model, encoder_out, lengths, options)` returns the first tokens of the decoder, a
    wenet_uio.search.decode.Prompts."""
    check_transcripts: Loaded | None = None
    """`check_transcripts(model, encoded, options, nbests, detokenize)` returns the hypotheses of the
    segments of recordings by rules of the family; None for a segment in which nobody speaks. Test
    sets are decoded without these rules."""
    longest_window: float | None = None
    """Seconds that a model hears at once; None: any number."""
    kept_quiet: float = 0.0
    """Seconds of quiet at each end up to which a short recording is recognised as it is. Others lose
    the quiet, because models that learned from tight clips find words in it."""

    @property
    def modes_by_name(self) -> dict[str, DecodeMode]:
        """Return {name: decode mode}."""
        return {mode.name: mode for mode in self.modes}

    def modes_of_recipes(self, conf: ModelKeys) -> list[str]:
        """Return the recipe_modes that a model with this `model_conf` is trained for."""
        names = self.recipe_modes or tuple(mode.name for mode in self.modes)
        return [name for name in names if _is_trained(self.modes_by_name[name], conf)]

    def trained_scored_modes(self, conf: ModelKeys) -> list[str]:
        """Return the modes with hot words and language models that a model with this `model_conf`
        is trained for.
        """
        return [mode.name for mode in self.modes if mode.scored and _is_trained(mode, conf)]


def _is_trained(mode: DecodeMode, conf: ModelKeys) -> bool:
    """Tell whether a model with this `model_conf` is trained for a mode: the losses of all parts
    that the mode needs have a weight.
    """
    for name in mode.needs:
        # If a weight is no key of the section, every model of the family has that part.
        key = "decoder_weight" if name == "attention_weight" else name
        if getattr(conf, key, 1.0) <= 0:
            return False

    return True


@dataclass(frozen=True, kw_only=True)
class ExchangeRules:
    """What other tools have to do with models of a family: exports, and models to convert."""

    sherpa: Loaded | None = None
    """`sherpa(trained)` returns the wenet_uio.addons.runtimes.sherpa.SherpaOnly of a model that sherpa-onnx
    alone runs. None: WeNet's runtime runs it too."""
    wenet_obstacle: str = ""
    """Why WeNet's runtime does not run models of this family."""
    wenet_labels: Mapping[str, str] = field(default_factory=dict)
    """{name of a special token in WeNet's files: its name here}."""
    layouts: Mapping[str, CheckpointLayout] = field(default_factory=dict)
    """{name on the command line: layout} of models of other packages that become one of this
    family."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """What the package knows about a model family. Loading a record does not load torch."""

    name: str
    """Name in a train.yaml that is written; messages use it too."""
    section: type[ModelKeys]
    """Class of `model_conf`. It has the key ctc_weight; of a model that can be trained, also
    ignore_id, lsm_weight and length_normalized_loss."""
    build: Loaded
    """`build(config, encoder, vocabulary)` returns the untrained model, a
    wenet_uio.models.speech_model.SpeechModel."""
    vocabulary: Loaded = _VOCABULARY
    """`vocabulary(config)` returns the wenet_uio.models.speech_model.Vocabulary of the model."""
    special_tokens: Loaded | None = None
    """`special_tokens(symbols)` returns the wenet_uio.text.special_ids.SpecialTokens of a
    vocabulary that was published with models of this family; None for another vocabulary."""

    parts: PartRules = PartRules()
    training: TrainingRules = TrainingRules()
    decoding: DecodingRules
    exchange: ExchangeRules = ExchangeRules()

    def __post_init__(self) -> None:
        # ModelKeys states these keys for type checkers only, so a section may lack them.
        keys = ("ctc_weight",) if self.training.obstacle else MODEL_KEYS
        missing = [key for key in keys if key not in self.section.model_fields]
        if missing:
            raise ValueError(
                f"family {self.name}: its section {self.section.__name__} has no "
                f"{' and no '.join(missing)}: derive it from CtcAttentionConf or HybridConf of "
                "wenet_uio/config/model.py, or state the keys"
            )

        modes = self.decoding.modes_by_name
        unknown = [name for name in self.decoding.recipe_modes if name not in modes]
        if unknown:
            raise ValueError(
                f"family {self.name}: recipe_modes has {', '.join(unknown)}, its modes are "
                f"{', '.join(modes)}"
            )


def family_of(name: str) -> Family:
    """Return the family that `model: name` means: a name in FAMILIES, or `module:name` of another
    package.

    Raises:
        ConfigError: a third party's code cannot be imported, or is no Family.
        ValueError: the name is unknown.
    """
    return named_record("model", name, FAMILIES, Family, accepts_code=True)


def families() -> Iterator[Family]:
    """Yield the families of this installation, each once, in the order of FAMILIES. Each is loaded
    when its turn comes.
    """
    return installed_records(FAMILIES)
