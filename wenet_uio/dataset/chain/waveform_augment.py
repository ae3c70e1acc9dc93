"""Which operators change the waveforms of training, by the config."""

from __future__ import annotations

from wenet_uio.audio.decoders import Channel
from wenet_uio.audio.encoding import MP3_RATES, OPUS_RATES
from wenet_uio.base.messages import listed, warn_once
from wenet_uio.config.augmentation import CodecConf, NoiseConf, ReverbConf
from wenet_uio.config.base import ConfigError
from wenet_uio.config.dataset import ChainStep, DatasetConf
from wenet_uio.dataset.chain.noise import (
    EXPONENTS,
    AddNoise,
    Babble,
    ColouredNoise,
    Gain,
    NoiseSource,
    Overlap,
    RecordedNoise,
    WhiteNoise,
)
from wenet_uio.dataset.chain.recordings import Recordings
from wenet_uio.dataset.chain.reverb import RecordedRooms, Reverb, SimulatedRooms
from wenet_uio.dataset.chain.waveform import ChangeQuiet, LossyCodec, Shift, TrimSilence
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import DataType
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.types import Operator

AUGMENTATION_STEPS: tuple[ChainStep, ...] = (
    "trim",
    "quiet",
    "shift",
    "reverb",
    "overlap",
    "noise",
    "white_noise",
    "codec",
    "gain",
)
"""Steps of the chain that this module fills, in their order."""
NAMED = 3
"""Recordings that a warning names."""


def waveform_augmentations(
    conf: DatasetConf, corpus: Corpus | None, *, training: bool
) -> dict[ChainStep, tuple[Operator, ...]]:
    """Return the operators of each of AUGMENTATION_STEPS that `conf` switches on; evaluation has none.

    Args:
        corpus: the training data.

    Raises:
        ConfigError: the training data cannot be mixed with itself.
        ListError: a list of noise cannot be used.
    """
    chain: dict[ChainStep, tuple[Operator, ...]] = dict.fromkeys(AUGMENTATION_STEPS, ())
    if not training:
        return chain

    if conf.trim_conf:
        chain["trim"] = (TrimSilence(conf.trim_conf),)
    if conf.quiet_conf:
        chain["quiet"] = (ChangeQuiet(conf.quiet_conf),)
    if conf.shift_conf:
        chain["shift"] = (Shift(conf.shift_conf),)
    if conf.reverb_conf:
        chain["reverb"] = (Reverb(conf.reverb_conf, _open_rooms(conf.reverb_conf, conf)),)

    if conf.overlap_conf:
        chain["overlap"] = (
            Overlap(conf.overlap_conf, _training_recordings("overlap_conf", conf, corpus)),
        )

    if conf.noise_conf:
        chain["noise"] = (AddNoise(conf.noise_conf, _noise_sources(conf.noise_conf, conf, corpus)),)
    if conf.white_noise_conf:
        chain["white_noise"] = (WhiteNoise(conf.white_noise_conf),)
    if conf.codec_conf:
        chain["codec"] = (_lossy_codec(conf.codec_conf, conf.resample_conf.resample_rate),)
    if conf.gain_conf:
        chain["gain"] = (Gain(conf.gain_conf),)

    return chain


def _open_rooms(reverb: ReverbConf, conf: DatasetConf) -> RecordedRooms | SimulatedRooms:
    if reverb.data_list is None:
        return SimulatedRooms(reverb.rooms, reverb.rt60)
    return RecordedRooms(
        recordings_of_list("reverb_conf", reverb.data_list, reverb.data_type, conf, channel=0)
    )


def _lossy_codec(codec: CodecConf, rate: int) -> LossyCodec:
    """Build the operator of lossy codecs.

    Raises:
        ConfigError: a codec does not have the sample rate.
    """
    for name, rates in (("opus", OPUS_RATES), ("mp3", MP3_RATES)):
        if name in codec.codecs and rate not in rates:
            known = ", ".join(map(str, rates))
            raise ConfigError(
                f"dataset_conf.codec_conf.codecs: {name} has {known} Hz, not resample_rate {rate}; "
                f"remove {name}"
            )
    return LossyCodec(codec)


def _noise_sources(
    noise: NoiseConf, conf: DatasetConf, corpus: Corpus | None
) -> tuple[NoiseSource, ...]:
    """Return what noise is taken from: a list of recordings, and noise that is made."""
    sources: list[NoiseSource] = []
    if noise.data_list is not None:
        recordings = recordings_of_list("noise_conf", noise.data_list, noise.data_type, conf)
        sources.append(RecordedNoise(recordings))

    for colour in noise.made:
        if colour == "babble":
            talkers = _training_recordings("noise_conf.made: babble", conf, corpus)
            sources.append(Babble(talkers, noise.talkers))
        else:
            sources.append(ColouredNoise(EXPONENTS[colour]))

    return tuple(sources)


def recordings_of_list(
    section: str, data_list: str, data_type: DataType, conf: DatasetConf, channel: Channel = "mix"
) -> Recordings:
    """Return the recordings of a list that a section of `dataset_conf` names.

    A warning names recordings that cannot be used.

    Raises:
        ListError: the list cannot be used.
    """
    try:
        corpus = open_list(data_list, data_type)
    except (ListError, FileNotFoundError) as error:
        raise ListError(f"dataset_conf.{section}.data_list: {error}") from None

    if corpus.bad:
        named = listed([f"{key}: {reason}" for key, reason in corpus.bad], NAMED, "; ")
        total = corpus.num_samples + len(corpus.bad)
        warn_once(f"{data_list}: {len(corpus.bad)} of {total} recordings are left out: {named}")

    return Recordings(corpus, conf.resample_conf.resample_rate, channel, by_key=True)


def _training_recordings(key: str, conf: DatasetConf, corpus: Corpus | None) -> Recordings:
    """Return the training data as recordings that are mixed into its utterances.

    Args:
        key: the key of `dataset_conf` that asks for them, for messages.

    Raises:
        ConfigError: there is no training data, or its audio cannot be read in random order.
    """
    if corpus is None:
        raise ConfigError(f"dataset_conf.{key}: the chain was built without the training data")

    if "features" in corpus.kinds:
        raise ConfigError(
            f"dataset_conf.{key}: it needs audio, and {corpus.data_list} has stored features; give "
            "a list"
        )

    if corpus.is_remote:
        raise ConfigError(
            f"dataset_conf.{key}: it reads utterances of {corpus.data_list} in random order, which "
            "is slow because their audio is remote; give a data_list, or copy the audio to a local "
            "disk"
        )

    # An order by key would take memory for every utterance of the training data.
    return Recordings(
        corpus, conf.resample_conf.resample_rate, conf.singal_channel_conf.channel, by_key=False
    )
