"""The kinds of encoders: one record each, found by the name that `encoder` has in the yaml."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from wenet_uio.config.checkpoint_layout import CheckpointLayout
from wenet_uio.config.encoder import EncoderSection
from wenet_uio.config.named_code import Loaded, installed_records, named_record

ENCODERS: dict[str, str] = {
    "transformer": "wenet_uio.models.encoders.transformer:TRANSFORMER",
    "conformer": "wenet_uio.models.encoders.conformer:CONFORMER",
    "branchformer": "wenet_uio.addons.encoders.branchformer:BRANCHFORMER",
    "e_branchformer": "wenet_uio.addons.encoders.branchformer:E_BRANCHFORMER",
    "squeezeformer": "wenet_uio.addons.encoders.squeezeformer:SQUEEZEFORMER",
    "efficientConformer": "wenet_uio.addons.encoders.efficient:EFFICIENT_CONFORMER",
    "firered_conformer": "wenet_uio.addons.encoders.firered:FIRERED_CONFORMER",
    "dual_transformer": "wenet_uio.models.encoders.transformer:TRANSFORMER",
    "dual_conformer": "wenet_uio.models.encoders.conformer:DUAL_CONFORMER",
    "sanm_encoder": "wenet_uio.addons.encoders.sanm:SANM",
    "sanm_encoder_with_tp": "wenet_uio.addons.encoders.sanm:SANM_WITH_TP",
    "zipformer": "wenet_uio.addons.encoders.zipformer:ZIPFORMER",
}
"""{name in the yaml: `module:name` of its EncoderKind}. Nothing else in the package names an
encoder."""


@dataclass(frozen=True)
class EncoderKind:
    """What the package knows about an encoder. Loading a kind does not load torch."""

    section: type[EncoderSection]
    """Class of `encoder_conf`."""
    build: Callable[[int, Any, Any], Any]
    """`build(input_size, encoder_conf, global_cmvn)` returns the encoder, a
    `wenet_uio.models.encoder.Encoder`."""
    sherpa: Loaded | None = None
    """`sherpa()` returns the wenet_uio.addons.runtimes.sherpa.CtcExport of a model with this encoder, whose
    ONNX graphs sherpa-onnx alone runs. None: the graphs of other encoders."""
    layouts: Mapping[str, CheckpointLayout] = field(default_factory=dict)
    """{name on the command line: layout} of models of other packages with this encoder."""


def encoder_kind(name: str) -> EncoderKind:
    """Return the kind that `encoder: name` means: a name in ENCODERS, or `module:name` of another
    package.

    Raises:
        ConfigError: a third party's code cannot be imported, or is no EncoderKind.
        ValueError: the name is unknown.
    """
    return named_record("encoder", name, ENCODERS, EncoderKind, accepts_code=True)


def encoder_kinds() -> Iterator[EncoderKind]:
    """Yield the kinds of this installation, each once, in the order of ENCODERS. Each is loaded when
    its turn comes.
    """
    return installed_records(ENCODERS)
