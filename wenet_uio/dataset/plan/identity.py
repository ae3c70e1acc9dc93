"""Identity of a plan: the values that decide its batches, as a dictionary and as a digest.

A position inside a pass is resumed only if the plan has the same digest. The dictionary states its
names itself: classes and fields of the code may be renamed, and yaml keys may get new homes,
without an effect on runs that are not finished.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from wenet_uio.config.filters import FilterConf
from wenet_uio.dataset.frames import FrameCount

VERSION = 2
"""Version of the dictionary. Raise it when the same values begin to mean other batches."""


def digest_of(identity: dict[str, Any]) -> str:
    """Hash an identity, whatever the order of its keys."""
    text = json.dumps(identity, sort_keys=True, allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def frames_identity(count: FrameCount) -> dict[str, Any]:
    """State the values that decide how many frames a sample has."""
    return {
        "sample_rate": count.sample_rate,
        "window": count.window,
        "shift": count.shift,
        "snip_edges": count.snip_edges,
        "padding": count.padding,
        "fixed_samples": count.fixed_samples,
    }


def filters_identity(filters: FilterConf) -> dict[str, Any]:
    """State the values that decide which samples take part."""
    identity = {
        "max_length": filters.max_length,
        "min_length": filters.min_length,
        "token_max_length": filters.token_max_length,
        "token_min_length": filters.token_min_length,
        "min_output_input_ratio": filters.min_output_input_ratio,
        "max_output_input_ratio": filters.max_output_input_ratio,
        "min_duration": filters.min_duration,
        "max_duration": filters.max_duration,
        "min_tps": filters.min_tps,
        "max_tps": filters.max_tps,
    }

    # Filters of later versions are stated only where they act, so that older states stay valid.
    if filters.min_tpt:
        identity["min_tpt"] = filters.min_tpt
    if filters.max_tpt is not None:
        identity["max_tpt"] = filters.max_tpt
    if filters.min_tokens is not None:
        identity["min_tokens"] = filters.min_tokens
    if filters.max_tokens is not None:
        identity["max_tokens"] = filters.max_tokens
    if filters.token_equivalent_duration is not None:
        identity["token_equivalent_duration"] = filters.token_equivalent_duration
    if not filters.measure_total_length:
        identity["measure_total_length"] = False

    return identity


def first_digest_of(identity: dict[str, Any]) -> str:
    """Compute the digest that version 1 gave to the same values.

    Version 1 hashed the `repr` of the objects that held them. States of runs from that time are
    recognised by this digest.
    """
    filters = identity["filters"]
    values = {
        "policy": _first_policy(identity["policy"]),
        "frame_count": _first_object("FrameCount", identity["frames"]),
        "filter": repr(None) if filters is None else _first_object("FilterConf", filters),
        "speeds": repr(tuple(identity["speeds"])),
    }
    same_names = ("text_length_is_tokens", "noise", "length_order", "length_jitter")
    values |= {name: repr(identity[name]) for name in same_names}
    described = f"Measure({', '.join(f'{name}={value}' for name, value in values.items())})"

    return hashlib.blake2b(described.encode(), digest_size=8).hexdigest()


_FIRST_POLICIES = {
    "static": "StaticPolicy",
    "frames": "FramesPolicy",
    "duration": "DurationPolicy",
    "buckets": "BucketPolicy",
    "duration_buckets": "DurationBucketPolicy",
    "target": "TargetPolicy",
    "views": "ViewsPolicy",
    "text": "TextPolicy",
    "text_buckets": "TextBucketsPolicy",
    "tokens": "TokensPolicy",
    "scaled": "ScaledPolicy",
    "by_entry": "EntryPolicy",
}
"""{kind of a policy: name of its class in version 1}."""


def _first_policy(identity: dict[str, Any]) -> str:
    """Write the `repr` of a policy as version 1 did."""
    values = []
    for name, value in identity.items():
        if name == "kind":
            continue
        if name == "policies":
            policies = [_first_policy(policy) for policy in value]
            trailing = "," if len(policies) == 1 else ""
            text = f"({', '.join(policies)}{trailing})"
        elif isinstance(value, dict):
            text = _first_policy(value)
        else:
            text = repr(_as_tuples(value))

        values.append(f"{name}={text}")

    return f"{_FIRST_POLICIES[identity['kind']]}({', '.join(values)})"


def _first_object(name: str, values: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in values.items())})"


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value
