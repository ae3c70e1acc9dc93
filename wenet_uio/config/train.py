"""Keys of a train.yaml for optimisation, checkpoints and the training engine. Names are WeNet's."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from wenet_uio.config.base import (
    AboveZero,
    BelowOne,
    NotNegative,
    Positive,
    ProperShare,
    Section,
    ZeroOrMore,
    known_name,
)
from wenet_uio.config.optimizer import (
    OPTIMIZERS,
    AdamConf,
    OptimizerConf,
    optimizer_kind,
)
from wenet_uio.config.schedules import (
    SCHEDULER_CONFS,
    EdenConf,
    NoamHoldAnnealingConf,
    TriStageConf,
    WarmupCosineConf,
    WarmupLrConf,
)


class ModelAvgConf(Section):
    """Running average of the weights, updated while the run trains."""

    interval: Positive = 100
    """Optimizer steps between two updates."""
    decay: ProperShare | None = None
    """The average is exponential: each update multiplies it by `decay` and adds 1 - decay of the
    weights. Null: all updates have equal weight, so that `average_model.py` can average ranges of
    epochs, by default the last five."""
    since: NotNegative = 0
    """Optimizer step after which weights count."""

    @model_validator(mode="after")
    def _decay_needs_no_start(self) -> ModelAvgConf:
        if self.decay is not None and self.since:
            raise ValueError(
                "give decay or since, not both: an exponential average forgets its start"
            )
        return self


class RegularisationKeys(Section):
    """Consistency of two views (CR-CTC), label smoothing of CTC, intermediate CTC, and the running
    average.
    """

    cr_loss_scale: ZeroOrMore = 0.0
    """Weight of `loss_cr` in the loss: the divergence between the CTC posteriors of two augmented
    views of each utterance (Yao et al. 2024, https://arxiv.org/abs/2410.05101). 0: one view. The
    paper has 0.2 for CTC alone, and 0.02 beside an attention decoder or a transducer with a CTC
    weight of 0.1."""
    cr_warmup_steps: NotNegative = 0
    """Optimizer steps in which the weight of `loss_cr` rises linearly to `cr_loss_scale`."""
    cr_time_mask_ratio: AboveZero = 2.5
    """With two views, spec_aug has this many times `num_t_mask` masks of time."""
    ctc_label_smoothing: BelowOne = 0.0
    """Share of the CTC loss that is the divergence of the posteriors of all frames from the uniform
    distribution (Kim et al. 2018, https://arxiv.org/abs/1711.02212)."""
    ctc_detach_steps: NotNegative | None = None
    """Optimizer steps from the start of the run in which the gradient of the CTC loss does not reach
    the encoder, so that a new CTC layer cannot spoil a trained encoder. Null: 0, and all steps of a
    run that starts from a model without trained CTC."""
    ctc_texts: str | None = None
    """File of texts (key, then text): the CTC layer learns only the units of these texts, and the
    others get the probability 0. With tens of thousands of units, CTC costs most of a step
    otherwise. Null: all units."""
    interctc_layer_idx: tuple[Positive, ...] | None = None
    """Encoder blocks, from 1, that get a CTC loss of their own (Lee and Watanabe 2021,
    https://arxiv.org/abs/2102.03216), such as [6] of 12; all but the last are possible. Null:
    none."""
    interctc_weight: ProperShare = 0.3
    """Share of the CTC loss that is the mean over these blocks; the last block has the rest."""
    interctc_conditioning: bool = False
    """The block after each of them also sees its CTC posteriors, in decoding too (self-conditioned
    CTC, Nozaki and Komatsu 2021, https://arxiv.org/abs/2104.02724). The weights are
    `encoder.conditioning_layer`. Such a model does not stream, and is exported to ONNX for whole
    utterances only."""
    model_avg: ModelAvgConf | None = None
    """Running average of the weights, saved as running_N.pt beside epoch_N.pt; null: none."""


Hours = Annotated[float, Field(gt=0, allow_inf_nan=False)]
ENDLESS = 1_000_000_000
"""`max_epoch` of a run that ends by its steps."""
Projection = Literal["linear_q", "linear_k", "linear_v", "linear_out"]


class LoraConf(Section):
    """Low-rank adaptation, LoRA (Hu et al. 2021, https://arxiv.org/abs/2106.09685)."""

    lora_list: tuple[Projection, ...] = ("linear_q", "linear_k", "linear_v")
    """Projections that LoRA adapts, in every attention module."""
    lora_rank: Positive = 8
    lora_alpha: Positive = 8
    """The low-rank product is scaled by lora_alpha / lora_rank."""
    lora_dropout: BelowOne = 0.0


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
    grad_clip: AboveZero = 50.0
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
