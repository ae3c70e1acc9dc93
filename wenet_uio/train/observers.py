"""Add-ons that show a run: the report and the card of a complete one, and boards of trackers."""

from __future__ import annotations

import logging
from pathlib import Path

from wenet_uio.config.named_code import Loaded
from wenet_uio.train.only_shows import only_shows

REPORT = Loaded("wenet_uio.addons.publish.run_report:write_run_report")
"""`REPORT(folder, tensorboard_dir)` writes report.html, and returns its path."""
CARD = Loaded("wenet_uio.addons.publish.model_card:write_model_card")
"""`CARD(folder)` writes README.md."""
BOARDS = {
    "wandb": Loaded("wenet_uio.addons.publish.board_wandb:WandbBoard"),
    "mlflow": Loaded("wenet_uio.addons.publish.board_mlflow:MlflowBoard"),
}
"""{tracker: `board(folder, run, config)`, a wenet_uio.train.trackers.Board}."""
log = logging.getLogger(__name__)


def show_complete(folder: Path, tensorboard_dir: Path, *, report: bool) -> None:
    """Write the report and the model card of a complete run; none of an add-on that was taken away."""
    if report and REPORT.is_installed:
        with only_shows("report"):
            log.info("report: %s", REPORT(folder, tensorboard_dir))

    if CARD.is_installed:
        with only_shows("model card"):
            CARD(folder)
