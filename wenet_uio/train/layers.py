"""The layers of a model: found, frozen, compiled (`torch_compile`), and with the layout that engines
need.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn

from wenet_uio.config import Config
from wenet_uio.config.train import TrainKeys
from wenet_uio.dataset.types import Batch
from wenet_uio.models.lora import is_lora
from wenet_uio.models.trainable_model import TrainableModel
from wenet_uio.train.distributed import seed_everything
from wenet_uio.train.memory import Failure, free_cached
from wenet_uio.train.micro_batches import join_batches, on_device
from wenet_uio.train.optimizer import weights_of_modules


def layers_of(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of encoder and decoders: all members of ModuleLists."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList):
            yield from module


def make_contiguous(model: nn.Module) -> None:
    """Make all weights contiguous, for engines that share them by rows.

    Some kernels are stored channels last.
    """
    for weight in model.parameters():
        weight.data = weight.data.contiguous()


DRAWS = 4
"""Sizes of chunks that are drawn to have masks with and without chunks."""

log = logging.getLogger(__name__)


def compiles_layers(config: Config, device: torch.device) -> bool:
    """Tell whether `torch_compile` takes effect on a device.

    It does not on CPUs: the compiler's code for them is slower, and fails in bf16.
    """
    if config.torch_compile and device.type == "cpu":
        log.warning("torch_compile: ignored on a CPU, where compiled layers are slower")
    return config.torch_compile and device.type != "cpu"


def compile_layers(model: nn.Module) -> None:
    """Let the layers be compiled when they first run.

    Layers of a kind share their code, which fits every length.
    """
    for layer in layers_of(model):
        layer.compile(dynamic=True)


def warm_up(
    run: Callable[[Batch], None], micro_batches: Sequence[Batch], device: torch.device
) -> bool:
    """Compile the layers by running them on one utterance and on two, with several chunk sizes.

    One utterance and several have compiled code of their own.

    So no step in the middle of a training waits for the compiler. If memory runs out, the log says
    so, and the layers are compiled when steps need them.

    Returns:
        False if no micro-batch has audio; nothing is compiled then.
    """
    batches = [batch for batch in micro_batches if len(batch) and not batch.text_only]
    if not batches:
        return False

    failure = None
    try:
        utterance = on_device(batches[0].rows(slice(1)), device)
        for batch in (utterance, join_batches([utterance, utterance])):
            for draw in range(DRAWS):
                seed_everything(0, draw, 0)
                run(batch)
    except (RuntimeError, MemoryError) as error:
        failure = Failure.of(error)

    # Outside of the handler, because the error holds the memory of the pass
    if failure is not None:
        log.warning(
            "torch_compile: out of memory before the first step, for one or two utterances of %d "
            "frames (%s). Training goes on, and compiles the layers in its steps; if these run out "
            "of memory, lower dataset_conf.filter_conf.max_length or set torch_compile: false",
            batches[0].feats.size(1),
            failure.message,
        )
        free_cached()

    return True


def freeze_weights(model: TrainableModel, config: TrainKeys) -> None:
    """Freeze the weights that the config names, and those that do not influence the loss.

    Raises:
        ValueError: freeze_modules names a module that the model does not have, or no weight is left
            to train.
    """
    freeze_idle(model)
    frozen = set(weights_of_modules(model, config.freeze_modules))
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
        is_trained = any(weight.requires_grad for weight in module.parameters())
        if isinstance(module, nn.BatchNorm1d) and not is_trained:
            module.eval()
