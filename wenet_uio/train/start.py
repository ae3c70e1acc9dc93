"""How a run starts: with new weights, from a trained model, or from its own newest state.

A trained model may have other units than the run, and lack a CTC layer that the run trains.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import nn

from wenet_uio.base.hub_address import HubAddress, hub_address, is_hub_address
from wenet_uio.base.run_files import OTHER_UNITS, TRAIN_CONFIG, read_starts
from wenet_uio.config import Config, load_config
from wenet_uio.config.dataset import HeardQuiet
from wenet_uio.config.schedules import WarmupLrConf
from wenet_uio.config.train import ENDLESS
from wenet_uio.config.trust import Trust
from wenet_uio.models.build import build_trainable
from wenet_uio.models.lora import is_lora
from wenet_uio.models.speech_model import Vocabulary
from wenet_uio.models.trainable_model import TrainableModel
from wenet_uio.models.weights import fill_weights, load_parts, load_weights
from wenet_uio.text.labels import Tokenizer
from wenet_uio.text.tokenizer import build_tokenizer
from wenet_uio.train.baseline import compared_losses
from wenet_uio.train.checkpoint import RunFolder
from wenet_uio.train.trained_model import TrainedModel
from wenet_uio.train.trainer import Trainer
from wenet_uio.train.units import refuse_unused_units, use_units_in

WARM_UP = 50
"""Most steps of the warm-up of a fine-tuning that states none."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WeightFiles:
    """Files of weights for a new run: --checkpoint and --enc_init."""

    checkpoint: str | None = None
    """Weights of a model of this config."""
    lora: str | None = None
    """Low-rank weights (LoRA) that belong to them."""
    enc_init: str | None = None
    """Weights of which some modules are taken."""
    enc_init_mods: tuple[str, ...] = ()

    def load_into(self, model: TrainableModel, config: Config) -> None:
        """Copy the weights into the model, in place.

        Raises:
            ValueError, OSError: a file cannot be read, or has weights of another model.
        """
        if self.checkpoint:
            load_weights(model, self.checkpoint, new_lora=config.use_lora, lora=self.lora)
            log.info("weights from %s", self.checkpoint)
        if self.enc_init:
            count = load_parts(model, self.enc_init, self.enc_init_mods)
            modules = ", ".join(self.enc_init_mods)
            log.info("%d weights of %s from %s", count, modules, self.enc_init)

    def say_ignored(self) -> None:
        """Log the files that a run that resumes does not read."""
        for name in ("checkpoint", "enc_init"):
            path = getattr(self, name)
            if path:
                log.info("--%s %s is ignored: the run resumes from its own state", name, path)


@dataclass(frozen=True)
class Fresh:
    """A new run of the model that its config describes."""

    files: WeightFiles
    model_config: ClassVar[Config | None] = None
    source: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def detach_new_ctc(self, config: Config) -> Config:
        """Return the config: without a trained encoder there is nothing to protect from CTC."""
        return config

    def load_into(self, model: TrainableModel, config: Config, tokenizer: Tokenizer) -> None:
        """Give the model its first weights, in place.

        Raises:
            OSError, ValueError: a file cannot be read, or does not fit the model.
        """
        self.files.load_into(model, config)
        choose_ctc_units(model, config, tokenizer)

    def fill_in_warm_up(self, config: Config, _: int) -> Config:
        """Return the config: its warm-up is that of the yaml."""
        return config


@dataclass(frozen=True)
class FineTune:
    """A new run that starts from a trained model, which may have other units."""

    trained: TrainedModel
    source: Mapping[str, str]
    """What the records of the run say about it: `from`, and `from_commit` of a model of a hub."""
    files: WeightFiles

    @property
    def model_config(self) -> Config:
        """Config of the trained model, which says what the model of the run is."""
        return self.trained.config

    def detach_new_ctc(self, config: Config) -> Config:
        """Fill in `ctc_detach_steps` of a new CTC layer, if the yaml does not state it."""
        if config.ctc_detach_steps is not None or not self._has_new_ctc(config):
            return config

        # A number of steps is not safe: where the loss is still large, the encoder is spoilt then.
        log.info("CTC is new: its gradient does not reach the encoder (ctc_detach_steps)")
        return config.model_copy(update={"ctc_detach_steps": ENDLESS})

    def load_into(self, model: TrainableModel, config: Config, tokenizer: Tokenizer) -> None:
        """Give the model the weights of the trained one, in place.

        Raises:
            OSError, ValueError: a file cannot be read, or does not fit the model.
        """
        weights = self.trained.read_weights()
        inherit_weights(model, config, weights, self.trained.config, str(self.trained.path))
        log.info("weights from %s", self.trained.weights)
        self.files.load_into(model, config)
        choose_ctc_units(model, config, tokenizer)

    def record(self, config: Config) -> dict[str, Any]:
        """Return what environment.yaml says of the trained model, for a run of this config."""
        if Units.read(config) == Units.read(self.trained.config):
            return dict(self.source)
        return {**self.source, OTHER_UNITS: True}

    def fill_in_warm_up(self, config: Config, epoch_steps: int) -> Config:
        """Fill in `scheduler_conf.warmup_steps` of WarmupLR, if the yaml does not state it: a third
        of the steps of the run, at most WARM_UP.

        Args:
            config: of the run.
            epoch_steps: steps of the loader in an epoch.
        """
        if not lacks_warm_up(config):
            return config
        return shorten_warm_up(config, epoch_steps)

    def compared_losses(self, model: TrainableModel, config: Config) -> dict[str, float]:
        """Return the losses that say whether the model becomes better, see baseline.py."""
        return compared_losses(model, ctc_is_new=self._has_new_ctc(config))

    def _has_new_ctc(self, config: Config) -> bool:
        """Tell whether a config trains a CTC layer that the trained model lacks."""
        return config.model_conf.ctc_weight > 0 and self.trained.config.model_conf.ctc_weight == 0


@dataclass(frozen=True)
class Resume:
    """A run that goes on from its newest state."""

    state: dict[str, Any]
    model_config: Config | None
    """The train.yaml of the run if it began from a trained model, which may be moved or deleted."""
    source: Mapping[str, str]
    """The trained model that the run began from: `from`, and `from_commit` of a hub; else empty."""
    files: WeightFiles
    """These are not read: the run has weights of its own."""

    @property
    def heard_quiet(self) -> HeardQuiet | None:
        """What the run has measured at its start."""
        measured = self.state["config"]["dataset_conf"].get("heard_quiet")
        return None if measured is None else HeardQuiet(**measured)

    def detach_new_ctc(self, config: Config) -> Config:
        """Take `ctc_detach_steps` of a fine-tuning from its train.yaml, if the yaml does not state it."""
        if config.ctc_detach_steps is not None or self.model_config is None:
            return config
        return config.model_copy(update={"ctc_detach_steps": self.model_config.ctc_detach_steps})

    def fill_in_warm_up(self, config: Config, epoch_steps: int) -> Config:
        """Fill in the warm-up of a fine-tuning, if the yaml does not state it: the number with which
        the run began.
        """
        if self.model_config is None or not lacks_warm_up(config):
            return config

        conf = self.model_config.scheduler_conf
        if not isinstance(conf, WarmupLrConf):
            return shorten_warm_up(config, epoch_steps)
        return replace_warmup_steps(config, conf.warmup_steps)

    def load_into(self, trainer: Trainer, *, allow_data_changes: bool) -> None:
        """Let the trainer go on from the state.

        Args:
            allow_data_changes: accept another data list, vocabulary or batches.

        Raises:
            ValueError: the data or the model differs from those of the state.
        """
        if not allow_data_changes:
            trainer.folder.refuse_changed_files(trainer.config)
        trainer.load(self.state, allow_data_changes=allow_data_changes)
        self.files.say_ignored()


def resume_run(
    folder: RunFolder,
    state: dict[str, Any],
    named: str | None,
    files: WeightFiles,
    *,
    trust_code: Trust,
) -> Resume:
    """Return the start of a run that goes on from `state`, the newest one in its folder.

    Args:
        named: the model that --from names.
        files: those that options name, which are not read.
        trust_code: which code of other packages, that the model of --from brought, may run.

    Raises:
        ValueError: `named` is not the model that the run began from.
    """
    starts = read_starts(folder.path)
    began_from = starts[0].get("from") if starts else None
    if began_from is None and named is None:
        return Resume(state, None, {}, files)

    commit = starts[0].get("from_commit") if starts else None
    if began_from is None or named is None or not is_same_model(named, began_from, commit):
        raise ValueError(
            f"{folder.path}: this run began from {began_from or 'new weights'}, not from "
            f"{named or 'new weights'}: give the same --from to resume it, or another --model_dir"
        )

    config = load_config(folder.path / TRAIN_CONFIG, of_model=True, trust_code=trust_code)
    source = {"from": str(Path(began_from))}
    if is_hub_address(named):
        source = {"from": named, "from_commit": starts[0]["from_commit"]}
    return Resume(state, config, source, files)


def is_same_model(named: str, began_from: str, commit: str | None) -> bool:
    """Tell whether the model that --from names is the one that the run began from; `commit` is that
    of a model of a hub.
    """
    if is_hub_address(named) and is_hub_address(began_from):
        began = hub_address(began_from)
        return hub_address(named) in (began, HubAddress(began.name, commit))
    return Path(named).resolve() == Path(began_from).resolve()


def choose_ctc_units(model: TrainableModel, config: Config, tokenizer: Tokenizer) -> None:
    """Mark the units that the CTC layer of a new run learns, in place.

    Raises:
        OSError, ValueError: the texts of `ctc_texts` cannot be read or used, or are missing for the
            CTC of a model that learned from such texts.
    """
    if config.ctc_texts:
        use_units_in(config.ctc_texts, model.ctc, tokenizer)
    elif config.model_conf.ctc_weight > 0:
        refuse_unused_units(model.ctc)


def lacks_warm_up(config: Config) -> bool:
    """Tell whether a yaml has WarmupLR and does not state its warm-up."""
    conf = config.scheduler_conf
    return isinstance(conf, WarmupLrConf) and "warmup_steps" not in conf.model_fields_set


def shorten_warm_up(config: Config, epoch_steps: int) -> Config:
    """Let the warm-up take a third of the steps of the run, at most WARM_UP.

    Args:
        config: of the run, with WarmupLR.
        epoch_steps: steps of the loader in an epoch.
    """
    steps = math.ceil(epoch_steps / config.accum_grad) * config.max_epoch
    steps = min(steps, config.max_steps or steps)
    warmup = max(1, min(WARM_UP, steps // 3))
    log.info("warmup_steps %d: the learning rate is highest after %d steps", warmup, warmup)
    return replace_warmup_steps(config, warmup)


def replace_warmup_steps(config: Config, steps: int) -> Config:
    """Return the config with another `scheduler_conf.warmup_steps`."""
    scheduler_conf = config.scheduler_conf.model_copy(update={"warmup_steps": steps})
    return config.model_copy(update={"scheduler_conf": scheduler_conf})


@dataclass(frozen=True)
class Units:
    """The units of a model by name, and the size of its vocabulary."""

    ids: Mapping[str, int]
    vocabulary: Vocabulary

    @classmethod
    def read(cls, config: Config) -> Units:
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


def inherit_weights(
    model: nn.Module,
    config: Config,
    trained_weights: Mapping[str, torch.Tensor],
    trained_config: Config,
    source: str,
) -> None:
    """Copy the weights of a trained model into `model`, in place.

    With other units, the layers that have a row for each unit keep their new weights, except in the
    rows of units that both models have. New low-rank weights (LoRA) stay as they are.

    Args:
        model: the untrained model of `config`.
        config: with ids of special tokens and `output_dim`.
        trained_weights: without LoRA.
        trained_config: config of the trained model.
        source: beginning of messages.

    Raises:
        OSError, ValueError: a tokenizer cannot be built, or the weights are those of another model.
    """
    new_weights = model.state_dict()
    weights = dict(trained_weights)
    for name, weight in new_weights.items():
        if is_lora(name):
            weights[name] = weight

    units, former = Units.read(config), Units.read(trained_config)

    if units != former:
        rows = units.rows_from(former)
        tables = _tables_of_units(new_weights, config)
        for name, dim in tables.items():
            if name in weights:
                weights[name] = _copy_rows(new_weights[name], weights[name], rows, dim)

        log.info(
            "%s: other units: the output layer is new; %d of its %d units are units of the model, "
            "whose rows are copied (%s)",
            source,
            len(rows),
            units.vocabulary.size,
            ", ".join(tables),
        )

    fill_weights(model, weights, source)


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


def _copy_rows(
    new: torch.Tensor, old: torch.Tensor, rows: Mapping[int, int], dim: int
) -> torch.Tensor:
    """Return `new` with the rows {place in new: place in old} of `old`."""
    places = {place: origin for place, origin in rows.items() if origin < old.size(dim)}
    rows_of_old = old.index_select(dim, torch.tensor(list(places.values())))
    return new.clone().index_copy(dim, torch.tensor(list(places)), rows_of_old.to(new.dtype))
