"""Changes of audio in NeMo's loaders, `augmentor` and Lhotse's options, as keys of dataset_conf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wenet_uio.addons.nemo.config.references import MISSING
from wenet_uio.config.base import ConfigError

KEYS = (
    "augmentor",
    "perturb_speed",
    "noise_path",
    "noise_snr",
    "noise_mix_prob",
    "rir_enabled",
    "rir_prob",
    "channel_selector",
    "trim_silence",
)
"""Keys of a loader that `augmentation_keys` reads."""
RATES = 5
"""Speeds that NeMo draws from, if a perturbation of speed states no number."""
RANGES = {
    "gain": ("gain_conf", "gain", ("min_gain_dbfs", -10), ("max_gain_dbfs", 10)),
    "shift": ("shift_conf", "milliseconds", ("min_shift_ms", -5.0), ("max_shift_ms", 5.0)),
    "white_noise": ("white_noise_conf", "level", ("min_level", -90), ("max_level", -46)),
}
"""{augmentation of NeMo that draws a value: (its section in dataset_conf, key of the range there, lower
and upper end in NeMo with their defaults)}."""
MANIFEST = "manifest_path"
OF_RECORDINGS = ("noise", "impulse")
"""Augmentations with recordings, which MANIFEST lists."""
ANSWERS = {
    "time_stretch": "write dataset_conf.speed_perturb: true",
    "transcode_aug": "write dataset_conf.codec_conf: {codecs: [mulaw, opus]}",
    "rir_noise_aug": "write dataset_conf.reverb_conf and noise_conf",
    "silence": "write dataset_conf.quiet_conf: {seconds: [0, 0.5]}",
    "random_noise": "write dataset_conf.noise_conf",
    "random_segment": "no segments are drawn; remove it",
}
"""{name of an augmentation of NeMo without an equal: what to write}."""


def augmentation_keys(section: Mapping[str, Any], where: str, notes: list[str]) -> dict[str, Any]:
    """Return keys of dataset_conf for the changes of audio that a loader states.

    Args:
        section: keys of the loader.
        where: beginning of messages.
        notes: gets a line for each change that is off because it has no recordings.

    Raises:
        ConfigError: a change has no equal here; the message says what to write.
    """
    keys: dict[str, Any] = {}
    if section.get("perturb_speed"):
        keys["speed_perturb"] = True
    if "noise_path" in section:
        keys["noise_conf"] = {
            "data_list": _recordings_path(section["noise_path"], f"{where}.noise_path"),
            "snr": list(section.get("noise_snr", (10.0, 20.0))),
            "prob": section.get("noise_mix_prob", 0.5),
        }
    if section.get("rir_enabled"):
        keys["reverb_conf"] = {"prob": section.get("rir_prob", 0.5)}
    if section.get("trim_silence"):
        keys["trim_conf"] = {"top_db": 60.0}
    if "channel_selector" in section:
        keys["singal_channel_conf"] = {
            "channel": _selected_channel(section["channel_selector"], where)
        }

    for name, conf in (section.get("augmentor") or {}).items():
        place = f"{where}.augmentor.{name}"
        if name in OF_RECORDINGS and isinstance(conf, Mapping) and conf.get(MANIFEST) is None:
            notes.append(
                f"{place}: off, because {MANIFEST} is null: give the path of a list of "
                "recordings, or remove it"
            )
        else:
            keys |= _augmentor_keys(name, conf, place)

    return keys


def _augmentor_keys(name: str, conf: Any, where: str) -> dict[str, Any]:
    """Return the keys of `dataset_conf` for an augmentation of NeMo.

    Raises:
        ConfigError: the augmentation has no equal here, or `conf` has no keys.
    """
    known = (*OF_RECORDINGS, "speed", *RANGES)
    if name not in known:
        advice = ANSWERS.get(name, f"known: {', '.join((*known, *ANSWERS))}")
        raise ConfigError(f"{where}: has no equal here: {advice}")
    if not isinstance(conf, Mapping):
        raise ConfigError(f"{where}: expected keys of an augmentation, found {conf!r}")

    if name == "speed":
        return _speed_keys(conf, where)

    prob = conf.get("prob", 1.0)
    if name in RANGES:
        our_section, our_key, (lower, default_lower), (upper, default_upper) = RANGES[name]
        ends = [conf.get(lower, default_lower), conf.get(upper, default_upper)]
        return {our_section: {our_key: ends, "prob": prob}}

    recordings = _recordings_path(conf[MANIFEST], f"{where}.{MANIFEST}")
    if name == "impulse":
        return {"reverb_conf": {"data_list": recordings, "prob": prob}}
    ratios = [conf.get("min_snr_db", 10), conf.get("max_snr_db", 50)]
    return {"noise_conf": {"data_list": recordings, "snr": ratios, "prob": prob}}


def _speed_keys(conf: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the keys for changes of speed.

    NeMo changes a share `prob` of the utterances, by one of `num_rates` speeds. Here one of a list
    of speeds is drawn for each utterance, so the list has 1.0 as often as that gives the same
    share.
    """
    slowest, fastest = conf.get("min_speed_rate", 0.9), conf.get("max_speed_rate", 1.1)
    count, prob = conf.get("num_rates", RATES), conf.get("prob", 1.0)

    # The share of the other speeds is count / (count + unchanged).
    unchanged = count * (1 - prob) / prob if prob > 0 else -1
    if count < 1 or unchanged < 0 or abs(unchanged - round(unchanged)) > 1e-6:
        raise ConfigError(
            f"{where}: prob {prob} with num_rates {count} has no equal here; write "
            "dataset_conf.speed_perturb: true and speed_perturb_conf: {speeds: [0.9, 1.0, 1.1]}"
        )

    step = (fastest - slowest) / max(1, count - 1)
    rates = [round(slowest + number * step, 6) for number in range(count)]
    speeds = [1.0] * round(unchanged) + rates
    return {"speed_perturb": True, "speed_perturb_conf": {"speeds": speeds}}


def _recordings_path(path: Any, where: str) -> str:
    """Return the path of a list of recordings."""
    if isinstance(path, Mapping):
        path = path.get("manifest_filepath")
    if not isinstance(path, str) or path == MISSING:
        raise ConfigError(f"{where}: expected the path of a list of recordings, found {path!r}")

    return path


def _selected_channel(selector: Any, where: str) -> Any:
    if selector == "average":
        return "mix"
    if isinstance(selector, int) and not isinstance(selector, bool):
        return selector

    raise ConfigError(f"{where}.channel_selector: expected a number or average, found {selector!r}")
