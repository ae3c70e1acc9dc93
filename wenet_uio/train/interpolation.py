"""Weights between the start of a fine-tuning and its end, chosen by decoding a validation set.

A fine-tuning may forget what the model knew before. Weights on the line between both often keep this
and have what was learned (Wortsman et al. 2022, https://arxiv.org/abs/2109.01903). The start is one of
them, so that the result is not worse than the start on this set.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from wenet_uio.base.files import written_aside
from wenet_uio.base.messages import note
from wenet_uio.base.run_files import INIT, OTHER_UNITS, TRAIN_CONFIG, read_starts
from wenet_uio.config.train import LoraConf
from wenet_uio.config.trust import Trust
from wenet_uio.config.yaml_file import read_yaml
from wenet_uio.models.lora import is_lora
from wenet_uio.models.weights import read_weights
from wenet_uio.scoring.wer import Counts
from wenet_uio.search.recogniser import load_model_config
from wenet_uio.train.averaging import merge_if_lora, tie_weights
from wenet_uio.train.baseline import Baseline
from wenet_uio.train.dev_set import DevDecoder, DevSet, Errors

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the fine-tuning that are compared: 0 is the start, 1 the end."""
CTC = "ctc."
"""Names of the weights of the CTC layer begin so."""


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Weighing:
    """The weights between start and end that were chosen, and what is said of the choice."""

    weights: dict[str, torch.Tensor]
    summary: str
    """In a line."""
    lines: Sequence[str] = ()
    """The errors of each share."""
    share: float = 1.0
    """Share of the fine-tuning in the weights."""


def weigh_against_start(
    end: dict[str, torch.Tensor],
    folder: str | Path,
    dev: DevSet,
    record: Path,
    *,
    lora: LoraConf | None = None,
    trust_code: Trust = False,
) -> Weighing:
    """Choose the weights between the start of a run and `end` that recognise a validation set best.

    Args:
        end: weights at the end of the run, such as a mean of its epochs.
        folder: of the run.
        record: yaml file that has, or gets, the errors of each share.
        lora: low-rank weights were merged into `end`; their config.
        trust_code: which code of other packages that the train.yaml names may run.

    Raises:
        OSError: a file cannot be read.
        ValueError: the run did not start from a trained model, or the validation set cannot be used.
    """
    folder = Path(folder)
    baseline = Baseline.require(folder, "--dev_data")
    starts = read_starts(folder)
    if starts and starts[0].get(OTHER_UNITS):
        record.unlink(missing_ok=True)
        return Weighing(end, "the model before fine-tuning has other units, so it is not compared")

    start = merge_if_lora(read_weights(folder / f"{INIT}.pt"), lora)
    if digest_of_weights(start) == digest_of_weights(end):
        record.unlink(missing_ok=True)
        return Weighing(end, "these are the weights before fine-tuning", share=0.0)

    config = load_model_config(folder / TRAIN_CONFIG, trust_code=trust_code)
    decoder = DevDecoder(config, dev, without_ctc=baseline.has_new_ctc)
    compared = decoder.describe() | {"weights": digest_of_weights(start, end)}
    comparison = Comparison(record, compared)
    where = "{utterances} of {of} utterances of {list} (seed {seed}), {mode}".format(**compared)
    note(f"the model before fine-tuning, the average and weights between them: {where}")
    for share in SHARES:
        if share not in comparison.errors:
            weights = weights_between(start, end, share, new_ctc=baseline.has_new_ctc)
            comparison.add(share, decoder.count_errors(weights, comparison.errors.get(0.0)))

    errors, share = comparison.errors, choose_share(comparison.errors)
    if errors[1.0].harms(errors[0.0]):
        log.warning(
            "%s: fine-tuning makes the model worse on %s: %s; %s of it is taken",
            folder,
            dev.data_list,
            errors[1.0].compared_with(errors[0.0]),
            f"{100 * share:.0f} %",
        )

    return Weighing(
        weights_between(start, end, share, new_ctc=baseline.has_new_ctc),
        f"{100 * share:.0f} % of the fine-tuning: {errors[share].compared_with(errors[0.0])}",
        [
            f"{100 * share:3.0f} % of the fine-tuning: {of_share}"
            for share, of_share in sorted(errors.items())
        ],
        share,
    )


def weights_between(
    start: Mapping[str, torch.Tensor],
    end: Mapping[str, torch.Tensor],
    share: float,
    *,
    new_ctc: bool = False,
) -> dict[str, torch.Tensor]:
    """Return the weights with a share of the fine-tuning, from 0 (the start) to 1 (the end).

    Integer buffers are those of the end. The product of low-rank weights (LoRA), which is 0 at the
    start, is scaled.

    Args:
        new_ctc: the start has no trained CTC layer, so that of the end is taken.

    Raises:
        ValueError: the weights are those of two models.
    """
    if {name: value.shape for name, value in start.items()} != {
        name: value.shape for name, value in end.items()
    }:
        raise ValueError("names or shapes of the weights differ from those of the start of the run")

    mixed = dict(end)
    for name, value in end.items():
        is_first_factor = name.endswith(".lora_A")
        if is_first_factor or (new_ctc and name.startswith(CTC)) or not value.is_floating_point():
            continue

        first = torch.zeros_like(value) if is_lora(name) else start[name]
        mixed[name] = torch.lerp(first.double(), value.double(), share).to(value.dtype)

    return tie_weights(mixed, end)


def choose_share(errors: Mapping[float, Errors]) -> float:
    """Return the share with the fewest errors among those that are not worse than the start; of equal
    ones the largest.

    Args:
        errors: {share: its errors}, with share 0.
    """
    harmless = [share for share, of_share in errors.items() if not of_share.harms(errors[0.0])]
    return min(harmless, key=lambda share: (errors[share].total, -share))


def digest_of_weights(*models: Mapping[str, torch.Tensor]) -> str:
    """Return a digest of the values of weights, 128 bits."""
    hashed = hashlib.blake2b(digest_size=16)
    for weights in models:
        for name, value in weights.items():
            hashed.update(f"{name} {tuple(value.shape)} ".encode())
            hashed.update(value.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return hashed.hexdigest()


class Comparison:
    """The errors of each share, in a yaml file beside the weights that were chosen.

    A comparison that was stopped resumes after the last share that was decoded.
    """

    def __init__(self, path: Path, compared: Mapping[str, Any]) -> None:
        """Read the errors that are known.

        Args:
            path: the file; one that compares something else is replaced.
            compared: what is compared: weights, utterances, how they are decoded and scored.
        """
        self.path, self.compared = path, dict(compared)
        self.errors: dict[float, Errors] = {}
        record = read_yaml(path) if path.exists() else None
        if isinstance(record, dict) and record.get("compared") == self.compared:
            for entry in record["errors"]:
                counts = [Counts(**entry[name]) for name in ("as_written", "normalised")]
                self.errors[entry["share"]] = Errors(*counts)

    def add(self, share: float, errors: Errors) -> None:
        """Add the errors of a share, that of the start first, and write the file."""
        self.errors[share] = errors
        entries: list[dict[str, Any]] = []
        for known, of_share in sorted(self.errors.items()):
            written, normalised = (vars(counts) for counts in of_share)
            entries.append({"share": known, "as_written": written, "normalised": normalised})

        record = {"share": choose_share(self.errors), "compared": self.compared, "errors": entries}
        with written_aside(self.path, "w") as file:
            yaml.safe_dump(record, file, sort_keys=False)
