"""Open audio and stored features: headers, waveforms and matrices, as numpy arrays.

No other module of the package opens them.

The content of a file decides how it is read, not its name. Plain 16-bit wav needs no decoding.
libsndfile decodes other wav, flac, ogg, opus, mp3, aiff, au, caf, w64 and sphere. PyAV decodes m4a,
aac, wma, webm, amr, and flac that was written to a pipe. Memory and time
depend on the data in the file, not on what a header claims.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np
import soundfile

from wenet_uio.audio.claimed_size import claim, claim_of, is_whole
from wenet_uio.audio.decoders import (
    FRAME_RATE,
    MOST_SAMPLES,
    ArrayDecoder,
    AudioError,
    AudioInfo,
    AvDecoder,
    Channel,
    Decoder,
    Excerpt,
    Opened,
    Samples,
    SndfileDecoder,
    WavDecoder,
)
from wenet_uio.audio.features import (
    KALDI,
    FeatureDecoder,
    Place,
    bytes_between,
    extent_in_archive,
    features_of_array,
    kaldi_features,
    place_of,
)
from wenet_uio.audio.flac import MARK as FLAC
from wenet_uio.audio.interruption import InterruptionError, check_interruption
from wenet_uio.audio.joined import JoinableDecoder, open_flac, open_mp3, open_ogg, stream_of
from wenet_uio.audio.mpeg import ID3, ID3_HEADER, end_of_id3, frame_of
from wenet_uio.audio.ogg import MARK as OGG
from wenet_uio.audio.ogg import links_of
from wenet_uio.audio.partial_file import Encoded, PartialFile, in_memory
from wenet_uio.audio.tensors import is_features, is_tensor, load_array, samples_of_array
from wenet_uio.base.crashes import rehearse

Source = bytes | memoryview | str | Samples | PartialFile | Opened
"""Encoded audio, or the path of an audio file, or samples, or a file in a store, or an opened recording;
or the place of a matrix in a Kaldi archive: `feats.ark:1234[0:99]`."""
SourceT = TypeVar("SourceT", bound=Source)
Options = ParamSpec("Options")
Result = TypeVar("Result")

SAMPLE_RATES = (1_000, 768_000)
"""Lowest and highest sample rate in Hz; a header with another rate is damaged."""
HEAD = 4096
"""Bytes; a plain wav file whose samples begin later is left to libsndfile."""
W64 = b"riff"
MEMORY_FILES = hasattr(os, "memfd_create")
"""Whether the system has files in memory, as Linux does."""
WAVE_FORMAT_PCM = 1
MOST_TAGS = 8
"""ID3 tags before audio; a file of nothing but tags is not read to its end."""
MOST_CHANNELS = 1024
"""The limit of libsndfile."""
WHOLE = Place("")
"""The place of bytes in memory: all of them."""
READ_WHOLE = (".m4a", ".mp4", ".aac", ".webm", ".mka", ".mkv", ".wma", ".ogg", ".opus", ".ts")
"""Suffixes of formats in which all of a file tells its length."""
COUNTED = (*READ_WHOLE, ".mp3")
"""Suffixes of formats whose samples may have to be counted, which takes as long as decoding. A long
recording is asked for once for each of its segments, so its length is remembered."""
MOST_COUNTED = 1024
"""Recordings whose length is remembered."""
_counted: dict[tuple[str, int, int], AudioInfo] = {}
"""{path, bytes and time of change in ns of a recording of COUNTED: its length}, the oldest first."""
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of opening a file that are not the fault of the file."""
FAULTS_OF_OURS = (AssertionError, AttributeError, ImportError, NameError, TypeError)
"""Exceptions that are faults of this package, not of the file."""
AV_CONTAINERS = (
    (4, b"ftyp", "mov"),  # m4a, mp4, 3gp
    (0, b"\x1a\x45\xdf\xa3", "matroska"),  # webm
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "asf"),  # wma
    (0, b"\xff\xf1", "aac"),
    (0, b"\xff\xf9", "aac"),
    (0, b"\x0b\x77", "ac3"),
    (0, b"#!AMR", "amr"),
    (0, b"OggS", "ogg"),  # with a codec that libsndfile does not decode
    (0, b"fLaC", "flac"),  # written to a pipe, without its length
    (8, b"AVI ", "avi"),
    (0, b"RIFF", "wav"),  # with a codec that libsndfile does not decode
    (0, b"BW64", "wav"),
    (0, b"FLV", "flv"),
    (0, b"wvpk", "wv"),
    (0, b"TTA1", "tta"),
    (0, b"MAC ", "ape"),
    (188, b"\x47", "mpegts"),  # a packet has 188 bytes and begins so
)
"""Offset and bytes that identify a format, and the FFmpeg demuxer for it. No other demuxer is ever
used: some of them open further files and URLs."""
TOLD_BY_HEADER = ("wav", "flac")
"""Demuxers of formats whose header may tell the length. All of the others is read."""


def decodes(
    function: Callable[Concatenate[SourceT, Options], Result],
) -> Callable[Concatenate[SourceT, Options], Result]:
    """Decorate a function that decodes its first argument.

    In a careful process (`wenet_uio.base.crashes`) the function raises AudioError if a decoder crashes;
    in other processes the process crashes.
    """

    @wraps(function)
    def decode(source: SourceT, *args: Options.args, **options: Options.kwargs) -> Result:
        """Call `function`, first in a process of its own if this process is careful."""
        crash = rehearse(partial(function, source, *args, **options))
        if crash:
            raise AudioError(f"{_path_prefix(source)}{describe_crash(crash)}")

        return function(source, *args, **options)

    return decode


def describe_crash(crash: str) -> str:
    """Say that a decoder crashed, and how, such as SIGSEGV."""
    return f"the decoder crashed its process ({crash}); remove or convert the audio"


def _path_prefix(source: Source) -> str:
    """Return what an error message begins with: the path of a file, nothing for bytes."""
    return f"{source}: " if isinstance(source, str) else ""


@decodes
def audio_info(source: Source, most_seconds: float | None = None) -> AudioInfo:
    """Return the number of samples, sample rate and channels.

    Args:
        most_seconds: of all channels together; audio that must be decoded is decoded no further.
            If it is longer, its number of samples is too low, but makes more than these seconds.

    Audio is decoded only if its header does not tell its length. This process then remembers the
    length of a file (`COUNTED`) until the file changes.

    Of stored features: number of frames, FRAME_RATE, and features per frame.

    Raises:
        AudioError: the audio cannot be read, or has no samples.
    """
    # None: its length is not remembered
    key = _counted_key(source) if most_seconds is None else None
    if key is not None and key in _counted:
        return _counted[key]

    with _open_decoder(source) as decoder:
        if isinstance(decoder, AvDecoder) and most_seconds is not None:
            decoder.most_seconds = most_seconds
        info = decoder.info()
        if info.num_samples <= 0:
            raise AudioError(f"no samples ({info.sample_rate} Hz, {info.channels} channel(s))")
        if info.num_samples > MOST_SAMPLES:
            raise AudioError(f"more than {MOST_SAMPLES} samples; split it into shorter files")

    if key is not None:
        if len(_counted) >= MOST_COUNTED:
            oldest = next(iter(_counted))
            _counted.pop(oldest)
        _counted[key] = info
    return info


def _counted_key(source: Source) -> tuple[str, int, int] | None:
    """Return the key of a file in `_counted`; None if its length is not remembered."""
    if not (isinstance(source, str) and source.endswith(COUNTED)):
        return None
    try:
        status = os.stat(source)  # noqa: PTH116 - runs for every file that is indexed
    except OSError:
        return None
    return source, status.st_size, status.st_mtime_ns


def read_audio(
    source: Source,
    start: float = 0.0,
    end: float | None = None,
    channel: Channel | None = 0,
    *,
    keep_int16: bool = False,
) -> tuple[np.ndarray, int]:
    """Decode a segment of a waveform: (samples,), or (samples, channels) of all channels.

    `read_signal` explains the arguments. It returns stored features as well.

    Raises:
        AudioError: the audio cannot be read, is empty or damaged, does not have the channel, or is
            stored features.
    """
    waveform, rate = read_signal(source, start, end, channel, keep_int16=keep_int16)
    _check_is_audio(source, waveform, rate)
    return waveform, rate


def _check_is_audio(source: Source, signal: np.ndarray, rate: int) -> None:
    """Check that a signal is a waveform: stored features have FRAME_RATE, and no waveform has.

    Raises:
        AudioError: these are stored features.
    """
    if rate == FRAME_RATE:
        frames, dim = signal.shape
        raise AudioError(
            f"{_path_prefix(source)}stored features ({frames} frames of {dim}), where a waveform is "
            "needed"
        )


@decodes
def read_signal(
    source: Source,
    start: float = 0.0,
    end: float | None = None,
    channel: Channel | None = 0,
    *,
    keep_int16: bool = False,
) -> tuple[np.ndarray, int]:
    """Decode a segment: one channel, the mean of all channels, or all channels.

    Args:
        start: seconds.
        end: seconds; None is the end of the audio.
        channel: number from 0, or `mix`; None: all.
        keep_int16: return int16 if the audio is stored with 16 bits.

    Returns:
        the waveform (samples,), of all channels (samples, channels), as float32 on the scale of
        int16, and its sample rate in Hz; or stored features (frames, features) as float32, and
        FRAME_RATE.

    Raises:
        AudioError: the audio cannot be read, is empty or damaged, or does not have the channel.
    """
    with _open_decoder(source) as decoder:
        return _read_excerpt(decoder, Excerpt(start, end, channel, keep_int16)), decoder.sample_rate


def _read_excerpt(decoder: Decoder, excerpt: Excerpt) -> np.ndarray:
    """Read a segment.

    Raises:
        AudioError: the segment is empty or damaged, or the audio does not have the channel.
    """
    check_interruption()
    signal = decoder.read(excerpt)
    if not len(signal):
        end_text = "the end" if excerpt.end is None else f"{excerpt.end} s"
        raise AudioError(f"no samples between {excerpt.start} s and {end_text}")

    return signal


class AudioReader:
    """Reads many segments of one recording, the same samples as `read_audio`.

    Formats of FFmpeg can be decoded from their start only. As long as no segment begins before the
    last one, such a recording is decoded once, and the samples of one segment are kept. Other
    formats are opened for each segment.
    """

    def __init__(self, source: Source) -> None:
        """Open nothing yet."""
        self._source = source
        self._open = ExitStack()
        """Closes the decoder; empty if there is none."""
        self._decoder: AvDecoder | None = None

    def read(
        self, start: float, end: float | None, channel: Channel | None
    ) -> tuple[np.ndarray, int]:
        """Decode a segment; arguments, result and errors are those of `read_audio`."""
        if self._decoder is not None:
            first = round(start * self._decoder.sample_rate)
            if first < self._decoder.reads_from:
                self.close()

        # An error closes the decoder, and gets the path of the file.
        with self._open.pop_all() as opened:
            decoder = self._decoder or opened.enter_context(_open_decoder(self._source))
            self._decoder = None
            if isinstance(decoder, AvDecoder):
                decoder.keeps_samples = True

            waveform = _read_excerpt(decoder, Excerpt(start, end, channel))
            rate = decoder.sample_rate
            if isinstance(decoder, AvDecoder):
                self._decoder, self._open = decoder, opened.pop_all()

        _check_is_audio(self._source, waveform, rate)
        return waveform, rate

    def close(self) -> None:
        """Close the recording; it may be read again. A reader that nobody uses any more is closed."""
        self._decoder = None
        self._open.close()

    def __del__(self) -> None:
        self.close()


@contextmanager
def _open_decoder(source: Source) -> Iterator[Decoder]:
    """Open audio for a block.

    Errors of opening and of the block become AudioError with the path of the file. What is not the
    fault of the file is another error, with the path too.

    Raises:
        MemoryError, RuntimeError: memory runs out, or this package has a fault.
    """
    if isinstance(source, Samples):
        _check_rate(source.sample_rate)
        yield ArrayDecoder(source)
        return
    if isinstance(source, Opened):
        yield source.decoder
        return

    try:
        if isinstance(source, str):
            place = place_of(source)
            # A pipe or a folder would block, or raise an error that says less.
            if not stat.S_ISREG(os.stat(place.path).st_mode):  # noqa: PTH116 - runs for every file that is read
                raise AudioError("not a file")
            opened = open(place.path, "rb", buffering=0)  # noqa: SIM115 - closed below
        elif isinstance(source, PartialFile):
            place, opened = WHOLE, nullcontext(source)
        else:
            place, opened = WHOLE, nullcontext(memoryview(source))

        with opened as encoded, closing(_open_at(encoded, place)) as decoder:
            _check_rate(decoder.sample_rate)
            yield decoder
    except AudioError as error:
        raise AudioError(f"{_path_prefix(source)}{error}") from None
    except soundfile.LibsndfileError as error:
        raise AudioError(f"{_path_prefix(source)}{error.error_string}") from None
    except OSError as error:
        if error.errno in OUT_OF_RESOURCES:
            raise
        raise AudioError(f"{_path_prefix(source)}{error.strerror or error}") from error
    except InterruptionError:
        raise
    except MemoryError as error:
        raise MemoryError(f"{_path_prefix(source)}not enough memory to read it") from error
    except FAULTS_OF_OURS as error:
        raise RuntimeError(
            f"{_path_prefix(source)}a fault of wenet_uio, not of the file ({error!r})"
        ) from error
    except Exception as error:  # parsers of a damaged file raise errors of any type
        reason = " ".join(str(error).split())
        raise AudioError(
            f"{_path_prefix(source)}damaged ({type(error).__name__}: {reason})"
        ) from error


def _check_rate(rate: int) -> None:
    """Refuse the sample rate in Hz of a damaged header."""
    if rate != FRAME_RATE and not SAMPLE_RATES[0] <= rate <= SAMPLE_RATES[1]:
        raise AudioError(
            f"sample rate {rate} Hz is not within {SAMPLE_RATES[0]} to {SAMPLE_RATES[1]} Hz"
        )


def _open_at(encoded: Encoded, place: Place) -> Decoder:
    """Return a decoder for opened bytes, or for the object at a place in a Kaldi archive."""
    decoder = (
        _open_encoded(encoded) if place.offset is None else _open_in_archive(encoded, place.offset)
    )
    if place.is_whole:
        return decoder

    if not isinstance(decoder, FeatureDecoder):
        raise AudioError(
            "a range of frames in brackets, but this is audio; segments give times in seconds"
        )

    return decoder.part_at(place)


def _open_in_archive(encoded: Encoded, offset: int) -> Decoder:
    """Return a decoder for the object of a Kaldi archive at byte `offset`, a matrix or a wav."""
    size, _ = _size_and_head(encoded)
    first, end = extent_in_archive(encoded, offset, size)
    if bytes_between(encoded, first, first + len(KALDI)) == KALDI:
        return kaldi_features(encoded, first, end)
    return _open_encoded(memoryview(bytes_between(encoded, first, end)))


def is_array(encoded: bytes) -> bool:
    """Tell whether encoded bytes are read as an array or a tensor instead of as audio."""
    return is_tensor(encoded[:HEAD])


def _open_encoded(encoded: Encoded) -> Decoder:
    """Return a decoder for the format that the first bytes show."""
    size, head = _size_and_head(encoded)
    if head.startswith(KALDI):
        return kaldi_features(encoded, 0, size)
    if is_tensor(head):
        array = load_array(bytes_between(encoded, 0, size))
        if is_features(array):
            return features_of_array(array)
        return ArrayDecoder(samples_of_array(array))

    if head.startswith(ID3):
        start, tags = _end_of_tags(encoded)
        if tags > 1 or frame_of(bytes_between(encoded, start, start + 4)) is None:
            # Several tags, or a tag before another format than mp3: decoders do not skip them.
            untagged = memoryview(bytes_between(encoded, start, size))
            return _open_audio(untagged, *_size_and_head(untagged))

    return _open_audio(encoded, size, head)


def _open_audio(encoded: Encoded, size: int, head: bytes) -> Decoder:
    """Return a decoder for audio of `size` bytes that begins with `head`."""
    wav = _plain_wav(encoded, head, size)
    if wav is not None:
        return wav
    if _ffmpeg_demuxer(head) not in (None, *TOLD_BY_HEADER):
        encoded = in_memory(encoded)

    try:
        decoder = _sndfile_decoder(encoded, head, size)
        if decoder.is_believable:
            if isinstance(decoder, SndfileDecoder):
                decoder.is_whole = is_whole(claim_of(head, size))
            return decoder

        reason = f"its header claims {decoder.info().num_samples} samples in {size} bytes"
        decoder.close()
    except soundfile.LibsndfileError as error:
        reason = error.error_string

    return _open_by_pyav(encoded, head, size, reason)


def _end_of_tags(encoded: Encoded) -> tuple[int, int]:
    """Return the first byte after the ID3 tags at the start, and their number.

    Raises:
        AudioError: a tag is cut short.
    """
    start = 0
    for tags in range(MOST_TAGS):
        head = bytes_between(encoded, start, start + ID3_HEADER)
        if not head.startswith(ID3):
            return start, tags
        if len(head) < ID3_HEADER:
            raise AudioError("its ID3 tag is cut short")
        start += end_of_id3(head, 0)

    return start, MOST_TAGS


def _open_by_pyav(encoded: Encoded, head: bytes, size: int, reason: str) -> AvDecoder:
    """Return a decoder for a format of FFmpeg.

    Args:
        reason: why libsndfile does not read the audio.
    """
    container = _ffmpeg_demuxer(head)
    if container is None:
        raise AudioError(_explain_refusal(reason, head))
    if container == "ogg":
        links_of(bytes_between(encoded, 0, size))  # FFmpeg reads damaged pages

    stream = stream_of(encoded)
    stream.seek(0)
    try:
        return AvDecoder(stream, container, is_whole(claim_of(head, size)))
    except AudioError:
        if container != "wav":
            raise
        # A wav that libsndfile should have read is damaged: it says what is wrong with it.
        raise AudioError(_explain_refusal(reason, head)) from None


def _ffmpeg_demuxer(head: bytes) -> str | None:
    """Return FFmpeg's demuxer for a file that begins with `head`; None if there is none."""
    for offset, mark, container in AV_CONTAINERS:
        if head.startswith(mark, offset):
            # The mark of mpegts is one byte: it must begin the first packet, and the second.
            if container == "mpegts" and not head.startswith(mark):
                return None
            return container
    return None


def _sndfile_decoder(encoded: Encoded, head: bytes, size: int) -> SndfileDecoder | JoinableDecoder:
    """Return a decoder for a format of libsndfile."""
    if head.startswith(OGG):
        return open_ogg(encoded, size)
    if head.startswith(FLAC):
        return open_flac(encoded, size, head)

    start = end_of_id3(head, 0) if head.startswith(ID3) else 0
    first = head[start : start + 4] or bytes_between(encoded, start, start + 4)
    if frame_of(first) is not None:
        return open_mp3(encoded, size, head, start)
    if head.startswith(W64) and isinstance(encoded, (memoryview, PartialFile)) and MEMORY_FILES:
        # libsndfile reads W64 of other programs from files alone. This one is on no disk.
        file = os.fdopen(os.memfd_create("w64"), "w+b")
        file.write(bytes_between(encoded, 0, size))
        file.seek(0)
        return SndfileDecoder(file, size)

    return SndfileDecoder(stream_of(encoded), size)


def _size_and_head(encoded: Encoded) -> tuple[int, bytes]:
    """Return the number of bytes of encoded audio, and the first HEAD of them.

    Raises:
        AudioError: there are none.
    """
    if isinstance(encoded, PartialFile):
        size = encoded.size
    elif isinstance(encoded, memoryview):
        size = len(encoded)
    else:
        size = os.fstat(encoded.fileno()).st_size

    head = bytes_between(encoded, 0, HEAD)
    if not size:
        raise AudioError("empty: 0 bytes")

    return size, head


def _explain_refusal(reason: str, head: bytes) -> str:
    """Explain why audio cannot be read; for known formats also how to convert the audio."""
    if head.startswith(b"NIST_1A") and b"shorten" in head:
        return "sphere compressed with shorten: convert it with `sph2pipe -f wav IN OUT`"
    if b" \0B" in head:
        return (
            "a Kaldi archive of several matrices; name one of them by its byte, as feats.scp does "
            "(feats.ark:1234)"
        )
    if reason.startswith("Format not recognised"):
        return "no known format; samples without a header must be converted to wav first"

    return reason


def _plain_wav(encoded: Encoded, head: bytes, size: int) -> WavDecoder | None:
    """Return a decoder for 16-bit PCM with a short and valid header.

    None leaves the audio to libsndfile.
    """
    if head[:4] != b"RIFF" or head[8:12] != b"WAVE":
        return None

    # A chunk of RIFF is a name of 4 bytes, the number of its bytes, and these bytes.
    channels = rate = 0
    offset = 12  # the first chunk begins behind `RIFF`, the size of the file, and `WAVE`
    while offset + 8 <= len(head):
        name, chunk_bytes = struct.unpack_from("<4sI", head, offset)
        offset += 8
        if name == b"data":
            present_bytes = min(chunk_bytes, size - offset)
            if not channels or not present_bytes:
                return None

            decoder = WavDecoder(encoded, rate, channels, offset, present_bytes)
            decoder.is_whole = is_whole(claim(chunk_bytes, size, offset))
            return decoder

        if name == b"fmt " and offset + 16 <= len(head):
            encoding, channels, rate, _bytes_per_second, frame_bytes, bits = struct.unpack_from(
                "<HHIIHH", head, offset
            )
            is_pcm = (encoding, frame_bytes, bits) == (WAVE_FORMAT_PCM, 2 * channels, 16)
            if not is_pcm or channels > MOST_CHANNELS:
                return None

        offset += chunk_bytes + chunk_bytes % 2  # chunks begin at even bytes

    return None
