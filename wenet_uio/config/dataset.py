"""`dataset_conf`: everything between a data list and a batch. Keys and defaults are WeNet's."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from wenet_uio.config.base import Section

Positive = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]


class FilterConf(Section):
    """Which utterances take part in training."""

    max_length: Positive = 10240
    """Frames of 10 ms."""
    min_length: NotNegative = 10
    """Frames of 10 ms."""
    token_max_length: Positive = 200
    token_min_length: NotNegative = 1
    min_output_input_ratio: float = 0.0005
    """Tokens per frame of 10 ms."""
    max_output_input_ratio: float = 1.0
    """Tokens per frame of 10 ms."""
    min_duration: float = Field(0.0, ge=0)
    """Seconds."""
    max_duration: Annotated[float, Field(gt=0)] | None = None
    """Seconds."""
    min_tps: float = Field(0.0, ge=0)
    """Tokens per second."""
    max_tps: Annotated[float, Field(gt=0)] | None = None
    """Tokens per second."""

    @model_validator(mode="after")
    def _bounds_leave_room(self) -> FilterConf:
        for low, high in (
            ("min_length", "max_length"),
            ("token_min_length", "token_max_length"),
            ("min_output_input_ratio", "max_output_input_ratio"),
        ):
            if getattr(self, low) > getattr(self, high):
                raise ValueError(
                    f"{low} {getattr(self, low)} is above {high} {getattr(self, high)}: nothing would pass"
                )
        return self


class ResampleConf(Section):
    resample_rate: Positive = 16000
    """Hz that every waveform is brought to."""


class SpeedPerturbConf(Section):
    speeds: tuple[Annotated[float, Field(ge=0.5, le=2.0)], ...] = (0.9, 1.0, 1.1)
    """One is drawn for each utterance and epoch, all alike."""


class FbankConf(Section):
    """Kaldi's mel filter banks."""

    num_mel_bins: Positive = 23
    frame_length: float = Field(25, gt=0)
    """Milliseconds."""
    frame_shift: float = Field(10, gt=0)
    """Milliseconds."""
    dither: float = Field(0.0, ge=0)
    """Standard deviation of the noise, on the scale of int16; drawn in training only."""
    window_type: Literal["povey", "hamming", "hanning", "rectangular", "blackman"] = "povey"
    low_freq: float = Field(20.0, ge=0)
    """Hz."""
    high_freq: float = 0.0
    """Hz; 0 or below: counted from half the sample rate."""
    preemphasis_coefficient: Probability = 0.97
    remove_dc_offset: bool = True
    snip_edges: bool = True
    """True: only whole frames; False: the edges are reflected."""


class MfccConf(FbankConf):
    """Kaldi's mel cepstra."""

    num_ceps: Positive = 40
    num_mel_bins: Positive = 40
    high_freq: float = 0.0
    low_freq: float = Field(20.0, ge=0)
    cepstral_lifter: float = 22.0

    @model_validator(mode="after")
    def _fewer_cepstra_than_bins(self) -> MfccConf:
        if self.num_ceps > self.num_mel_bins:
            raise ValueError(f"num_ceps {self.num_ceps} is above num_mel_bins {self.num_mel_bins}")
        return self


class LogMelSpectrogramConf(Section):
    """Whisper's features."""

    n_fft: Positive = 400
    hop_length: Positive = 160
    num_mel_bins: Positive = 80
    padding: NotNegative = 0
    """Samples of silence put behind the waveform."""
    pad_or_trim: bool = False
    """Bring every waveform to `max_duration`."""
    max_duration: Positive = 30
    """Seconds."""


class SpecAugConf(Section):
    num_t_mask: NotNegative = 2
    num_f_mask: NotNegative = 2
    max_t: Positive = 50
    """Frames."""
    max_f: Positive = 10
    """Bins."""
    max_w: Positive = 80
    """Read for compatibility: WeNet's files carry it and warp nothing."""


class SpecSubConf(Section):
    max_t: Positive = 20
    """Frames."""
    num_t_sub: NotNegative = 3


class SpecTrimConf(Section):
    max_t: Positive = 20
    """Frames cut from the end at most."""


class ShuffleConf(Section):
    """Read for compatibility: the plan shuffles the whole corpus."""

    shuffle_size: Positive = 1500


class SortConf(Section):
    """Read for compatibility: the plan sorts within groups of shards."""

    sort_size: Positive = 500


Seconds = Annotated[float, Field(gt=0)]


class BatchConf(Section):
    """How samples become batches; `batch_type` says which of the keys count."""

    batch_type: Literal["static", "dynamic", "bucket"] = "static"
    batch_size: Positive | None = None
    """Utterances: of a batch (static; 16 where absent), or at most, with `batch_duration`."""
    max_frames_in_batch: Positive = 12000
    """Padded frames: longest utterance times number of utterances (dynamic)."""
    batch_duration: Seconds | None = None
    """Padded seconds, in place of max_frames_in_batch (dynamic)."""
    quadratic_duration: Seconds | None = None
    """With batch_duration an utterance of d seconds counts d + d² / quadratic_duration: long ones cost attention."""
    bucket_boundaries: tuple[Positive, ...] = (500, 1000, 1500)
    """Upper ends of the buckets in frames, exclusive; one bucket more for what is longer (bucket)."""
    bucket_batch_sizes: tuple[Positive, ...] = (128, 64, 32, 16)
    """Utterances, one number a bucket of bucket_boundaries."""
    bucket_duration_bins: tuple[Seconds, ...] | tuple[tuple[Seconds, Positive], ...] | None = None
    """Upper ends of the buckets in seconds, or in (seconds, tokens), inclusive, in place of bucket_boundaries."""
    bucket_batch_size: tuple[Positive, ...] | None = None
    """Utterances, one number a bucket of bucket_duration_bins, or one more for what is longer than all bins."""
    max_tps: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    """Tokens per second that each duration of bucket_duration_bins keeps, one number a duration; more fits no batch."""
    bucket_choice: Literal["strict", "lenient"] = "strict"
    """Of buckets in two dimensions: strict looks for room for the tokens within the first bin of duration that fits
    only, lenient takes the first bucket that fits both."""
    batch_tokens: Positive | None = None
    """Padded tokens of a batch of text alone; sources of type txt and txt_pair need it."""
    quadratic_factor: Positive | None = None
    """With batch_tokens a text of n tokens counts n + n² / quadratic_factor."""
    use_semi_sorted_batching: bool = False
    """Sort by length with noise instead of cutting sorted blocks. US patent 11915685 B2 covers this method: see to your
    right to use it before you switch it on."""
    randomization_factor: Probability = 0.1
    """Of semi-sorted batching: noise of this share of the range of lengths."""
    length_order: Literal["synced", "random", "rising"] = "synced"
    """In what order lengths come over the epoch: at random, alike in all lanes so that the ranks of a step have like
    batches (synced); at random in each lane; or from short to long."""

    @model_validator(mode="after")
    def _buckets_fit(self) -> BatchConf:
        if len(self.bucket_batch_sizes) != len(self.bucket_boundaries) + 1:
            raise ValueError(
                f"bucket_batch_sizes needs {len(self.bucket_boundaries) + 1} numbers for "
                f"{len(self.bucket_boundaries)} bucket_boundaries, found {len(self.bucket_batch_sizes)}"
            )
        bins, sizes = self.bucket_duration_bins, self.bucket_batch_size
        if (bins is None) != (sizes is None):
            raise ValueError("bucket_duration_bins and bucket_batch_size need one another")
        if bins is not None and len(sizes) - len(bins) not in (0, 0 if isinstance(bins[0], tuple) else 1):
            raise ValueError(f"bucket_batch_size has {len(sizes)} numbers for {len(bins)} bucket_duration_bins")
        durations = {end[0] if isinstance(end, tuple) else end for end in bins or ()}
        if self.max_tps is not None and len(self.max_tps) != len(durations):
            raise ValueError(f"max_tps has {len(self.max_tps)} numbers for {len(durations)} durations of the bins")
        for name in ("bucket_boundaries", "bucket_duration_bins"):
            ends = getattr(self, name)
            if ends and sorted(set(ends)) != list(ends):
                raise ValueError(f"{name} must rise, found {list(ends)}")
        if self.batch_duration is None and self.quadratic_duration is not None:
            raise ValueError("quadratic_duration goes with batch_duration")
        if self.batch_tokens is None and self.quadratic_factor is not None:
            raise ValueError("quadratic_factor goes with batch_tokens")
        return self


class ChannelConf(Section):
    channel: NotNegative | Literal["mix"] = 0
    """Which channel of a file is read, counted from 0; `mix` is the mean of all."""


Place = Literal[
    "decode", "tokenize", "filter", "resample", "speed_perturb", "features", "spec_aug", "spec_sub", "spec_trim"
]
"""Steps of the chain, in their order; a step that is switched off keeps its place."""


class OperatorConf(Section):
    """An operator of the user's own: see `wenet_uio/dataset/README.md`."""

    use: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
    """`package.module:Name`, called with the keys of `conf`: gives what is called with each Example."""
    after: Place
    """The step behind which it comes."""
    conf: dict[str, Any] = Field({})
    evaluation: bool = False
    """True: it takes part in validation, decoding and CMVN statistics too."""


class DatasetConf(Section):
    """From data list to batch; optional steps are absent from the chain unless switched on."""

    filter_conf: FilterConf = FilterConf()
    resample_conf: ResampleConf = ResampleConf()
    singal_channel_conf: ChannelConf = ChannelConf()
    """Spelt as WeNet spells it."""
    speed_perturb: bool = False
    speed_perturb_conf: SpeedPerturbConf = SpeedPerturbConf()
    feats_type: Literal["fbank", "mfcc", "log_mel_spectrogram"] = "fbank"
    feature_device: Literal["worker", "accelerator"] = "worker"
    """Where training computes and augments features: in the processes that read, or on the device that trains, from
    padded waveforms. Recognition computes them where it reads."""
    fbank_conf: FbankConf = FbankConf()
    mfcc_conf: MfccConf = MfccConf()
    log_mel_spectrogram_conf: LogMelSpectrogramConf = LogMelSpectrogramConf()
    spec_aug: bool = True
    spec_aug_conf: SpecAugConf = SpecAugConf()
    spec_sub: bool = False
    spec_sub_conf: SpecSubConf = SpecSubConf()
    spec_trim: bool = False
    spec_trim_conf: SpecTrimConf = SpecTrimConf()
    shuffle: bool = True
    """False plans every epoch alike."""
    shuffle_conf: ShuffleConf = ShuffleConf()
    list_shuffle: bool = True
    """Read for compatibility, as `sort` is."""
    list_shuffle_conf: ShuffleConf = ShuffleConf()
    sort: bool = True
    sort_conf: SortConf = SortConf()
    operators: tuple[OperatorConf, ...] = ()
    """The user's own, beside those above."""
    batch_conf: BatchConf = BatchConf()
    partition: bool = True
    """Share the data out over the ranks; false gives each all of it, in an order of its own (NeMo's replicate)."""
    cycle: Literal[1] = 1
    """An epoch is one pass; for more passes raise max_epoch."""
    max_bad_ratio: Probability = 0.01
    """Share of the utterances of an epoch that may turn out bad, those without a place in the index included, before
    the run stops."""

    @model_validator(mode="after")
    def _operators_have_features(self) -> DatasetConf:
        if self.feature_device == "accelerator":
            for own in self.operators:
                if own.after in ("features", "spec_aug", "spec_sub", "spec_trim"):
                    raise ValueError(f"operators: {own.use} comes after {own.after}, and needs feature_device: worker")
        return self

    @property
    def feature_dim(self) -> int:
        """Width of the features that the chain computes."""
        if self.feats_type == "mfcc":
            return self.mfcc_conf.num_ceps
        if self.feats_type == "log_mel_spectrogram":
            return self.log_mel_spectrogram_conf.num_mel_bins
        return self.fbank_conf.num_mel_bins
