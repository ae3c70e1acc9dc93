"""The data sections of NeMo's document on data sets, over sets that are as the document has them.

Each writer makes the sets of an example in the current folder. Paths and the numbers of tars and steps
are those of the sets; all else is as printed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.data import nemo_sets
from tests.support.data.nemo import overrides_in
from tests.support.data.tars import wav
from tests.support.ends.trained import call
from wenet_uio.bin import estimate_duration_bins

TARS = 4
WORDS = ("abc", "cab", "bac", "acb", "bca", "cba")


@dataclass(frozen=True)
class Example:
    """The settings of an example."""

    read: dict[str, int]
    """Times that an epoch reads an utterance."""
    train_ds: dict[str, Any] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    keys: Mapping[str, Any] = field(default_factory=dict)
    """Keys of this project, for what the document does in code."""
    told: str = ""
    """What training says."""
    is_nominal: bool = False
    """Whether an epoch ends within a pass; then `read` is a pass over the audio."""


def write_set(name: str, count: int, seconds: float = 0.5, folder: str = ".") -> dict[str, int]:
    """Write `name`.json and its audio, from `seconds` on -> {utterance: 1}."""
    audio = Path(folder, "wav")
    audio.mkdir(parents=True, exist_ok=True)
    entries, read = [], {}
    for number in range(count):
        path = audio / f"{name}{number:02d}.wav"
        path.write_bytes(wav(seconds + 0.02 * (number % 10), seed=number))
        first = number % 3
        text = " ".join(WORDS[first : first + 2])
        relative = f"wav/{path.name}"
        entries.append({**nemo_sets.entry_of(path, text), "audio_filepath": relative})
        read[path.stem] = 1

    nemo_sets.write(Path(folder, f"{name}.json"), entries)
    return read


def pack(name: str, *options: str, folder: str = ".") -> None:
    """Pack `name`.json into the folder `name` by the command of the document."""
    manifest, target = Path(folder, f"{name}.json"), Path(folder, name)
    nemo_sets.convert(manifest, target, "--shuffle", "--shuffle_seed=0", *options, shards=TARS)


def placed(text: str, folder: str = "") -> str:
    """Return a text of the document with the tars of a folder in place of its own."""
    return text.replace("PATH_TO_TARS/", folder).replace("0..511", f"0..{TARS - 1}")


def a_manifest(examples: Path) -> Example:
    text = (examples / "manifest_path_override.txt").read_text()
    override = text.strip().replace("<path/to/manifest.json>", "a.json")
    return Example(write_set("a", 30), overrides=[override])


def semi_sorted_batches(examples: Path) -> Example:
    example = a_manifest(examples)
    more = overrides_in((examples / "semi_sorted_batching.txt").read_text())
    return Example(example.read, overrides=[*example.overrides, *more])


def tars(examples: Path) -> Example:
    read = write_set("a", 30)
    pack("a")
    section = yaml.safe_load((examples / "tarred_shard_strategy.yaml").read_text())
    section["manifest_filepath"] = "a/tarred_audio_manifest.json"
    section["tarred_audio_filepaths"] = f"a/audio__OP_0..{TARS - 1}_CL_.tar"
    return Example(read, section)


def buckets(examples: Path) -> Example:
    read = write_set("a", 40)
    pack("a", "--buckets_num=4", "--min_duration=0.5", "--max_duration=0.7")
    text = placed((examples / "bucketing_list_of_lists.txt").read_text(), "a/")
    return Example(read, overrides=overrides_in(text))


def buckets_with_weights(examples: Path) -> Example:
    read = {}
    for number, weight in enumerate((2, 1, 1, 3), 1):
        read |= dict.fromkeys(write_set(f"bucket{number}", 8, 0.3 + 0.2 * number), weight)
        pack(f"bucket{number}")

    names = ("bucketing_list_of_lists.txt", "bucketing_weights_batch_size.txt")
    text = placed("\n".join((examples / name).read_text() for name in names))
    # The document says so in words.
    return Example(read, overrides=[*overrides_in(text), "model.train_ds.batch_size=1"])


def an_object_store(examples: Path) -> Example:
    """The buckets of AIStore are served from the folder `buckets`."""
    read = write_set("train_bucket", 30, folder="buckets")
    pack("train_bucket", folder="buckets")
    write_set("validation_manifest", 6, folder="buckets/validation_bucket")
    os.environ["NEMO_DATA_STORE_CACHE_DIR"] = "cache"
    text = placed((examples / "ais_full_example.txt").read_text())
    # The error of `mode.` says to write `model.`
    overrides = [re.sub(r"^mode\.", "model.", override) for override in overrides_in(text)]
    return Example(read, overrides=overrides)


def lhotse(examples: Path) -> Example:
    """The numbers of steps and of seconds in a batch are small ones."""
    read = write_set("a", 40)
    write_set("short", 2, 0.1)  # shorter than min_duration
    both = Path("a.json").read_text() + Path("short.json").read_text()
    Path("a.json").write_text(both)
    pack("a")
    text = (examples / "lhotse_enable.txt").read_text()
    text = text.replace("manifest_filepath=...", "manifest_filepath=a/tarred_audio_manifest.json")
    text = text.replace("filepaths=...", f"filepaths=a/audio__OP_0..{TARS - 1}_CL_.tar")
    text = text.replace("=1000\n", "=6\n").replace("=300000", "=12").replace("=1100", "=5")
    told = "a pass over the training data: 42 utterances: 40 read, 2 filtered (2 min_duration)"
    return Example(read, overrides=overrides_in(text), told=told, is_nominal=True)


def sources_with_tags(examples: Path) -> Example:
    return _of_input_cfg(examples / "input_cfg_tags.yaml", {"a": 16, "b": 24})


def groups_of_sources(examples: Path) -> Example:
    sizes = {"asr1": 42, "asr2": 28, "ast1": 6, "ast2": 24}
    return _of_input_cfg(examples / "input_cfg_nested.yaml", sizes)


def _of_input_cfg(path: Path, sizes: Mapping[str, int]) -> Example:
    """Sources whose sizes are as their weights, so that an epoch reads each utterance once."""
    section = yaml.safe_load(path.read_text())
    read: dict[str, int] = {}
    for source, (name, count) in zip(leaves(section["input_cfg"]), sizes.items(), strict=True):
        read |= write_set(name, count)
        pack(name)
        tars_of_set = f"manifest__OP_0..{TARS - 1}_CL_.json"
        source["manifest_filepath"] = f"{name}/sharded_manifests/{tars_of_set}"
        source["tarred_audio_filepath"] = f"{name}/audio__OP_0..{TARS - 1}_CL_.tar"
    return Example(read, section)


def leaves(sources: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the sources that are no groups."""
    for source in sources:
        if source["type"] == "group":
            yield from leaves(source["input_cfg"])
        else:
            yield source


def estimated_bins(examples: Path) -> Example:
    """The bins of two manifests with weights, computed by the command of the document."""
    read = write_set("manifest", 28) | write_set("other", 12)
    command = (examples / "duration_bins_weighted_list.txt").read_text().splitlines()[0]
    options = command.partition("estimate_duration_bins.py")[2].split()
    printed = yaml.safe_load(call(estimate_duration_bins, *options))
    bins = printed["batch_conf"]["bucket_duration_bins"]
    section = {"bucket_duration_bins": bins, "batch_duration": 8}
    return Example(read, section, [f"model.train_ds.manifest_filepath={options[-1]}"])


def bins_in_two_dimensions(examples: Path) -> Example:
    section = yaml.safe_load((examples / "duration_bins_2d.yaml").read_text())
    return Example(write_set("a", 40, 1.5), {**section, "manifest_filepath": "a.json"})


def a_profile_of_memory(examples: Path) -> Example:
    section = yaml.safe_load((examples / "oomptimizer_profile.yaml").read_text())
    return Example(write_set("a", 40, 1.5), {**section, "manifest_filepath": "a.json"})


def audio_and_text(examples: Path) -> Example:
    """A loader of speech and one of pairs of texts, which only a model of one's own learns."""
    read = write_set("a", 40, 1.5)
    pack("a")
    for language in ("en", "pl"):
        for part in range(TARS):
            Path(f"{language}_{part}.txt").write_text("".join(f"{word}\n" for word in WORDS))

    section = yaml.safe_load((examples / "joint_audio_text_zip.yaml").read_text())
    section = section["model"]["train_ds"]
    (audio,), (text,) = (section[name]["input_cfg"] for name in ("audio", "text"))
    audio["manifest_filepath"] = f"a/sharded_manifests/manifest__OP_0..{TARS - 1}_CL_.json"
    audio["tarred_audio_filepath"] = f"a/audio__OP_0..{TARS - 1}_CL_.tar"
    for side, language in (("source", "en"), ("target", "pl")):
        text[f"{side}_path"] = f"{language}__OP_0..{TARS - 1}_CL_.txt"

    own = {"model": "tests.support.ends.own_code:OWN"}
    # A step has 1024 utterances for 128 texts or in this ratio, so an epoch repeats audio.
    return Example(read, section, keys=own, is_nominal=True)


EXAMPLES = (
    *(
        a_manifest,
        semi_sorted_batches,
        tars,
        buckets,
        buckets_with_weights,
        an_object_store,
        lhotse,
    ),
    *(sources_with_tags, groups_of_sources, estimated_bins, bins_in_two_dimensions),
    *(a_profile_of_memory, audio_and_text),
)
