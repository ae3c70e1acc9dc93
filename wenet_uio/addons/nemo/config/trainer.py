"""`trainer` of NeMo, the settings of Lightning's Trainer, as keys of Config."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from wenet_uio.base.messages import nearest_name
from wenet_uio.config.base import ConfigError
from wenet_uio.config.train import ENDLESS

NO_CLIPPING = 1e9
"""`grad_clip` of a run without a bound on its gradients."""
PRECISIONS = {
    "32": "fp32",
    "32-true": "fp32",
    "16": "fp16",
    "16-mixed": "fp16",
    "bf16": "bf16",
    "bf16-mixed": "bf16",
}
"""{precision of Lightning: dtype}."""
STRATEGIES = {"ddp": "torch_ddp", "fsdp": "torch_fsdp", "deepspeed": "deepspeed"}
"""{beginning of a strategy of Lightning, in small letters: train_engine}."""
_LAUNCH = (
    "the launcher starts the processes: python -m wenet_uio.bin.launch --nnodes N "
    "--nproc_per_node N -m wenet_uio.bin.train"
)
NOT_NEEDED = {
    "enable_progress_bar": "the log and TensorBoard show the progress",
    "progress_bar_refresh_rate": "the log and TensorBoard show the progress",
    "num_sanity_val_steps": "the data is checked when its index is made",
    "enable_checkpointing": "every epoch is saved; see save_interval, keep_last and keep_best",
    "checkpoint_callback": "every epoch is saved; see save_interval, keep_last and keep_best",
    "enable_model_summary": "train.py --print_model prints the model",
    "logger": "TensorBoard's files are always written",
    "benchmark": "lengths differ in each batch",
    "deterministic": "one seed gives the same run",
    "use_distributed_sampler": "the plan gives every rank its own batches",
    "replace_sampler_ddp": "the plan gives every rank its own batches",
    "reload_dataloaders_every_n_epochs": "every epoch is planned anew",
    "amp_backend": "PyTorch has mixed precision itself",
    "amp_level": "PyTorch has mixed precision itself",
    "min_epochs": "only patience and max_time end a run before max_epoch and max_steps",
    "min_steps": "only patience and max_time end a run before max_epoch and max_steps",
    "callbacks": "a run saves, averages and stops by keys of train.yaml",
    "plugins": "train_engine selects the engine",
    "default_root_dir": "the folder of a run is train.py --model_dir",
    "weights_save_path": "the folder of a run is train.py --model_dir",
    "profiler": "tools/profile_data.py measures the data",
    "resume_from_checkpoint": "a run resumes from its own newest state",
    "inference_mode": "validation computes no gradients",
}
"""{key: why it is not needed}."""
OTHERWISE = {
    "accelerator": "the device is an option of train.py: --device",
    "devices": _LAUNCH,
    "gpus": _LAUNCH,
    "num_nodes": _LAUNCH,
    "sync_batchnorm": "statistics of batch normalisation are those of each rank; "
    "encoder_conf.cnn_module_norm: layer_norm has none",
    "limit_val_batches": "every validation reads all of its data; give a shorter list as --cv_data",
    "limit_test_batches": "recognize.py reads all of its data",
    "check_val_every_n_epoch": "a validation follows every epoch; epoch_steps sets its length",
}
"""{key: what is done instead}."""
OFF: dict[str, tuple[Any, ...]] = {
    "sync_batchnorm": (False, None),
    "limit_val_batches": (1.0, None),
    "limit_test_batches": (1.0, None),
    "check_val_every_n_epoch": (1, None),
    "fast_dev_run": (False, None),
    "overfit_batches": (0, 0.0, None),
    "detect_anomaly": (False, None),
    "gradient_clip_algorithm": ("norm", None),
    "limit_predict_batches": (1.0, None),
    "barebones": (False, None),
    "truncated_bptt_steps": (None,),
    "auto_lr_find": (False, None),
    "auto_scale_batch_size": (False, None),
}
"""{key: values that change nothing}."""
INSTEAD = {
    "fast_dev_run": "write max_steps: 1",
    "overfit_batches": "give a short list as --train_data",
    "detect_anomaly": "steps with infinite gradients are skipped and counted, see "
    "max_nonfinite_steps; remove the key",
    "gradient_clip_algorithm": "gradients are bounded by their norm; write norm",
    "limit_predict_batches": "give a shorter list to recognize.py",
    "barebones": "remove the key",
    "truncated_bptt_steps": "remove the key",
    "auto_lr_find": "write optim_conf.lr",
    "auto_scale_batch_size": "tools/find_batch_size.py finds the batch size",
}
"""{key that changes a run here with no value: what to write}."""
LENGTHS = (
    "max_steps",
    "max_epochs",
    "max_time",
    "limit_train_batches",
    "val_check_interval",
    "accumulate_grad_batches",
)
OTHERS = ("gradient_clip_val", "precision", "strategy", "log_every_n_steps")
KNOWN = (*LENGTHS, *OTHERS, *NOT_NEEDED, *OTHERWISE, *OFF)


@dataclass
class TrainerKeys:
    """What `trainer` says."""

    values: dict[str, Any] = field(default_factory=dict)
    """Keys of Config."""
    notes: list[str] = field(default_factory=list)


def trainer_keys(trainer: Any, where: str) -> TrainerKeys:
    """Return the keys of Config for `trainer` of NeMo.

    Raises:
        ConfigError: a key is unknown, or a value has no equal here; the message says what to write.
    """
    if not isinstance(trainer, Mapping):
        raise ConfigError(f"{where}: expected keys of Lightning's Trainer, found {trainer!r}")

    keys = TrainerKeys()
    for key, value in trainer.items():
        _note_key(str(key), value, where, keys.notes)

    keys.values |= _epoch_and_run_length(trainer, where, keys.notes)
    keys.values |= _arithmetic_keys(trainer, where)
    return keys


def _note_key(key: str, value: Any, where: str, notes: list[str]) -> None:
    """Note a key that has no equal; refuse one that is unknown or would change the run."""
    if key not in KNOWN:
        nearest = nearest_name(key, KNOWN)
        hint = f"did you mean {nearest!r}?" if nearest else "remove it"
        raise ConfigError(f"{where}.{key}: unknown key; {hint}")

    if key in OFF and any(value is off or value == off for off in OFF[key]):
        return
    if key in INSTEAD:
        raise ConfigError(f"{where}.{key}: {value!r} has no equal here; {INSTEAD[key]}")
    if key in NOT_NEEDED:
        notes.append(f"{where}.{key}: not needed here, because {NOT_NEEDED[key]}")
    elif key in OTHERWISE:
        notes.append(f"{where}.{key}: not read here: {OTHERWISE[key]}")


def _epoch_and_run_length(
    trainer: Mapping[str, Any], where: str, notes: list[str]
) -> dict[str, Any]:
    """Return the length of an epoch and of the run, and batches of a step."""
    values: dict[str, Any] = {}
    joined = _whole_number(trainer, "accumulate_grad_batches", where) or 1
    if trainer.get("accumulate_grad_batches") is not None:
        values["accum_grad"] = joined

    epoch_batches = _epoch_batches(trainer, where)
    if epoch_batches is not None:
        values["epoch_steps"] = math.ceil(epoch_batches / joined)
        if epoch_batches % joined:
            notes.append(
                f"{where}: {epoch_batches} batches are no multiple of accumulate_grad_batches "
                f"{joined}: an epoch has {values['epoch_steps'] * joined} batches"
            )

    return values | _run_length(trainer, where)


def _run_length(trainer: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the length of the run. With `max_steps` or `max_time` alone, as in Lightning, no epoch
    ends it.
    """
    hours = _run_hours(trainer.get("max_time"), f"{where}.max_time")
    bound: dict[str, Any] = {} if hours is None else {"max_hours": hours}
    steps = _endless_or_number(trainer, "max_steps", where)
    epochs = _endless_or_number(trainer, "max_epochs", where)
    if epochs is not None:
        epochs *= _epoch_validations(trainer, where)
    if steps is not None:
        return {**bound, "max_steps": steps, "max_epoch": epochs or ENDLESS}
    if bound:
        return {**bound, "max_epoch": epochs or ENDLESS}
    if epochs is None and "max_epochs" in trainer:
        raise ConfigError(
            f"{where}.max_epochs: {trainer['max_epochs']!r} without max_steps never ends; write "
            "max_epochs, max_steps or max_time"
        )

    return {} if epochs is None else {"max_epoch": epochs}


def _run_hours(value: Any, where: str) -> float | None:
    """Return the hours of `max_time`: DD:HH:MM:SS, or the numbers that timedelta takes."""
    if value is None:
        return None

    parts: Mapping[Any, Any] = value if isinstance(value, Mapping) else {}
    if isinstance(value, str) and re.fullmatch(r"\d+:\d\d?:\d\d?:\d\d?", value):
        names = ("days", "hours", "minutes", "seconds")
        parts = dict(zip(names, map(int, value.split(":")), strict=True))

    try:
        seconds = timedelta(**parts).total_seconds()
    except (TypeError, OverflowError):
        seconds = 0.0
    if seconds > 0:
        return seconds / 3600

    raise ConfigError(
        f"{where}: expected a time above 0 as DD:HH:MM:SS, such as '00:04:00:00', or {{hours: 4}}, "
        f"found {value!r}"
    )


def _epoch_batches(trainer: Mapping[str, Any], where: str) -> int | None:
    """Return batches of a rank between two validations; None: one pass over the data."""
    limit = _count_or_share(trainer, "limit_train_batches", None, where)
    return _count_or_share(trainer, "val_check_interval", limit, where)


def _count_or_share(
    trainer: Mapping[str, Any], key: str, whole: int | None, where: str
) -> int | None:
    """Return a number of batches that Lightning takes as a number or as a share of `whole`."""
    value = trainer.get(key)
    if value is None or _is_whole(value):
        return whole
    if not _is_number(value) or value <= 0 or (value > 1 and value != int(value)):
        raise ConfigError(f"{where}.{key}: expected a number of batches above 0, found {value!r}")
    if value >= 1:
        return int(value)
    if whole is not None:
        return max(1, int(whole * value))

    raise ConfigError(
        f"{where}.{key}: {value!r} is a share of an epoch, whose length is not known yet; write a "
        f"number of batches, {key}: 1000; tools/plan_report.py prints those of an epoch"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_whole(share: Any) -> bool:
    """Tell whether a value of Lightning is the whole epoch: 1.0, while 1 is one batch."""
    return isinstance(share, float) and share == 1.0


def _epoch_validations(trainer: Mapping[str, Any], where: str) -> int:
    """Return how many validations an epoch of NeMo has.

    Each of them ends an epoch here.
    """
    interval = trainer.get("val_check_interval")
    if interval is None or _is_whole(interval):
        return 1

    limit = _count_or_share(trainer, "limit_train_batches", None, where)
    batches = _epoch_batches(trainer, where)
    if limit is None or batches is None or limit % batches:
        raise ConfigError(
            f"{where}.val_check_interval: an epoch here ends with its validation, so max_epochs "
            f"{trainer['max_epochs']} would be another number of passes; write max_steps and "
            "max_epochs: -1, or val_check_interval: 1.0"
        )

    return limit // batches


def _endless_or_number(trainer: Mapping[str, Any], key: str, where: str) -> int | None:
    """Return a whole number above 0; None if the key is absent, null or -1, which is no limit."""
    if trainer.get(key) == -1:
        return None
    return _whole_number(trainer, key, where)


def _whole_number(trainer: Mapping[str, Any], key: str, where: str) -> int | None:
    """Return a whole number above 0; None if the key is absent or null."""
    value = trainer.get(key)
    if value is None:
        return None
    if not _is_number(value) or value != int(value) or value <= 0:
        raise ConfigError(f"{where}.{key}: expected a whole number above 0, found {value!r}")

    return int(value)


def _arithmetic_keys(trainer: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return keys of gradients, precision, engine and log."""
    readers: dict[str, Callable[[Any, str], dict[str, Any]]] = {
        "gradient_clip_val": _gradient_clipping,
        "precision": _weight_dtype,
        "strategy": _engine_keys,
    }
    values: dict[str, Any] = {}
    for key, read in readers.items():
        if key in trainer:
            values |= read(trainer[key], f"{where}.{key}")

    interval = _whole_number(trainer, "log_every_n_steps", where)
    if interval is not None:
        values["log_interval"] = interval
    return values


def _gradient_clipping(value: Any, where: str) -> dict[str, Any]:
    if value is None or value == 0:
        return {"grad_clip": NO_CLIPPING}
    if not _is_number(value) or value < 0:
        raise ConfigError(f"{where}: expected a norm, found {value!r}")

    return {"grad_clip": float(value)}


def _weight_dtype(value: Any, where: str) -> dict[str, Any]:
    """Return `dtype`, the arithmetic, for a `precision` of Lightning; weights are always fp32."""
    if value is None:
        return {}
    if str(value) not in PRECISIONS:
        raise ConfigError(
            f"{where}: {value!r} has no equal here, because weights stay fp32; write one of "
            f"{', '.join(PRECISIONS)}"
        )

    return {"dtype": PRECISIONS[str(value)]}


def _engine_keys(value: Any, where: str) -> dict[str, Any]:
    """Return the engine; `value` is a name of Lightning, or a mapping with the class."""
    named = value.get("_target_") if isinstance(value, Mapping) else value
    name = str(named or "auto").rpartition(".")[2].lower()
    if name in ("auto", "none"):
        return {}

    for start, engine in STRATEGIES.items():
        if name.startswith(start):
            return {"train_engine": engine}

    raise ConfigError(
        f"{where}: {named!r} has no equal here; write train_engine: torch_ddp, torch_fsdp or "
        "deepspeed instead"
    )
