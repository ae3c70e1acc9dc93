"""Which parts a kind of model has: parts that only this kind has, their defaults, and parts that it
cannot have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wenet_uio.config.base import ConfigError

if TYPE_CHECKING:
    from wenet_uio.config.config import Config

DEFAULT_PARTS = {
    "transducer": {"predictor": "rnn", "joint": "transducer_joint"},
    "paraformer": {"predictor": "paraformer_predictor"},
}
"""{model: {key: name}} of parts that other models do not have."""
POSSIBLE_PARTS: dict[str, dict[str, tuple[str | None, ...]]] = {
    "transducer": {"predictor": ("rnn", "embedding", "conv")},
    "paraformer": {
        "encoder": ("sanm_encoder",),
        "decoder": ("sanm_decoder",),
        "predictor": ("paraformer_predictor", "cif_predictor"),
    },
    "sensevoice_small": {"encoder": ("sanm_encoder_with_tp",), "decoder": (None,)},
}
"""{model: {key: names}}; a key that is absent here has no limits."""


def with_own_parts(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Add the default predictor and joint of models that have them; refuse these keys for other
    models.

    Raises:
        ConfigError: a part is of another kind of model.
    """
    defaults = DEFAULT_PARTS.get(str(values.get("model")), {})
    for key in ("predictor", "joint"):
        for name in (key, f"{key}_conf"):
            if values.get(name) is not None and key not in defaults:
                kinds = " or ".join(kind for kind, parts in DEFAULT_PARTS.items() if key in parts)
                raise ConfigError(
                    f"{where}: {name}: only a {kinds} has this key; add `model: "
                    f"{kinds.split()[0]}` or remove it"
                )
    given = {
        key: value for key, value in values.items() if value is not None or key not in defaults
    }
    return defaults | given


def check_parts(config: Config, where: str) -> None:
    """Refuse parts that do not work together.

    Raises:
        ConfigError: one line with the part and the possible ones.
    """
    for key, names in POSSIBLE_PARTS.get(config.model, {}).items():
        if getattr(config, key) not in names:
            known = " or ".join(str(name or "null") for name in names)
            raise ConfigError(
                f"{where}: {key}: {getattr(config, key)}: model {config.model} needs {key}: {known}"
            )
    if config.decoder == "sanm_decoder" and config.model != "paraformer":
        raise ConfigError(f"{where}: decoder: sanm_decoder: only model paraformer has this decoder")
    if config.decoder is None and config.model != "sensevoice_small":
        raise ConfigError(f"{where}: decoder: null: model {config.model} needs a decoder")
    if config.model == "ctl_model":
        _check_chunks(config, where)


def _check_chunks(config: Config, where: str) -> None:
    """Raises: ConfigError: the encoder of a model that compares chunks with full context has no
    chunks.
    """
    chunks: Any = config.encoder_conf
    if not (chunks.use_dynamic_chunk or chunks.static_chunk_size):
        raise ConfigError(
            f"{where}: encoder_conf.use_dynamic_chunk: false: "
            "ctl_model compares chunks with full context; set it to true"
        )


def with_widths(config: Config, where: str) -> Config:
    """Fill the widths that WeNet requires in the yaml: of a transducer's joint, and of a
    paraformer's predictor.

    Raises:
        ConfigError: a given width differs.
    """
    width, transducer = config.encoder_conf.output_size, config.transducer
    if transducer is not None:
        joint = transducer.joint_conf
        widths = {
            "enc_output_size": joint.enc_output_size or width,
            "pred_output_size": joint.pred_output_size or transducer.predictor_conf.output_size,
        }
        return config.model_copy(update={"joint_conf": joint.model_copy(update=widths)})
    predictor: Any = config.predictor_conf
    if config.model != "paraformer" or predictor is None:
        return config
    if predictor.idim not in (None, width):
        raise ConfigError(
            f"{where}: predictor_conf.idim: {predictor.idim}, but encoder_conf.output_size is "
            f"{width}"
        )
    return config.model_copy(
        update={"predictor_conf": predictor.model_copy(update={"idim": width})}
    )
