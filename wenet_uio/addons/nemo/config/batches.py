"""Batches and filters of one loader of NeMo, as keys of `batch_conf` and `filter_conf`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from wenet_uio.config.base import ConfigError

FILTERS = (
    "min_duration",
    "max_duration",
    "min_tps",
    "max_tps",
    "min_tokens",
    "max_tokens",
    "min_tpt",
    "max_tpt",
    "measure_total_length",
)
"""Keys of NeMo's loaders that filter_conf has, too."""
MULTIMODAL = ("use_multimodal_sampling", "use_multimodal_dataloading")
"""Keys that say that audio, too, is measured in tokens."""
SECONDS_OF_TOKEN = "token_equivalent_duration"
BATCHES = (
    *MULTIMODAL,
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
OF_AUDIO = (
    "batch_size",
    "batch_duration",
    "bucket_batch_size",
    "bucketing_batch_size",
)
"""Keys that bound batches of audio."""
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


def measures_tokens(section: Mapping[str, Any]) -> bool:
    """Tell whether a loader measures audio in tokens."""
    return any(section.get(key) for key in MULTIMODAL)


def check_tokens(
    section: Mapping[str, Any], where: str, notes: list[str], kinds: Collection[str]
) -> None:
    """Check the keys of a loader that measure audio in tokens.

    Args:
        section: keys of the loader; none is null.
        where: beginning of messages.
        notes: gets a line if bounds on tokens do not bound audio.
        kinds: what the loader reads, see `source_kinds`.

    Raises:
        ConfigError: the length of a token is missing, or no key bounds the batches of audio.
    """
    if measures_tokens(section):
        if "audio" in kinds and SECONDS_OF_TOKEN not in section:
            raise ConfigError(
                f"{where}.{SECONDS_OF_TOKEN}: {MULTIMODAL[0]} measures audio in tokens: write the "
                "seconds of a token, such as 0.08"
            )
        return
    if set(kinds) != {"audio"}:
        return

    answer = (
        f"bounds audio only if audio is measured in tokens: write {MULTIMODAL[0]}: true and "
        f"{SECONDS_OF_TOKEN}: 0.08"
    )
    if "batch_tokens" in section and not any(key in section for key in OF_AUDIO):
        raise ConfigError(f"{where}.batch_tokens: {answer}; or write batch_duration")

    for key in ("batch_tokens", "min_tokens", "max_tokens"):
        if key in section:
            notes.append(f"{where}.{key}: {answer}")


def loader_filters(
    section: Mapping[str, Any], where: str, kinds: Collection[str]
) -> dict[str, Any]:
    """Return the keys of `filter_conf` that a loader states; see `source_kinds` for `kinds`.

    NeMo may state a `max_tps` for each bucket; the filter gets the largest, which all buckets obey.
    """
    filters = {key: section[key] for key in FILTERS if key in section}
    for key in LOWER_BOUNDS:
        bound = filters.get(key)
        if isinstance(bound, (int, float)) and bound < 0:
            del filters[key]

    if measures_tokens(section) and SECONDS_OF_TOKEN in section and set(kinds) != {"text"}:
        filters[SECONDS_OF_TOKEN] = section[SECONDS_OF_TOKEN]

    # NeMo bounds seconds alone. The bound on frames that applies by default must not be tighter.
    max_frames = _most_seconds(filters) * FRAMES_PER_SECOND
    if max_frames > DEFAULT_MAX_LENGTH:
        filters["max_length"] = min(int(max_frames) + 1, ANY_LENGTH)

    limits = filters.get("max_tps")
    if limits == []:
        raise ConfigError(
            f"{where}.max_tps: the list is empty; write a number of tokens per second"
        )
    if isinstance(limits, list):
        filters["max_tps"] = max(limits)

    return filters


def _most_seconds(filters: Mapping[str, Any]) -> float:
    """Return the longest audio that the filters of a loader keep; 0 if they do not bound it."""
    seconds = filters.get("max_duration")
    if seconds is None and SECONDS_OF_TOKEN in filters and "max_tokens" in filters:
        seconds = filters["max_tokens"] * filters[SECONDS_OF_TOKEN]
    return seconds if isinstance(seconds, (int, float)) else 0


def loader_batches(
    section: Mapping[str, Any], where: str, notes: list[str], kinds: Collection[str]
) -> dict[str, Any]:
    """Return the `batch_conf` of a loader.

    Args:
        section: keys of the loader; none is null.
        where: beginning of messages.
        notes: gets a line for each key that is converted or not needed.
        kinds: what the loader reads, see `source_kinds`.

    Raises:
        ConfigError: the batches of the loader have no equal here; the message says what to write.
    """
    if set(kinds) == {"text"}:
        batch = _text_batches(section, where, notes)
    elif measures_tokens(section):
        batch = _batches_in_tokens(section, where, notes, kinds)
    else:
        batch = _audio_batches(section, where, notes)

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


def bucket_batch_sizes(section: Mapping[str, Any], count: int, where: str) -> list[int] | None:
    """Return the batch size of each of `count` ready-made buckets; None if they share one.

    NeMo multiplies a single number: the first of 4 buckets, with the shortest audio, gets 4 times
    as many samples as the last.

    Raises:
        ConfigError: `bucketing_batch_size` does not fit the buckets.
    """
    sizes = section.get("bucketing_batch_size")
    if sizes is None:
        return None
    if isinstance(sizes, int):
        return [sizes * factor for factor in range(count, 0, -1)]

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
        limits = section.get("max_tps")
        if isinstance(limits, list):
            _check_max_tps(limits, bins, where)
            batch["max_tps"] = limits
        return batch

    if bins:
        notes.append(
            f"{where}.bucket_duration_bins: not needed here, because the plan sorts all utterances "
            "by length"
        )

    return _bounded_batches(section, where, notes)


def _batches_in_tokens(
    section: Mapping[str, Any], where: str, notes: list[str], kinds: Collection[str]
) -> dict[str, Any]:
    """Return `batch_conf` for a loader that measures audio and text in tokens. Buckets of the tokens
    of audio and of text, two numbers, are buckets of seconds and tokens.
    """
    for key in ("batch_duration", "quadratic_duration"):
        if key in section:
            notes.append(
                f"{where}.{key}: not needed here, because {MULTIMODAL[0]} measures audio in tokens"
            )

    if "batch_tokens" in section:
        batch: dict[str, Any] = {"batch_type": "dynamic"}
    else:
        batch = _buckets_in_tokens(section, where, notes, kinds)
    if "batch_size" in section and batch.get("batch_type") != "bucket":
        batch = {"batch_type": "static", **batch, "batch_size": section["batch_size"]}

    return batch


def _buckets_in_tokens(
    section: Mapping[str, Any], where: str, notes: list[str], kinds: Collection[str]
) -> dict[str, Any]:
    """Return the batches of buckets whose ends are tokens; empty without buckets.

    A bucket of audio ends at a number of seconds if its text does not count, or has an end of its
    own. Texts without audio, and audio whose text counts, have batches of tokens.
    """
    bins, sizes = section.get("bucket_duration_bins"), section.get("bucket_batch_size")
    if not (bins and sizes and section.get("use_bucketing", True)):
        return {}

    ends = _ends_in_seconds(section, bins)
    if ends is None:
        tokens = min(end * size for end, size in _token_buckets(section, bins, sizes))
        notes.append(
            f"{where}.bucket_batch_size: read as batch_tokens: {tokens}, the smallest padded batch "
            "of its buckets"
        )
        return {"batch_type": "dynamic", "batch_tokens": tokens}

    batch: dict[str, Any] = {}
    if set(kinds) != {"audio"}:
        batch = _text_batches(section, where, notes)
    batch |= {"bucket_duration_bins": ends, "bucket_batch_size": sizes, "batch_type": "bucket"}
    return batch


def _ends_in_seconds(section: Mapping[str, Any], bins: list[Any]) -> list[Any] | None:
    """Return buckets of tokens as buckets of seconds, or of seconds and tokens; None if the tokens
    of audio and text are added.
    """
    seconds = section.get(SECONDS_OF_TOKEN)
    if seconds is None:
        return None
    if isinstance(bins[0], list):
        return [[round(end * seconds, 6), tokens] for end, tokens in bins]
    if section.get("measure_total_length", True):
        return None
    return [round(end * seconds, 6) for end in bins]


def _bounded_batches(section: Mapping[str, Any], where: str, notes: list[str]) -> dict[str, Any]:
    """Return batches without buckets."""
    if "batch_duration" in section:
        batch: dict[str, Any] = {"batch_type": "dynamic"}
        for key in ("batch_duration", "quadratic_duration", "batch_size"):
            if key in section:
                batch[key] = section[key]
        return batch

    if "quadratic_duration" in section and "batch_size" in section:
        notes.append(
            f"{where}.quadratic_duration: not needed here, because batch_size alone bounds batches"
        )
    elif "quadratic_duration" in section:
        raise ConfigError(f"{where}.quadratic_duration: needs batch_duration; write both")

    return _static_batches(section)


def _static_batches(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return batches of a number of samples; empty if the loader states none."""
    if "batch_size" not in section:
        return {}
    return {"batch_type": "static", "batch_size": section["batch_size"]}


def _check_max_tps(limits: list[float], bins: list[Any], where: str) -> None:
    """Refuse `limits` that are neither one for each bucket nor one for each duration of the buckets."""
    durations = {end[0] if isinstance(end, list) else end for end in bins}
    if len(limits) not in (len(durations), len(bins)):
        raise ConfigError(
            f"{where}.max_tps: expected {len(bins)} numbers, one for each bucket, found "
            f"{len(limits)}"
        )


def _text_batches(section: Mapping[str, Any], where: str, notes: list[str]) -> dict[str, Any]:
    """Return batches of tokens, of buckets of tokens, or of a number of texts."""
    if "batch_tokens" in section:
        if "batch_size" in section:
            notes.append(
                f"{where}.batch_size: not needed here, because batch_tokens bounds the batches"
            )
        return {"batch_type": "dynamic"}

    bins, sizes = section.get("bucket_duration_bins") or [], section.get("bucket_batch_size") or []
    if bins and len(bins) == len(sizes):
        return {"batch_type": "bucket", "token_buckets": _token_buckets(section, bins, sizes)}

    if "bucket_batch_size" in section:
        raise ConfigError(
            f"{where}.bucket_batch_size: needs as many bucket_duration_bins; or write "
            "batch_tokens: 4000 (tokens of a batch) instead"
        )

    return _static_batches(section)


def _token_buckets(
    section: Mapping[str, Any], bins: list[Any], sizes: list[int]
) -> list[tuple[int, int]]:
    """Return (most tokens, batch size) of each bucket, rising.

    The index has one length of a sample, in which the tokens of both texts of a pair are added, or
    those of the first text alone. Buckets of two numbers are those of this length; the smaller of
    two batches of one length is taken.

    Args:
        section: keys of the loader; measure_total_length says which length the samples have.
        bins: most tokens of each bucket; of pairs, two numbers, one for each text.
        sizes: texts in a batch of each bucket.
    """
    counts_both_texts = section.get("measure_total_length", True)
    size_by_tokens: dict[int, int] = {}
    for end, size in zip(bins, sizes, strict=False):
        most_tokens = end
        if isinstance(end, list):
            most_tokens = sum(end) if counts_both_texts else end[0]
        most_tokens = round(most_tokens)
        size_by_tokens[most_tokens] = min(size, size_by_tokens.get(most_tokens, size))

    return sorted(size_by_tokens.items())
