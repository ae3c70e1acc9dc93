"""Frames of mp3: where the parts of a file are, and how many samples each of them has.

A file without a Xing header (a pipe cannot write one) states no length, and a file of joined parts
states the length of its first part. Both are walked frame by frame, which takes about 1 µs a frame
of 24 to 48 ms.

Sources: ISO/IEC 11172-3 and 13818-3 for the frame header; for the header of length the layout that
Xing, LAME and FFmpeg write.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from wenet_uio.audio.decoders import AudioError, AudioInfo

ID3 = b"ID3"
ID3_HEADER = 10
"""Bytes."""
ID3_V1 = 128
"""Bytes of the tag at the end of a file, which begins with TAG."""
APE = b"APETAGEX"
INFO = (b"Xing", b"Info")
"""Tags of a frame with the length of what follows; Info is that of constant bit rate."""
MPEG1_KBITS = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0)
MPEG2_KBITS = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0)
"""kbit/s by index, of layer III in MPEG 1, and in MPEG 2 and 2.5; 0 is no bit rate, or any."""
MPEG1 = 3
"""The version of MPEG 1 in a header."""
RATES = {
    3: (44100, 48000, 32000, 0),
    2: (22050, 24000, 16000, 0),
    1: (0, 0, 0, 0),
    0: (11025, 12000, 8000, 0),
}
"""{version in the header: Hz by index}: MPEG 1, 2, none and 2.5."""
DECODER_DELAY = 529
"""Samples by which a decoder of layer III is late."""
FIRST_BYTES = 200
"""Bytes of a frame that hold a header of length and LAME's tag."""
SLACK = 2
"""Frames by which an encoder's count may be wrong: some count the frame of the header itself."""
MIDDLE_BIT_RATE = 9
"""Index of a bit rate whose frames have room for a header of length."""


class Frame(NamedTuple):
    """What the header of a frame says."""

    size: int
    """Bytes."""
    samples: int
    rate: int
    """Hz."""
    side_info: int
    """Bytes between the header and the data."""

    @property
    def info_offset(self) -> int:
        """Bytes of a frame before the tag of a header of length."""
        return 4 + self.side_info


class Part(NamedTuple):
    """Frames that one encoder wrote one after the other."""

    start: int
    """Byte of the first frame."""
    end: int
    frames: int
    """Number of frames with sound."""
    has_info: bool
    """The first frame is a header with the true length."""
    num_samples: int
    is_constant: bool
    """All frames have one bit rate."""


class Info(NamedTuple):
    """A header of length; None where it has no such field."""

    frames: int | None
    size: int | None
    """Bytes from the frame of the header to the end."""


@lru_cache(maxsize=1024)
def frame_of(header: bytes) -> Frame | None:
    """Parse the four bytes of a frame header; None if they are no header of layer III."""
    # 11 bits of sync, 2 of the version, 2 of the layer (01 is III), 1 of the checksum.
    if len(header) < 4 or header[0] != 0xFF or header[1] & 0xE6 != 0xE2:
        return None

    # 4 bits of the bit rate, 2 of the sample rate, 1 of the padding, and 2 of the channel mode.
    version = header[1] >> 3 & 3
    bit_rate_index = header[2] >> 4
    rate_index = header[2] >> 2 & 3
    padding = header[2] >> 1 & 1
    is_mono = header[3] >> 6 == 3

    if version == MPEG1:
        samples = 1152
        kbits = MPEG1_KBITS[bit_rate_index]
        side_info = 17 if is_mono else 32
    else:
        samples = 576
        kbits = MPEG2_KBITS[bit_rate_index]
        side_info = 9 if is_mono else 17

    sample_rate = RATES[version][rate_index]
    if not sample_rate or not kbits:
        return None

    # A frame has the bytes that its samples take at its bit rate, and at times one of padding.
    size = samples // 8 * 1000 * kbits // sample_rate + padding
    return Frame(size, samples, sample_rate, side_info)


def end_of_id3(data: bytes, offset: int) -> int:
    """Return the first byte after an ID3v2 tag at `offset`."""
    # Byte 5 has flags. The four bytes after it are the size; the highest bit of each is not used.
    flags, *size_bytes = data[offset + 5 : offset + ID3_HEADER]
    size = 0
    for byte in size_bytes:
        size = size << 7 | byte

    has_footer = bool(flags & 0x10)  # as long as the header
    footer_bytes = ID3_HEADER if has_footer else 0
    return offset + ID3_HEADER + size + footer_bytes


def info_of(data: bytes, offset: int, frame: Frame) -> Info | None:
    """Return the header of length (Xing, Info) in the frame at `offset`; None if the frame has
    sound.
    """
    start = offset + frame.info_offset
    if data[start : start + 4] not in INFO:
        # The header of Fraunhofer is always 32 bytes after that of the frame. It is not parsed.
        is_fraunhofer = data[offset + 36 : offset + 40] == b"VBRI"
        return Info(None, None) if is_fraunhofer else None

    # A flag says whether the number of frames follows, another whether the number of bytes does.
    flags = int.from_bytes(data[start + 4 : start + 8], "big")
    field = start + 8
    frames = size = None
    if flags & 1:
        frames = int.from_bytes(data[field : field + 4], "big")
        field += 4
    if flags & 2:
        size = int.from_bytes(data[field : field + 4], "big")
    return Info(frames, size)


def stated_length(head: bytes, size: int) -> AudioInfo | None:
    """Return the length and format that the header of length at the beginning of an mp3 states;
    None if there is none, or if it does not cover all of the file.

    The samples are those that libmpg123 gives: without the delay of encoder and decoder, and
    without the silence at the end, as LAME's tag states both.

    Args:
        head: FIRST_BYTES, from the first frame on.
        size: bytes from the first frame to the end of the file.
    """
    frame = frame_of(head[:4])
    info = info_of(head, 0, frame) if frame else None
    if frame is None or info is None or not info.frames or not info.size:
        return None

    # A tag ID3v1 may follow the frames, and nothing else.
    bytes_after_frames = size - info.size
    if not 0 <= bytes_after_frames <= ID3_V1:
        return None

    # Two flags say whether a table of 100 bytes and a quality of 4 come before LAME's tag.
    (flags,) = struct.unpack_from(">I", head, frame.info_offset + 4)
    table_bytes = 100 if flags & 4 else 0
    quality_bytes = 4 if flags & 8 else 0
    lame_tag = frame.info_offset + 16 + table_bytes + quality_bytes

    # LAME's tag has 12 bits of the encoder's delay, and 12 of the samples that fill the last frame.
    delays = int.from_bytes(head[lame_tag + 21 : lame_tag + 24], "big")
    encoder_delay = delays >> 12
    filling = delays & 0xFFF

    # Left out are both delays at the start, and at the end the filling beyond the decoder's delay.
    silence = encoder_delay + max(filling, DECODER_DELAY)
    num_samples = max(0, info.frames * frame.samples - silence)
    channels = 1 if head[3] >> 6 == 3 else 2
    return AudioInfo(num_samples, frame.rate, channels)


def parts_of(data: bytes) -> list[Part]:
    """Return the parts of an mp3 that may be joined of several files, in their order.

    A part begins with a header of length, or behind the last frame that such a header states.

    Raises:
        AudioError: a part ends before the end that its header states.
    """
    parts: list[Part] = []
    start = end = num_samples = 0
    stated: int | None = None  # frames that the header of the part states
    frame_sizes: list[int] = []  # bytes of the frames with sound of the part

    def add_part() -> None:
        """Add the part that ends before the current frame, if it has frames."""
        frames = len(frame_sizes)
        if not frames:
            return
        if stated is not None and frames < stated - SLACK:
            raise AudioError(f"cut short: its header claims {stated} frames, the file has {frames}")

        # Padding makes a frame one byte longer.
        is_constant = max(frame_sizes) - min(frame_sizes) <= 1
        parts.append(Part(start, end, frames, stated is not None, num_samples, is_constant))

    for offset, frame in _walk_frames(data):
        info = info_of(data, offset, frame)
        frame_end = offset + frame.size

        is_past_its_part = stated is not None and len(frame_sizes) >= stated + SLACK
        is_first = not frame_sizes and not stated
        if info is not None or is_past_its_part or is_first:
            add_part()
            num_samples = 0
            frame_sizes = []
            stated = None if info is None else info.frames
            # A header without a number of frames is left out, like one of Fraunhofer.
            is_left_out = info is not None and not stated
            start = frame_end if is_left_out else offset

        if info is None:
            num_samples += frame.samples
            frame_sizes.append(frame.size)
        end = frame_end

    add_part()
    return parts


def _walk_frames(data: bytes) -> Iterator[tuple[int, Frame]]:
    """Yield offset and header of each whole frame of an mp3; tags, and bytes that are no frame, are
    passed over.
    """
    offset = 0
    is_header_expected = True  # the frame or tag before ends here, so a header is no coincidence
    while offset + 4 <= len(data):
        frame = frame_of(data[offset : offset + 4])
        end = offset + frame.size if frame else 0
        # Elsewhere, bytes that look like a header are one if a header, a tag or the end follows.
        if frame and (is_header_expected or _is_boundary(data, end)):
            if end > len(data):
                return
            yield offset, frame
            offset = end
            is_header_expected = True
        else:
            offset, is_header_expected = _skip_no_frame(data, offset)


def _skip_no_frame(data: bytes, offset: int) -> tuple[int, bool]:
    """Return the next byte at which a frame or a tag may begin, after bytes that are no frame; and
    whether a frame is expected there, because a tag ends there.
    """
    if data.startswith(ID3, offset) and offset + ID3_HEADER <= len(data):
        return end_of_id3(data, offset), True

    next_offset = len(data)
    for mark in (b"\xff", ID3):  # of a frame, and of a tag
        mark_offset = data.find(mark, offset + 1)
        if mark_offset >= 0:
            next_offset = min(next_offset, mark_offset)
    return next_offset, False


def _is_boundary(data: bytes, offset: int) -> bool:
    """Tell whether a frame, a tag or the end of the file is at `offset`."""
    is_tag = data.startswith((ID3, b"TAG", APE), offset)
    return offset == len(data) or is_tag or frame_of(data[offset : offset + 4]) is not None


def with_length(data: bytes, part: Part) -> bytes:
    """Return the bytes of a part of an mp3 so that libsndfile reads all of it.

    libsndfile needs a header of length if the frames have several bit rates. It is added if the part
    has none.
    """
    sound = data[part.start : part.end]
    if part.has_info or part.is_constant:
        return sound

    # The frame of the header is like the first one, without checksum (the last bit of byte 1) and
    # padding (a bit of byte 2), and with a bit rate that leaves room for the header.
    sample_rate_bits = sound[2] & 0x0C
    header = bytes((sound[0], sound[1] | 1, MIDDLE_BIT_RATE << 4 | sample_rate_bits, sound[3]))
    frame = frame_of(header)
    assert frame is not None
    # The flags 3 say that both numbers follow.
    numbers = struct.pack(">III", 3, part.frames, frame.size + len(sound))
    content = header + bytes(frame.side_info) + INFO[0] + numbers
    return content.ljust(frame.size, b"\0") + sound
