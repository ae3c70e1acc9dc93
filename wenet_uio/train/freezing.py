"""Which weights are trained."""

from __future__ import annotations

from torch import nn

from wenet_uio.config.train import TrainKeys
from wenet_uio.models import ASRModel
from wenet_uio.models.decoder import BiTransformerDecoder
from wenet_uio.models.lora import is_lora
from wenet_uio.train.optimizer import parts_of


def freeze(model: ASRModel, config: TrainKeys) -> None:
    """Freeze what the config says, and what has no part in the loss.

    Raises:
        ValueError: freeze_modules names what the model does not have, or nothing is left to train.
    """
    freeze_idle(model)
    frozen = set(parts_of(model, config.freeze_modules))
    for name, weight in model.named_parameters():
        if name in frozen or (config.only_optimize_lora and not is_lora(name)):
            weight.requires_grad_(False)
    if not any(weight.requires_grad for weight in model.parameters()):
        raise ValueError("freeze_modules leaves nothing to train")


def freeze_idle(model: ASRModel) -> None:
    """Freeze what has no part in the loss, so that DDP need not search every step for weights without a gradient."""
    if model.ctc_weight == 0:
        model.ctc.requires_grad_(False)
    if model.attention_weight == 0:
        model.decoder.requires_grad_(False)
    elif model.reverse_weight == 0 and isinstance(model.decoder, BiTransformerDecoder):
        model.decoder.right_decoder.requires_grad_(False)


def train_mode(model: nn.Module) -> None:
    """To training mode, but for frozen batch norms, which keep their statistics."""
    model.train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d) and not any(weight.requires_grad for weight in module.parameters()):
            module.eval()
