"""Batches and filters of one loader of NeMo, as keys of `batch_conf` and `filter_conf`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wenet_uio.config.base import ConfigError

FILTERS = {
    "min_duration": "min_duration",
    "max_duration": "max_duration",
    "min_tps": "min_tps",
    "max_tps": "max_tps",
    "min_tokens": "min_tokens",
    "max_tokens": "max_tokens",
    "min_tpt": "min_tpt",
    "max_tpt": "max_tpt",
    "measure_total_length": "measure_total_length",
}
"""{key of NeMo: key of filter_conf}."""
BATCHES = (
    "batch_size",
    "batch_duration",
    "quadratic_duration",
    "batch_tokens",
    "quadratic_factor",
    "use_bucketing",
    "bucket_duration_bins",
    "bucket_batch_size",
    "use_semi_sorted_batching",
    "randomization_factor",
    "bucketing_strategy",
    "bucketing_batch_size",
    "bucketing_weights",
    "bucketing_2d_strict_mode",
)
"""Keys that say how a loader makes batches."""
ORDERS = {"synced_randomized": "synced", "fixed_order": "rising", "fully_randomized": "random"}
"""{bucketing_strategy of NeMo: length_order}."""
LOWER_BOUNDS = ("min_duration", "min_tps", "min_tokens", "min_tpt")
"""Keys of filter_conf. NeMo's defaults of them are below 0 and bound nothing."""
FRAMES_PER_SECOND = 100
"""Of filter_conf.max_length, at any frame shift."""
DEFAULT_MAX_LENGTH = 10240
"""Frames: filter_conf.max_length by default."""
ANY_LENGTH = 1 << 30
"""Frames: a max_length that no utterance reaches."""


def filters_of(section: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the keys of `filter_conf` that a loader states.

    NeMo may state a `max_tps` for each bucket; the filter gets the largest, which all buckets obey.
    """
    filters = {FILTERS[key]: section[key] for key in FILTERS if key in section}
    for key in LOWER_BOUNDS:
        if isinstance(filters.get(key), (int, float)) and filters[key] < 0:
            del filters[key]

    # NeMo bounds seconds alone. The bound on frames that applies by default must not be tighter.
    max_seconds = filters.get("max_duration")
    if isinstance(max_seconds, (int, float)):
        max_frames = max_seconds * FRAMES_PER_SECOND
        if max_frames > DEFAULT_MAX_LENGTH:
            filters["max_length"] = min(int(max_frames) + 1, ANY_LENGTH)

    if isinstance(filters.get("max_tps"), list):
        if not filters["max_tps"]:
            raise ConfigError(
                f"{where}.max_tps: the list is empty; write a number of tokens per second"
            )
        filters["max_tps"] = max(filters["max_tps"])

    return filters


def batch_conf_of(
    section: Mapping[str, Any], where: str, notes: list[str], *, text_only: bool
) -> dict[str, Any]:
    """Return the `batch_conf` of a loader.

    Args:
        section: keys of the loader; none is null.
        where: beginning of messages.
        notes: gets a line for each key that is converted or not needed.
        text_only: the loader reads text without audio.

    Raises:
        ConfigError: the batches of the loader have no equal here; the message says what to write.
    """
    batch = (
        _text_batches(section, where, notes) if text_only else _audio_batches(section, where, notes)
    )
    for key in (
        "batch_tokens",
        "quadratic_factor",
        "use_semi_sorted_batching",
        "randomization_factor",
    ):
        if key in section:
            batch[key] = section[key]

    if section.get("bucketing_2d_strict_mode") is False:
        batch["bucket_choice"] = "lenient"

    if "bucketing_strategy" in section:
        strategy = section["bucketing_strategy"]
        if strategy not in ORDERS:
            raise ConfigError(
                f"{where}.bucketing_strategy: {strategy!r} is unknown; known: {', '.join(ORDERS)}"
            )
        batch["length_order"] = ORDERS[strategy]

    return batch


def sizes_of_buckets(section: Mapping[str, Any], count: int, where: str) -> list[int] | None:
    """Batch size of each of `count` ready-made buckets; None if all buckets share one batch size.

    Raises:
        ConfigError: `bucketing_batch_size` does not fit the buckets.
    """
    sizes = section.get("bucketing_batch_size")
    if sizes is None:
        return None
    if isinstance(sizes, int):
        return [sizes * (count - number) for number in range(count)]

    return one_per_bucket(sizes, count, f"{where}.bucketing_batch_size")


def one_per_bucket(values: Any, count: int, where: str) -> list[Any]:
    """Return `values`, which must be a list with one item for each of `count` buckets.

    Raises:
        ConfigError: `values` is not a list, or has another length.
    """
    if not isinstance(values, list) or len(values) != count:
        raise ConfigError(
            f"{where}: expected {count} numbers, one for each bucket, found {values!r}"
        )
    return values


def _audio_batches(section: Mapping[str, Any], where: str, notes: list[str]) -> dict[str, Any]:
    """Return `batch_conf` for a loader of audio: buckets, or batches with an upper bound."""
    bins, sizes = section.get("bucket_duration_bins"), section.get("bucket_batch_size")
    if not section.get("use_bucketing", True):
        bins = None

    if sizes and not bins:
        raise ConfigError(
            f"{where}.bucket_batch_size: needs bucket_duration_bins and use_bucketing: true"
        )

    if bins and sizes:
        batch = {"batch_type": "bucket", "bucket_duration_bins": bins, "bucket_batch_size": sizes}
        tps = section.get("max_tps")
        return batch | ({"max_tps": _max_tps(tps, bins, where)} if isinstance(tps, list) else {})

    if bins:
        notes.append(
            f"{where}.bucket_duration_bins: not needed here, because the plan sorts all utterances "
            "by length"
        )

    return _bounded_batches(section, where, notes)


def _bounded_batches(section: Mapping[str, Any], where: str, notes: list[str]) -> dict[str, Any]:
    """Return batches without buckets."""
    if "batch_duration" in section:
        names = ("batch_duration", "quadratic_duration", "batch_size")
        return {
            "batch_type": "dynamic",
            **{name: section[name] for name in names if name in section},
        }

    if "quadratic_duration" in section and "batch_size" in section:
        notes.append(
            f"{where}.quadratic_duration: not needed here, because batch_size alone bounds batches"
        )
    elif "quadratic_duration" in section:
        raise ConfigError(f"{where}.quadratic_duration: needs batch_duration; write both")

    return (
        {"batch_type": "static", "batch_size": section["batch_size"]}
        if "batch_size" in section
        else {}
    )


def _max_tps(limits: list[float], bins: list[Any], where: str) -> list[float]:
    """Return one number for each bucket, or for each duration of the buckets."""
    durations = {end[0] if isinstance(end, list) else end for end in bins}
    if len(limits) in (len(durations), len(bins)):
        return limits

    raise ConfigError(
        f"{where}.max_tps: expected {len(bins)} numbers, one for each bucket, found {len(limits)}"
    )


def _text_batches(section: Mapping[str, Any], where: str, notes: list[str]) -> dict[str, Any]:
    """Return batches of tokens or of a number of texts. Buckets of tokens become the smallest
    padded batch among them.
    """
    if "batch_tokens" in section:
        if "batch_size" in section:
            notes.append(
                f"{where}.batch_size: not needed here, because batch_tokens bounds the batches"
            )
        return {"batch_type": "dynamic"}

    bins, sizes = section.get("bucket_duration_bins") or [], section.get("bucket_batch_size") or []
    if bins and len(bins) == len(sizes):
        total = section.get("measure_total_length", True)
        tokens = _smallest_padded(bins, sizes, total=total)
        notes.append(
            f"{where}.bucket_batch_size: read as batch_tokens: {tokens}, the smallest padded batch "
            "of its buckets"
        )
        return {"batch_type": "dynamic", "batch_tokens": tokens}

    if "bucket_batch_size" in section:
        raise ConfigError(
            f"{where}.bucket_batch_size: needs as many bucket_duration_bins; or write "
            "batch_tokens: 4000 (tokens of a batch) instead"
        )

    return (
        {"batch_type": "static", "batch_size": section["batch_size"]}
        if "batch_size" in section
        else {}
    )


def _smallest_padded(bins: list[Any], sizes: list[int], *, total: bool) -> int:
    """Return the tokens of the smallest padded batch of some buckets.

    Args:
        bins: most tokens of each bucket; of pairs, a list of two numbers, one for each text.
        sizes: texts in a batch of each bucket.
        total: count both texts of a pair; False: the first.
    """
    counted = slice(None) if total else slice(1)
    lengths = [sum(end[counted]) if isinstance(end, list) else end for end in bins]
    return min(round(length * size) for length, size in zip(lengths, sizes, strict=True))
