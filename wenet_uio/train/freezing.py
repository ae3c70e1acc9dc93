"""Freeze weights: by config, and those that do not influence the loss."""

from __future__ import annotations

from torch import nn

from wenet_uio.config.train import TrainKeys
from wenet_uio.models.lora import is_lora
from wenet_uio.models.trainable_model import TrainableModel
from wenet_uio.train.optimizer import parts_of


def freeze(model: TrainableModel, config: TrainKeys) -> None:
    """Freeze the weights that the config names, and those that do not influence the loss.

    Raises:
        ValueError: freeze_modules names a module that the model does not have, or no weight is left
            to train.
    """
    freeze_idle(model)
    frozen = set(parts_of(model, config.freeze_modules))
    for name, weight in model.named_parameters():
        if name in frozen or (config.only_optimize_lora and not is_lora(name)):
            weight.requires_grad_(False)

    if not any(weight.requires_grad for weight in model.parameters()):
        if config.only_optimize_lora:
            raise ValueError(
                "only_optimize_lora leaves no weight to train: no trained attention of this model "
                "takes low-rank weights (LoRA); train all weights, or freeze_modules: [encoder]"
            )
        raise ValueError("freeze_modules leaves no weight to train; remove a module from it")


def freeze_idle(model: TrainableModel) -> None:
    """Freeze modules whose weight in the loss is 0.

    Otherwise DDP would have to look for unused weights in every step.
    """
    for module in model.idle_modules:
        module.requires_grad_(False)


def train_mode(model: nn.Module) -> None:
    """Switch to training mode, except frozen batch norms, which keep their statistics."""
    model.train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d) and not any(
            weight.requires_grad for weight in module.parameters()
        ):
            module.eval()
