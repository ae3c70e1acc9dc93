"""Opens a train.yaml by WeNet's rules, from the list of the keys that each of WeNet's functions
takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wenet_uio.config.yaml_file import read_yaml

DEFAULTS = {"model": "asr_model", "encoder": "conformer", "decoder": "bitransformer"}
PARTS = ("encoder", "decoder", "predictor", "joint", "model")


class WenetReader:
    """What WeNet sees of a train.yaml."""

    def __init__(self, yaml_path: Path, kwargs_path: Path) -> None:
        self.values = read_yaml(yaml_path)
        self.kwargs = read_yaml(kwargs_path)

    def calls(self) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
        """For each function that gets a section as keywords: section, its keys, the keywords of the
        function.
        """
        for section, keywords in self.kwargs["dataset_conf"]["given_to_functions"].items():
            if section in self.values["dataset_conf"]:
                yield f"dataset_conf.{section}", self.values["dataset_conf"][section], keywords
        for part in PARTS:
            name = self.values.get(part, DEFAULTS.get(part))
            if name is not None:
                yield (
                    f"{part}_conf",
                    self.values[f"{part}_conf"],
                    self.kwargs["model"][f"{part}_conf"][name],
                )

    def unknown_keywords(self) -> list[str]:
        """Keys on which WeNet fails."""
        return [
            f"{section}.{key}"
            for section, keys, known in self.calls()
            for key in keys
            if key not in known
        ]

    def missing_keywords(self) -> list[str]:
        """Keys without which WeNet fails."""
        top = [
            key for key in ("input_dim", "output_dim") if not isinstance(self.values.get(key), int)
        ]
        required = [
            f"{section}.{key}"
            for section, keys, known in self.calls()
            for key, default in known.items()
            if default == "(required)" and keys.get(key) is None
        ]
        return top + required

    @property
    def ids(self) -> tuple[int, int, int]:
        """Ids of blank, sos and eos. WeNet asks neither the units file nor the tokenizer for sos
        and eos.
        """
        last = self.values["output_dim"] - 1
        special = self.values.get("tokenizer_conf", {}).get("special_tokens") or {}
        blank = self.values["ctc_conf"]["ctc_blank_id"]
        if self.values.get("model") == "whisper":
            return blank, special["sot"], special["eot"]
        if self.values.get("model") == "firered":
            return blank, special["sos"], special["eos"]
        return (
            0 if self.values.get("model") == "transducer" else blank,
            special.get("<sos>", last),
            special.get("<eos>", last),
        )

    def view(self) -> dict[str, Any]:
        """The keys of the yaml that WeNet uses; all others are gone."""
        seen = {key: value for key, value in self.values.items() if key != "wenet_uio"}
        for section, keys, known in self.calls():
            conf = {key: value for key, value in keys.items() if key in known}
            if section.startswith("dataset_conf."):
                seen["dataset_conf"] = {
                    **seen["dataset_conf"],
                    section.removeprefix("dataset_conf."): conf,
                }
            else:
                seen[section] = conf
        _, sos, eos = self.ids
        seen["tokenizer_conf"] = {
            **seen["tokenizer_conf"],
            "special_tokens": {"<sos>": sos, "<eos>": eos},
        }
        return seen
