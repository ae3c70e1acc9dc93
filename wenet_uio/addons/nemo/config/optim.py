"""`model.optim` of NeMo, with `sched` in it, as optimizer and schedule of Config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wenet_uio.addons.nemo.config.references import MISSING, refuse_unresolved
from wenet_uio.config.base import ConfigError
from wenet_uio.config.schedules import BEYOND_ANY_RUN

OPTIMIZERS = ("adam", "adamw")
OPTIM_KEYS = ("name", "lr", "betas", "eps", "weight_decay", "sched")
NEUTRAL = {"amsgrad": False, "fused": None, "foreach": None, "maximize": False, "capturable": False}
"""{key of an optimizer: value that changes nothing}."""
COMMON = ("name", "warmup_steps", "warmup_ratio", "max_steps", "min_lr", "last_epoch")
SCHED_KEYS = {
    "NoamAnnealing": (*COMMON, "d_model"),
    "CosineAnnealing": (*COMMON, "constant_steps", "constant_ratio"),
    "NoamHoldAnnealing": (*COMMON, "hold_steps", "hold_ratio", "decay_rate"),
}
"""{schedule of NeMo that has an equal: its keys}."""
UNUSED = (
    "monitor",
    "reduce_on_plateau",
    "t_max",
    "t_num_workers",
    "t_accumulate_grad_batches",
    "t_limit_train_batches",
    "num_workers",
    "drop_last",
    "iters_per_batch",
)
"""Keys of `sched` that NeMo fills in or reads in other schedules."""
CONSTANT = {
    "scheduler": "tri_stage",
    "scheduler_conf": {"warmup_steps": 0, "hold_steps": BEYOND_ANY_RUN, "decay_steps": 1},
}
"""The schedule of an optimizer without `sched`: a constant rate."""


def optim_keys(optim: Any, run_steps: int | None, where: str, notes: list[str]) -> dict[str, Any]:
    """Return `optim`, `optim_conf`, `scheduler` and `scheduler_conf` for an optimizer of NeMo.

    Args:
        optim: the section.
        run_steps: optimizer steps of the run, if they are known.
        where: beginning of messages.
        notes: gets a line for what is left out.

    Raises:
        ConfigError: a part has no equal here; the message says what to write.
    """
    if not isinstance(optim, Mapping):
        raise ConfigError(f"{where}: expected name, lr and sched of NeMo, found {optim!r}")

    optim = {key: value for key, value in optim.items() if value is not None}
    refuse_unresolved(optim, where)
    name = str(optim.get("name", "adamw")).lower()
    if name not in OPTIMIZERS:
        raise ConfigError(
            f"{where}.name: {optim['name']!r} does not exist here; write adamw, or at the top of "
            "the yaml optim: scaled_adam with optim_conf"
        )

    for key, value in optim.items():
        if key not in OPTIM_KEYS and (key not in NEUTRAL or value != NEUTRAL[key]):
            raise ConfigError(f"{where}.{key}: unknown key; known: {', '.join(OPTIM_KEYS)}")

    conf = {key: optim[key] for key in ("betas", "eps", "weight_decay") if key in optim}
    conf["lr"] = _learning_rate(optim, where)
    schedule = _schedule_keys(optim.get("sched"), conf, run_steps, f"{where}.sched", notes)
    return {"optim": name, "optim_conf": conf, **schedule}


def _learning_rate(optim: Mapping[str, Any], where: str) -> float:
    """Return the learning rate of an optimizer."""
    rate = optim.get("lr")
    if isinstance(rate, str):  # PyYAML reads 1e-3 as a text
        try:
            rate = float(rate)
        except ValueError:
            rate = None
    if not isinstance(rate, (int, float)) or isinstance(rate, bool) or rate <= 0:
        raise ConfigError(
            f"{where}.lr: expected a learning rate above 0, found {optim.get('lr')!r}"
        )

    return float(rate)


def _schedule_keys(
    sched: Any, conf: dict[str, Any], run_steps: int | None, where: str, notes: list[str]
) -> dict[str, Any]:
    """Return `scheduler` and `scheduler_conf`; the schedule may change `lr` of `conf`, in place."""
    if not sched:
        return CONSTANT

    name = sched.get("name") if isinstance(sched, Mapping) else sched
    if name not in SCHED_KEYS:
        raise ConfigError(
            f"{where}.name: {name!r} has no equal here; write one of {', '.join(SCHED_KEYS)}, or "
            "at the top of the yaml scheduler and scheduler_conf"
        )

    values = _schedule_numbers(sched, name, where)
    steps = int(values.get("max_steps", 0)) or run_steps
    makers: dict[str, Callable[..., dict[str, Any]]] = {
        "NoamAnnealing": _noam_keys,
        "CosineAnnealing": _cosine_keys,
        "NoamHoldAnnealing": _noam_hold_keys,
    }
    return makers[name](values, conf, steps, where, notes)


def _schedule_numbers(sched: Any, name: str, where: str) -> dict[str, float]:
    """Return the keys of a schedule that are read."""
    section = sched if isinstance(sched, Mapping) else {}
    numbers: dict[str, float] = {}
    for key, value in section.items():
        if value is None or key == "name" or key in UNUSED:
            continue
        if key not in SCHED_KEYS[name]:
            known = ", ".join(SCHED_KEYS[name])
            raise ConfigError(f"{where}.{key}: unknown key of {name}; known: {known}")
        try:
            numbers[key] = float(value)
        except (TypeError, ValueError):
            hint = "write the number" if value == MISSING else "expected a number"
            raise ConfigError(f"{where}.{key}: {hint}, found {value!r}") from None

    return numbers


def _noam_keys(
    values: Mapping[str, Any],
    conf: dict[str, Any],
    steps: int | None,
    where: str,
    notes: list[str],
) -> dict[str, Any]:
    """Return warmuplr. Both rise to their highest rate, lr / sqrt(d_model * warm-up) in NeMo, and
    fall with the root of the step.
    """
    if "d_model" not in values:
        raise ConfigError(f"{where}.d_model: is missing; write the width of the encoder")

    warmup = _warmup_steps(values, steps, where)
    if not warmup:
        raise ConfigError(f"{where}.warmup_steps: NoamAnnealing needs a warm-up; write a number")

    highest = conf["lr"] / (values["d_model"] * warmup) ** 0.5
    lowest = values.get("min_lr", 0.0)
    falls_until = warmup * (highest / lowest) ** 2 if lowest else float("inf")
    conf["lr"] = highest
    if falls_until >= (steps or BEYOND_ANY_RUN):
        if lowest:
            notes.append(
                f"{where}.min_lr: not needed here, because the rate reaches it after "
                f"{falls_until:.3g} steps"
            )
        return {"scheduler": "warmuplr", "scheduler_conf": {"warmup_steps": warmup}}

    # The same curve with a floor, from which it does not rise again
    return {
        "scheduler": "NoamHoldAnnealing",
        "scheduler_conf": {
            "max_steps": steps or BEYOND_ANY_RUN,
            "warmup_steps": warmup,
            "hold_steps": 0,
            "decay_rate": 0.5,
            "min_lr": lowest,
        },
    }


def _cosine_keys(
    values: Mapping[str, Any],
    conf: dict[str, Any],
    steps: int | None,
    where: str,
    notes: list[str],
) -> dict[str, Any]:
    """Return keys of Config for NeMo's CosineAnnealing."""
    if values.get("constant_steps") or values.get("constant_ratio"):
        raise ConfigError(
            f"{where}.constant_steps: has no equal here; write max_steps without the constant part"
        )

    steps = _required_steps(steps, where)
    return {
        "scheduler": "WarmupCosine",
        "scheduler_conf": {
            "max_steps": steps,
            "warmup_steps": _warmup_steps(values, steps, where),
            "min_lr": values.get("min_lr", 0.0),
        },
    }


def _noam_hold_keys(
    values: Mapping[str, Any],
    conf: dict[str, Any],
    steps: int | None,
    where: str,
    notes: list[str],
) -> dict[str, Any]:
    """Return keys of Config for NeMo's NoamHoldAnnealing."""
    scheduler_conf: dict[str, Any] = {"max_steps": _required_steps(steps, where)}
    for key in ("warmup_steps", "hold_steps"):
        if key in values:
            scheduler_conf[key] = int(values[key])
    for key in ("warmup_ratio", "hold_ratio", "decay_rate", "min_lr"):
        if key in values:
            scheduler_conf[key] = values[key]

    return {"scheduler": "NoamHoldAnnealing", "scheduler_conf": scheduler_conf}


def _warmup_steps(values: Mapping[str, Any], steps: int | None, where: str) -> int:
    """Return the optimizer steps of the warm-up."""
    if "warmup_ratio" not in values:
        return int(values.get("warmup_steps", 0))
    if "warmup_steps" in values:
        raise ConfigError(f"{where}: give warmup_steps or warmup_ratio, not both")

    return int(values["warmup_ratio"] * _required_steps(steps, where))


def _required_steps(steps: int | None, where: str) -> int:
    """Return the length of the run in optimizer steps; ConfigError if the config does not state it.

    NeMo computes it from its loader.
    """
    if steps is None:
        raise ConfigError(
            f"{where}.max_steps: the schedule needs the length of the run in optimizer steps; write "
            "trainer.max_steps; tools/plan_report.py prints the steps of an epoch"
        )

    return steps
