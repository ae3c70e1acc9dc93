"""Keys of a train.yaml for optimisation, checkpoints and the training engine. Names are WeNet's."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from wenet_uio.config.base import NotNegative, Positive, Section
from wenet_uio.config.names import known_name
from wenet_uio.config.optimizer import (
    OPTIMIZERS,
    AdamConf,
    Decay,
    OptimizerConf,
    Rate,
    optimizer_kind,
)
from wenet_uio.config.regularisation import RegularisationKeys
from wenet_uio.config.schedules import Schedule, TriStageConf, WarmupCosineConf

Hours = Annotated[float, Field(gt=0, allow_inf_nan=False)]
ENDLESS = 1_000_000_000
"""`max_epoch` of a run that ends by its steps."""
WARM_UPS = 20
"""Length of WarmupLR in times of its warm-up, if the time ends a run: the rate is at 22 % of its highest
then."""
Projection = Literal["linear_q", "linear_k", "linear_v", "linear_out"]


class EdenConf(Schedule):
    """The rate falls with the root of both the step and the epoch (Yao et al. 2023, section
    3.5).
    """

    lr_batches: Rate = 7500.0
    """Optimizer steps around which the rate begins to fall."""
    lr_epochs: Rate = 3.5
    """Epochs around which the rate begins to fall."""
    warmup_batches: NotNegative = 500
    """Optimizer steps of a linear warm-up."""
    warmup_start: float = Field(default=0.5, gt=0, le=1)
    """Factor of the rate in the first step of the warm-up."""


class WarmupLrConf(Schedule):
    """The rate rises linearly during the warm-up, then falls with the inverse square root of the
    step.
    """

    warmup_steps: NotNegative = 25000
    """Optimizer steps; 0: the rate falls from the first step."""

    @property
    def usual_end(self) -> int | None:
        """WARM_UPS warm-ups. So a run with a very large `max_epoch`, which its time ends, has a warm-up,
        too.
        """
        return WARM_UPS * self.warmup_steps or None


class NoamHoldAnnealingConf(Schedule):
    """The rate rises, stays constant, then falls with a power of the step.

    Lengths are optimizer steps (`_steps`) or shares of `max_steps` (`_ratio`).
    """

    max_steps: Positive
    """Optimizer step from which the rate is `min_lr`."""
    warmup_steps: Positive | None = None
    warmup_ratio: float | None = Field(default=None, gt=0, le=1)
    hold_steps: NotNegative | None = None
    hold_ratio: float | None = Field(default=None, ge=0, le=1)
    decay_rate: float = Field(default=0.5, gt=0)
    """Power of the fall; 0.5: inverse square root."""
    min_lr: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _one_length_each(self) -> NoamHoldAnnealingConf:
        """Raise ValueError if warm-up or hold has two lengths, or both are longer than the run."""
        for part in ("warmup", "hold"):
            if (
                getattr(self, f"{part}_steps") is not None
                and getattr(self, f"{part}_ratio") is not None
            ):
                raise ValueError(f"give {part}_steps or {part}_ratio, not both")

        if self.warmup_steps is None and self.warmup_ratio is None:
            raise ValueError(
                "warmup_steps or warmup_ratio is required: the rate falls relative to the warm-up"
            )

        if self.warmup + self.hold > self.max_steps:
            raise ValueError(
                f"warm-up {self.warmup} and hold {self.hold} are longer than max_steps "
                f"{self.max_steps}"
            )

        return self

    @property
    def end(self) -> int:
        """Optimizer step from which the rate stays as it is."""
        return self.max_steps

    @property
    def warmup(self) -> int:
        """Optimizer steps of the rise."""
        return self.warmup_steps or max(1, round((self.warmup_ratio or 0) * self.max_steps))

    @property
    def hold(self) -> int:
        """Optimizer steps at the full rate."""
        return self.hold_steps or round((self.hold_ratio or 0) * self.max_steps)


class LoraConf(Section):
    """Low-rank adaptation, LoRA (Hu et al. 2021, https://arxiv.org/abs/2106.09685)."""

    lora_list: tuple[Projection, ...] = ("linear_q", "linear_k", "linear_v")
    """Projections that LoRA adapts, in every attention module."""
    lora_rank: Positive = 8
    lora_alpha: Positive = 8
    """The low-rank product is scaled by lora_alpha / lora_rank."""
    lora_dropout: Decay = 0.0


SCHEDULER_CONFS: dict[str, type[Schedule]] = {
    "warmuplr": WarmupLrConf,
    "NoamHoldAnnealing": NoamHoldAnnealingConf,
    "WarmupCosine": WarmupCosineConf,
    "tri_stage": TriStageConf,
    "eden": EdenConf,
}
ENGINES = ("torch_ddp", "torch_fsdp", "deepspeed")


class TrainKeys(RegularisationKeys):
    """The keys of training, at the top level of the yaml.

    `optim` selects the class of `optim_conf`, and `scheduler` the class of `scheduler_conf`.
    """

    optim: str = "adam"
    optim_conf: OptimizerConf = AdamConf()
    scheduler: str = "warmuplr"
    scheduler_conf: (
        WarmupLrConf | NoamHoldAnnealingConf | WarmupCosineConf | TriStageConf | EdenConf
    ) = WarmupLrConf()
    grad_clip: float = Field(default=50.0, gt=0)
    """Gradients with a larger global norm are scaled down to this norm."""
    accum_grad: Positive = 1
    """Batches per rank in one optimizer step."""
    max_epoch: Positive = 100
    max_steps: Positive | None = None
    """Optimizer steps after which the run ends, with a validation and weights, if max_epoch does not
    end it earlier. A run that ended inside an epoch continues this epoch if `max_steps` grows."""
    max_hours: Hours | None = None
    """Hours of training after which the run ends, if nothing ends it earlier: all starts together,
    with validations and pictures. If they do not suffice for the whole run, the learning rates reach
    their end earlier, with the time. A run that ended so goes on if `max_hours` grows."""
    patience: Positive | None = None
    """The run ends after this many epochs without a lower validation loss (early stopping); null:
    never."""
    epoch_steps: Positive | None = None
    """Optimizer steps of an epoch; the next epoch continues with the next batch. Null: an epoch is
    one pass over the data. With steps, each start says what a pass leaves out."""
    log_interval: Positive = 10
    """Optimizer steps between two points in TensorBoard and two lines in the log."""
    tracker: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ("tensorboard",)
    """Where curves, pictures, texts and audio go; TensorBoard's files are always written, since
    report.html is made of them. See docs/how-to/track.md."""
    observe_interval: NotNegative = 1
    """Epochs between two plots of attention and CTC for one utterance of the validation set; 0: no
    plots."""
    report: bool = True
    """Write report.html when the run is complete; `tools/report_run.py` writes it at any time."""
    save_interval: Positive | None = None
    """Optimizer steps between two saved states; null: save at the end of an epoch, and with
    `max_hours` after each twentieth of this time."""
    keep_last: Positive | None = 30
    """Number of newest epochs whose weights stay on disk; null keeps all."""
    keep_best: NotNegative = 30
    """Number of epochs with the lowest validation loss whose weights also stay on disk."""
    max_nonfinite_steps: NotNegative = 20
    """Consecutive steps that may be skipped because of an infinite or NaN gradient; one more stops
    the run."""
    dtype: Literal["fp32", "bf16", "fp16", "auto"] = "fp32"
    """Precision of the forward pass (automatic mixed precision); weights stay fp32. auto: bf16 if
    the device computes with it, else fp32; a GPU computes products that stay fp32 in TF32."""
    use_amp: bool = False
    """WeNet's switch for mixed precision: bf16, or fp16 with `dtype: fp16`."""
    train_engine: str = "torch_ddp"
    """torch_ddp: every rank holds the whole model; torch_fsdp: every rank holds a shard of the
    model; deepspeed: as DeepSpeed's own config defines."""
    join_micro_batches: NotNegative = 40_000
    """On a GPU, the micro-batches of a step are joined up to this many frames, padding included; 0:
    never. If they do not fit in memory together, fewer are joined."""
    torch_compile: bool = False
    """Compile the layers of encoder and decoder on a GPU; ignored on a CPU, where compiled layers
    are slower."""
    cudnn_attention: bool = False
    """Let a GPU use cuDNN's attention, which may make a plan for each new shape of batch."""
    freeze_modules: tuple[str, ...] = ()
    """Modules that are not trained, such as `encoder.embed`; frozen batch norms keep their
    statistics."""
    store_frames: bool = False
    """Compute the frames of each utterance once, in the first epoch, and store them in the folder of the
    run. The encoder must be frozen, and no epoch may change the features."""
    use_lora: bool = False
    """Add trained low-rank products to the projections of attention; checkpoints contain them, the
    weights that a run starts from need not."""
    only_optimize_lora: bool = False
    """Train only the low-rank weights."""
    lora_conf: LoraConf = LoraConf()
    model_dir: str | None = None
    """Not used: WeNet writes this key, and the next two, into the train.yaml of a run."""
    save_states: str | None = None
    init_infos: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _lora_is_there_to_train(self) -> TrainKeys:
        if self.only_optimize_lora and not self.use_lora:
            raise ValueError("only_optimize_lora needs use_lora: true")
        return self

    @model_validator(mode="after")
    def _engine_fits(self) -> TrainKeys:
        shares_weights = self.train_engine != "torch_ddp"
        if shares_weights and optimizer_kind(self.optim).needs_whole_weights:
            raise ValueError(
                f"optim {self.optim} needs the whole of each weight, and the ranks of train_engine "
                f"{self.train_engine} share them: use torch_ddp"
            )
        return self

    @field_validator("optim", "scheduler", "train_engine")
    @classmethod
    def _is_built(cls, name: str, info: Any) -> str:
        known: dict[str, Collection[str]] = {
            "optim": OPTIMIZERS,
            "scheduler": SCHEDULER_CONFS,
            "train_engine": ENGINES,
        }
        return known_name(name, known[info.field_name])
