"""Keys of a train.yaml that say how the weights are fitted. Names are WeNet's."""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from wenet_uio.config.base import Section

Positive = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(gt=0)]
Decay = Annotated[float, Field(ge=0.0, lt=1.0)]
Projection = Literal["linear_q", "linear_k", "linear_v", "linear_out"]


class AdamConf(Section):
    """Kingma and Ba, https://arxiv.org/abs/1412.6980."""

    lr: Rate | tuple[Rate, ...] = 0.001
    """The schedule multiplies this. A list: a rate for each of `modules`, then one for all other weights."""
    modules: tuple[str, ...] = ()
    """Parts of the model with a learning rate of their own: `encoder.embed`."""
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    eps: Rate = 1e-8
    weight_decay: float = Field(0.0, ge=0)
    """Added to the gradient."""

    @model_validator(mode="after")
    def _one_rate_each(self) -> AdamConf:
        if len(self.rates) != len(self.modules) + 1:
            raise ValueError(
                f"{len(self.rates)} learning rates for {len(self.modules)} modules: give one each, and one for the rest"
            )
        return self

    @property
    def rates(self) -> tuple[float, ...]:
        """Learning rates of `modules`, then that of the rest."""
        return self.lr if isinstance(self.lr, tuple) else (self.lr,)


class AdamWConf(AdamConf):
    """Loshchilov and Hutter, https://arxiv.org/abs/1711.05101."""

    weight_decay: float = Field(0.01, ge=0)
    """Taken off the weights, times the learning rate."""


class WarmupLrConf(Section):
    """Rise to the full rate over the warm-up, then fall with the square root of the step."""

    warmup_steps: NotNegative = 25000
    """Optimizer steps; 0 only falls."""


class NoamHoldAnnealingConf(Section):
    """Rise, hold, then fall with a power of the step. Lengths are optimizer steps or shares of `max_steps`."""

    max_steps: Positive
    """From here on the rate is `min_lr`."""
    warmup_steps: Positive | None = None
    warmup_ratio: float | None = Field(None, gt=0, le=1)
    hold_steps: NotNegative | None = None
    hold_ratio: float | None = Field(None, ge=0, le=1)
    decay_rate: float = Field(0.5, gt=0)
    """0.5 falls with the square root."""
    min_lr: float = Field(0.0, ge=0)

    @model_validator(mode="after")
    def _one_length_each(self) -> NoamHoldAnnealingConf:
        for part in ("warmup", "hold"):
            if getattr(self, f"{part}_steps") is not None and getattr(self, f"{part}_ratio") is not None:
                raise ValueError(f"give {part}_steps or {part}_ratio, not both")
        if self.warmup_steps is None and self.warmup_ratio is None:
            raise ValueError("warmup_steps or warmup_ratio is required: the fall is measured from the warm-up")
        if self.warmup + self.hold > self.max_steps:
            raise ValueError(f"warm-up {self.warmup} and hold {self.hold} are longer than max_steps {self.max_steps}")
        return self

    @property
    def warmup(self) -> int:
        """Steps of the rise."""
        return self.warmup_steps or max(1, round((self.warmup_ratio or 0) * self.max_steps))

    @property
    def hold(self) -> int:
        """Steps at the full rate."""
        return self.hold_steps or round((self.hold_ratio or 0) * self.max_steps)


class LoraConf(Section):
    """Hu et al. 2021, https://arxiv.org/abs/2106.09685."""

    lora_list: tuple[Projection, ...] = ("linear_q", "linear_k", "linear_v")
    """Projections of every attention."""
    lora_rank: Positive = 8
    lora_alpha: Positive = 8
    """The addition is scaled by lora_alpha / lora_rank."""
    lora_dropout: Decay = 0.0


OPTIM_CONFS: dict[str, type[Section]] = {"adam": AdamConf, "adamw": AdamWConf}
SCHEDULER_CONFS: dict[str, type[Section]] = {"warmuplr": WarmupLrConf, "NoamHoldAnnealing": NoamHoldAnnealingConf}
ENGINES = ("torch_ddp", "torch_fsdp", "deepspeed")


class TrainKeys(Section):
    """The keys of training, at the top level of the yaml.

    `optim_conf` and `scheduler_conf` hold the keys of the optimizer and the schedule named beside them.
    """

    optim: str = "adam"
    optim_conf: Section = AdamConf()
    scheduler: str = "warmuplr"
    scheduler_conf: Section = WarmupLrConf()
    grad_clip: float = Field(50.0, gt=0)
    """Largest global norm of a step's gradient."""
    accum_grad: Positive = 1
    """Batches of a rank that one optimizer step is made of."""
    max_epoch: Positive = 100
    max_steps: Positive | None = None
    """Optimizer steps after which the run ends, where max_epoch does not end it before."""
    patience: Positive | None = None
    """Epochs without a lower validation loss that end the run (early stopping); absent: none do."""
    epoch_steps: Positive | None = None
    """Optimizer steps that make an epoch, the next of which goes on where it stopped; absent: a pass over the data."""
    log_interval: Positive = 10
    """Optimizer steps between two points of TensorBoard and two lines of the log."""
    save_interval: Positive | None = None
    """Optimizer steps between two saved states; absent: one an epoch."""
    keep_last: Positive | None = 30
    """Weights of so many newest epochs stay on disk; null keeps all."""
    keep_best: NotNegative = 30
    """Weights of so many epochs with the lowest validation loss stay beside them."""
    max_nonfinite_steps: NotNegative = 20
    """Steps in a row whose gradient may be infinite or not a number; each is skipped, one more stops the run."""
    dtype: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Of the arithmetic in the forward pass (automatic mixed precision); weights stay fp32."""
    use_amp: bool = False
    """WeNet's switch of mixed precision: bf16 unless dtype says fp16."""
    train_engine: str = "torch_ddp"
    """torch_ddp: every rank holds the model; torch_fsdp: a share of it; deepspeed: as its own config says."""
    torch_compile: bool = False
    """Compile the layers of encoder and decoder (needs a C++ compiler on CPUs)."""
    freeze_modules: tuple[str, ...] = ()
    """Parts of the model that are not trained: `encoder.embed`."""
    use_lora: bool = False
    """Low-rank additions to the projections of attention; kept in the checkpoints."""
    only_optimize_lora: bool = False
    """Train nothing else."""
    lora_conf: LoraConf = LoraConf()
    model_dir: str | None = None
    """Where WeNet wrote the run; read for compatibility, as are the next two."""
    save_states: str | None = None
    init_infos: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _lora_is_there_to_train(self) -> TrainKeys:
        if self.only_optimize_lora and not self.use_lora:
            raise ValueError("only_optimize_lora needs use_lora: true")
        return self

    @field_validator("optim", "scheduler", "train_engine")
    @classmethod
    def _is_built(cls, name: str, info: Any) -> str:
        known = {"optim": OPTIM_CONFS, "scheduler": SCHEDULER_CONFS, "train_engine": ENGINES}[info.field_name]
        if name in known:
            return name
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        raise ValueError(f"unknown; did you mean {nearest[0]!r}?" if nearest else f"unknown; known: {', '.join(known)}")
