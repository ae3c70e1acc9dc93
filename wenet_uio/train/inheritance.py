"""Weights of a trained model for a new one, which may have other units or new parts."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from wenet_uio.config import Config
from wenet_uio.config.train import ENDLESS, WarmupLrConf
from wenet_uio.models.build import build_trainable
from wenet_uio.models.lora import is_lora
from wenet_uio.models.speech_model import Vocabulary
from wenet_uio.models.weights import fill
from wenet_uio.text.tokenizer import build_tokenizer

WARM_UP = 50
"""Most steps of the warm-up of a fine-tuning that states none."""

log = logging.getLogger(__name__)


def has_new_ctc(config: Config, of: Config) -> bool:
    """Tell whether a config trains a CTC layer that the trained model with the config `of` lacks."""
    return config.model_conf.ctc_weight > 0 and of.model_conf.ctc_weight == 0


def with_detached_ctc(config: Config, of: Config, *, resumes: bool) -> Config:
    """Fill in `ctc_detach_steps`, if the yaml does not state it.

    Args:
        config: of the run.
        of: of the trained model, or of a run that `resumes` its own.
        resumes: whether the run has begun.
    """
    if config.ctc_detach_steps is not None:
        return config
    if resumes:
        return config.model_copy(update={"ctc_detach_steps": of.ctc_detach_steps})
    if not has_new_ctc(config, of):
        return config

    # A number of steps is not safe: where the loss is still large, the encoder is spoilt then.
    log.info("CTC is new: its gradient does not reach the encoder (ctc_detach_steps)")
    return config.model_copy(update={"ctc_detach_steps": ENDLESS})


def with_warm_up(config: Config, of: Config, epoch_steps: int, *, resumes: bool) -> Config:
    """Fill in `scheduler_conf.warmup_steps` of WarmupLR, if the yaml does not state it: a third of
    the steps of the run, at most WARM_UP.

    Args:
        config: of the run.
        of: of the trained model, or of a run that `resumes` its own.
        epoch_steps: steps of the loader in an epoch.
        resumes: whether the run has begun.
    """
    conf = config.scheduler_conf
    if not isinstance(conf, WarmupLrConf) or "warmup_steps" in conf.model_fields_set:
        return config

    if resumes and isinstance(of.scheduler_conf, WarmupLrConf):
        warmup = of.scheduler_conf.warmup_steps
    else:
        steps = math.ceil(epoch_steps / config.accum_grad) * config.max_epoch
        steps = min(steps, config.max_steps or steps)
        warmup = max(1, min(WARM_UP, steps // 3))
        log.info("warmup_steps %d: the learning rate is highest after %d steps", warmup, warmup)

    scheduler_conf = conf.model_copy(update={"warmup_steps": warmup})
    return config.model_copy(update={"scheduler_conf": scheduler_conf})


@dataclass(frozen=True)
class Units:
    """The units of a model by name, and the size of its vocabulary."""

    ids: Mapping[str, int]
    vocabulary: Vocabulary

    @classmethod
    def of(cls, config: Config) -> Units:
        """Read the units of a complete config.

        Raises:
            OSError, ValueError: the tokenizer cannot be built.
        """
        return cls(build_tokenizer(config).symbols, config.family.vocabulary(config))

    def rows_from(self, other: Units) -> dict[int, int]:
        """Return {id here: id of the same unit in `other`}; blank, sos and eos are the same units
        by their roles.
        """
        rows = {number: other.ids[name] for name, number in self.ids.items() if name in other.ids}
        for role in ("blank", "sos", "eos"):
            rows[getattr(self.vocabulary, role)] = getattr(other.vocabulary, role)

        return rows


def inherit(
    model: nn.Module, config: Config, weights: Mapping[str, torch.Tensor], of: Config, source: str
) -> None:
    """Copy the weights of a trained model into `model`, in place.

    With other units, the layers that have a row for each unit keep their new weights, except in the
    rows of units that both models have. New low-rank weights (LoRA) stay as they are.

    Args:
        model: the untrained model of `config`.
        config: with ids of special tokens and `output_dim`.
        weights: of the trained model, without LoRA.
        of: config of the trained model.
        source: beginning of messages.

    Raises:
        OSError, ValueError: a tokenizer cannot be built, or the weights are those of another model.
    """
    new_weights = model.state_dict()
    weights = dict(weights) | {
        name: weight for name, weight in new_weights.items() if is_lora(name)
    }
    units, former = Units.of(config), Units.of(of)

    if units != former:
        rows = units.rows_from(former)
        tables = _tables_of_units(new_weights, config)
        for name, dim in tables.items():
            if name in weights:
                weights[name] = _with_rows(new_weights[name], weights[name], rows, dim)

        log.info(
            "%s: other units: the output layer is new; %d of its %d units are units of the model, "
            "whose rows are copied (%s)",
            source,
            len(rows),
            units.vocabulary.size,
            ", ".join(tables),
        )

    fill(model, weights, source)


def _tables_of_units(wanted: Mapping[str, torch.Tensor], config: Config) -> dict[str, int]:
    """Return {name of each weight that has a row for each unit: its dimension of the units}.

    These are the weights whose shapes change with the size of the vocabulary. The model that tells
    so has no values: those of a large model would take seconds and gigabytes.
    """
    size = (config.vocabulary_size or 0) + 1
    larger = config.model_copy(update={"output_dim": size, "vocab_size": size})
    with torch.random.fork_rng(), torch.device("meta"):
        shapes = {name: value.shape for name, value in build_trainable(larger).state_dict().items()}

    tables = {}
    for name, value in wanted.items():
        dims = [dim for dim in range(value.dim()) if value.size(dim) != shapes[name][dim]]
        if dims:
            tables[name] = dims[0]

    return tables


def _with_rows(
    new: torch.Tensor, old: torch.Tensor, rows: Mapping[int, int], dim: int
) -> torch.Tensor:
    """Return `new` with the rows {place in new: place in old} of `old`."""
    places = {place: origin for place, origin in rows.items() if origin < old.size(dim)}
    rows_of_old = old.index_select(dim, torch.tensor(list(places.values())))
    return new.clone().index_copy(dim, torch.tensor(list(places)), rows_of_old.to(new.dtype))
