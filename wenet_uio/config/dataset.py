"""`dataset_conf`: everything between a data list and a batch. Keys and defaults are those of
WeNet.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from wenet_uio.config.augmentation import AugmentationKeys
from wenet_uio.config.base import AboveZero, NotNegative, Positive, Probability, Section, ZeroOrMore
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.filters import FilterConf


class ResampleConf(Section):
    """Sample rate of all audio."""

    resample_rate: Positive = 16000
    """Hz; audio of other rates is resampled."""


class SpeedPerturbConf(Section):
    """Speeds at which training plays utterances."""

    speeds: tuple[Annotated[float, Field(ge=0.5, le=2.0)], ...] = (0.9, 1.0, 1.1)
    """One speed is drawn for each utterance in each epoch, all with equal probability."""


class FbankConf(Section):
    """Kaldi's mel filter banks."""

    num_mel_bins: Positive = 80
    frame_length: AboveZero = 25
    """Milliseconds."""
    frame_shift: AboveZero = 10
    """Milliseconds."""
    dither: ZeroOrMore = 0.0
    """Standard deviation of the added noise, on the scale of int16; training only."""
    window_type: Literal["povey", "hamming", "hanning", "rectangular", "blackman"] = "povey"
    low_freq: ZeroOrMore = 20.0
    """Hz."""
    high_freq: float = 0.0
    """Hz; a value of 0 or below is added to half the sample rate."""
    preemphasis_coefficient: Probability = 0.97
    remove_dc_offset: bool = True
    snip_edges: bool = True
    """True: only frames that lie inside the waveform. False: the waveform is mirrored at its
    edges."""


class MfccConf(FbankConf):
    """Kaldi's mel cepstra."""

    num_ceps: Positive = 40
    num_mel_bins: Positive = 40
    high_freq: float = 0.0
    low_freq: ZeroOrMore = 20.0
    cepstral_lifter: float = 22.0

    @model_validator(mode="after")
    def _fewer_cepstra_than_bins(self) -> MfccConf:
        if self.num_ceps > self.num_mel_bins:
            raise ValueError(f"num_ceps {self.num_ceps} is above num_mel_bins {self.num_mel_bins}")
        return self


class LogMelSpectrogramConf(Section):
    """Log mel spectrogram, as OpenAI computes it."""

    n_fft: Positive = 400
    hop_length: Positive = 160
    num_mel_bins: Positive = 80
    padding: NotNegative = 0
    """Samples of silence appended to the waveform."""
    pad_or_trim: bool = False
    """Pad or trim every waveform to `max_duration`."""
    max_duration: Positive = 30
    """Seconds."""
    pad_in_training: bool = True
    """False: with `pad_or_trim`, training utterances keep their lengths; a whisper then learns from
    a few frames of the silence behind them, instead of all. Validation and decoding pad."""

    def for_use(self, *, training: bool) -> LogMelSpectrogramConf:
        """Return the section as training or evaluation computes the features."""
        if training and not self.pad_in_training:
            return self.model_copy(update={"pad_or_trim": False})
        return self


class SpecAugConf(Section):
    """Masks of SpecAugment."""

    num_t_mask: NotNegative = 2
    num_f_mask: NotNegative = 2
    max_t: Positive = 50
    """Frames."""
    max_f: Positive = 10
    """Bins."""
    max_w: Positive = 80
    """`time_warp` moves a point by fewer frames than this; utterances of at most twice as many
    frames stay as they are. Without `time_warp` it is ignored, as in WeNet."""


class SpecSubConf(Section):
    """Substitutions of SpecSub."""

    max_t: Positive = 20
    """Frames."""
    num_t_sub: NotNegative = 3


class SpecTrimConf(Section):
    """Trimming of SpecTrim."""

    max_t: Positive = 20
    """Largest number of frames cut from the end."""


class ShuffleConf(Section):
    """Accepted for compatibility and ignored: the plan shuffles the whole corpus."""

    shuffle_size: Positive = 1500


class SortConf(Section):
    """Accepted for compatibility and ignored: the plan sorts within groups of shards."""

    sort_size: Positive = 500


class ChannelConf(Section):
    """Channel of audio with several channels."""

    channel: NotNegative | Literal["mix"] = 0
    """Number of the channel, counted from 0; `mix` is the mean of all channels."""


ChainStep = Literal[
    "decode",
    "tokenize",
    "filter",
    "resample",
    "trim",
    "speed_perturb",
    "quiet",
    "shift",
    "reverb",
    "overlap",
    "noise",
    "white_noise",
    "codec",
    "gain",
    "features",
    "spec_aug",
    "spec_sub",
    "spec_trim",
]
"""Steps of the chain, in their order. Operators of the user may follow any of them, also a step
that is off."""


class OperatorConf(Section):
    """An operator of the user: see `docs/how-to/operator.md`."""

    use: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
    """`package.module:Name`. It is called once with the keys of `conf`; the result is called with
    each Example."""
    after: ChainStep
    """The step that the operator follows."""
    conf: dict[str, Any] = Field(default={})
    evaluation: bool = False
    """True: the operator also runs in validation, decoding and CMVN statistics."""


class LanguageConf(Section):
    """Languages of a corpus whose utterances have no field `lang`; used by models with a
    prompt of the language.
    """

    limited_langs: Annotated[tuple[str, ...], Field(min_length=1)]
    """One language, or zh and en: the text tells which."""


class HeardQuiet(Section):
    """Quiet at both ends of the training utterances, after augmentation."""

    before: ZeroOrMore
    """Median of the seconds before the speech."""
    behind: ZeroOrMore
    """Median of the seconds behind the speech."""


class ViewsConf(Section):
    """Augmented views of each training utterance. It follows from the keys of CR-CTC, see
    train.py.
    """

    number: Literal[1, 2] = 1
    time_mask_ratio: float = 1.0
    """spec_aug has this many times `num_t_mask` masks of time."""


class DatasetConf(AugmentationKeys):
    """From data list to batch; a step that is switched off is absent from the chain."""

    filter_conf: FilterConf = FilterConf()
    resample_conf: ResampleConf = ResampleConf()
    singal_channel_conf: ChannelConf = ChannelConf()
    """WeNet spells this key so."""
    speed_perturb: bool = False
    speed_perturb_conf: SpeedPerturbConf = SpeedPerturbConf()
    feats_type: Literal["fbank", "mfcc", "log_mel_spectrogram"] = "fbank"
    feature_device: Literal["worker", "accelerator"] = "worker"
    """Where training and validation compute features: in the worker processes, or on the
    accelerator from padded waveforms. Recognition and CMVN statistics always compute features in
    the workers."""
    fbank_conf: FbankConf = FbankConf()
    mfcc_conf: MfccConf = MfccConf()
    log_mel_spectrogram_conf: LogMelSpectrogramConf = LogMelSpectrogramConf()
    spec_aug: bool = True
    spec_aug_conf: SpecAugConf = SpecAugConf()
    time_warp: bool = False
    """Stretch the time before a drawn point and squeeze that after it, or the reverse, before the
    masks."""
    spec_sub: bool = False
    spec_sub_conf: SpecSubConf = SpecSubConf()
    spec_trim: bool = False
    spec_trim_conf: SpecTrimConf = SpecTrimConf()
    language_conf: LanguageConf = LanguageConf(limited_langs=("zh", "en"))
    shuffle: bool = True
    """False: all epochs have the same order. A source of a mixture that an epoch does not read to its
    end goes on in the next epoch, in this order."""
    seed: int | None = None
    """Seed of the order of the data and of augmentation; null: that of the run, --seed."""
    shuffle_conf: ShuffleConf = ShuffleConf()
    list_shuffle: bool = True
    """Accepted for compatibility and ignored, and so is `sort`."""
    list_shuffle_conf: ShuffleConf = ShuffleConf()
    sort: bool = True
    sort_conf: SortConf = SortConf()
    views: ViewsConf = Field(default=ViewsConf(), exclude=True)
    """Not a key of the yaml: `cr_loss_scale` sets it."""
    operators: tuple[OperatorConf, ...] = ()
    """Operators of the user, in addition to those above."""
    batch_conf: BatchConf = BatchConf()
    partition: bool = True
    """True: the ranks share the data. False: every rank reads all data in an order of its own
    (`replicate` of NeMo)."""
    cycle: Literal[1] = 1
    """An epoch is one pass; set max_epoch for more passes."""
    max_bad_ratio: Probability = 0.01
    """Largest share of bad utterances in an epoch; above this share the run stops. Utterances that
    could not be indexed count as bad."""
    heard_quiet: HeardQuiet | None = None
    """How much quiet the model knows around speech: transcription keeps as much. A new run measures
    it; null: unknown."""

    @model_validator(mode="after")
    def _operators_have_features(self) -> DatasetConf:
        """Raise ValueError if an operator needs features that only the accelerator computes."""
        if self.feature_device == "accelerator":
            for operator in self.operators:
                if operator.after in ("features", "spec_aug", "spec_sub", "spec_trim"):
                    raise ValueError(
                        f"operators: {operator.use} comes after {operator.after}, and needs feature_device: "
                        "worker"
                    )
        return self

    @property
    def feature_dim(self) -> int:
        """Width of the features that the chain computes."""
        if self.feats_type == "mfcc":
            return self.mfcc_conf.num_ceps
        if self.feats_type == "log_mel_spectrogram":
            return self.log_mel_spectrogram_conf.num_mel_bins
        return self.fbank_conf.num_mel_bins
