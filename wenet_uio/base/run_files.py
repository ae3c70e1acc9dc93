"""Names of the files in the folder of a training run, and what environment.yaml says.

train.yaml            the complete config; names the next files relative to itself
units.txt, bpe.model, non_lang_syms.txt, global_cmvn; tokenizer.json, sentencepiece.model and the
                      like of tokenizers without units: copies of the files that the config of the training named
init.pt               weights at the start of the run
init.yaml             their losses on the validation set, of a run that starts from a trained model
from/                 the trained model that the run starts from, if it was converted for it
epoch_N.pt, .yaml     weights after epoch N (from 0), and its losses
running_N.pt          running average of the weights at the end of epoch N, with `model_avg`
state_S.pt            everything that a run needs to resume after optimizer step S; the two newest are kept
avg.pt                average of average_model.py
avg.shares.yaml       of a run that starts from a trained model: errors of weights between this model and the
                      average on a validation set
final.pt              link to the weights of the last epoch with a finite validation; written when the run is complete
environment.yaml      for each start of the run: versions, hardware, commit, lengths of the utterances
bad_samples.jsonl     every bad sample with the reason
frames/               frames of a frozen encoder, with `store_frames`
nonfinite.jsonl       utterances of steps without a finite gradient, and of validations without a finite loss
too_large.jsonl       batches that did not fit in memory, and the step from which such batches are split
tensorboard/          curves and pictures
trackers.json         runs of other trackers, and what they have; wandb/, mlflow.db and mlflow/ hold such runs
running.lock          locked while a run writes here; it says who holds the lock
report.html           all of this on one page; written when the run is complete
README.md             model card: data, config, error rates, use; written with report.html
examples.yaml         what the server's page says of the model: sentences to try, words, languages; stage 5 writes it
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

TRAIN_CONFIG = "train.yaml"
FINAL_WEIGHTS = "final.pt"
INIT = "init"
"""The first part of the names init.pt and init.yaml."""
CONVERTED = "from"
SHARES_SUFFIX = ".shares.yaml"
"""Ending of the file beside averaged weights that has the errors of each share of a fine-tuning."""
OTHER_UNITS = "other_units"
"""Key of a start in environment.yaml: the trained model that the run starts from has other units."""
RUNNING = "running"
"""The first part of the names running_N.pt."""
ENVIRONMENT = "environment.yaml"
MODEL_CARD = "README.md"
EXAMPLES = "examples.yaml"
LOCK = "running.lock"
BOARD = "tensorboard"
LEDGER = "bad_samples.jsonl"
TOO_LARGE = "too_large.jsonl"
NONFINITE = "nonfinite.jsonl"
FRAMES = "frames"


def board_folder(folder: str | Path, given: str | Path | None = None) -> Path:
    """Return the folder of the TensorBoard files of a run.

    Below a folder elsewhere, which several runs may share as in recipes of WeNet, a run has a
    folder of its name: its start removes the curves of other runs from its folder.

    Args:
        folder: that of the run.
        given: --tensorboard_dir.
    """
    folder = Path(folder)
    if given is None:
        return folder / BOARD
    if Path(given).resolve().is_relative_to(folder.resolve()):
        return Path(given)
    return Path(given, folder.resolve().name)


def record_of_board(folder: Path, board: Path) -> dict[str, str]:
    """Return what environment.yaml says of the folder of a run's TensorBoard files: nothing of the
    usual one.
    """
    return {} if board == board_folder(folder) else {"tensorboard": str(board)}


def recorded_board_folder(folder: str | Path) -> Path:
    """Return the folder of the TensorBoard files of a run that has begun."""
    starts = read_starts(folder)
    recorded = starts[-1].get("tensorboard") if starts else None
    return Path(recorded) if recorded else board_folder(folder)


def read_starts(folder: str | Path) -> list[dict[str, Any]]:
    """Read the records of environment.yaml, one for each start of the run; none if it is missing.

    Raises:
        ValueError: the file is damaged.
    """
    path = Path(folder, ENVIRONMENT)
    try:
        starts = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else []
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: damaged: {' '.join(str(error).split())}") from None

    if not (isinstance(starts, list) and all(isinstance(start, dict) for start in starts)):
        raise ValueError(f"{path}: expected a list of the starts of the run; remove the file")
    return starts


def recorded_utterance_seconds(folder: str | Path) -> dict[str, float]:
    """Read the lengths of the training utterances that the newest start of a run recorded.

    Returns:
        `median`, `most` (the 95th percentile) and `longest` in seconds; empty if the run has no such record.
    """
    starts = read_starts(folder)
    if not starts:
        return {}
    return starts[-1].get("utterance_seconds") or {}
