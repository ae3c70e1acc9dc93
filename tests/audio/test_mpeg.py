"""Headers of mp3 frames and tags, by the tables of ISO/IEC 11172-3 and 13818-3."""

import itertools

import pytest

from wenet_uio.audio.mpeg import end_of_id3, frame_of

MPEG1, MPEG2, MPEG25, RESERVED_VERSION = 3, 2, 0, 1


def header(version, bit_rate, rate, padding=0):
    """The first bytes of a stereo frame of layer III; all but `padding` are indexes of tables."""
    return bytes([0xFF, 0xE3 | version << 3, bit_rate << 4 | rate << 2 | padding << 1, 0])


@pytest.mark.parametrize(
    ("version", "bit_rate", "rate", "size", "samples", "hertz"),
    [
        (MPEG1, 9, 0, 417, 1152, 44100),
        (MPEG1, 14, 1, 960, 1152, 48000),
        (MPEG1, 1, 2, 144, 1152, 32000),
        (MPEG2, 8, 0, 208, 576, 22050),
        (MPEG2, 14, 1, 480, 576, 24000),
        (MPEG2, 4, 2, 144, 576, 16000),
        (MPEG25, 4, 0, 208, 576, 11025),
        (MPEG25, 1, 2, 72, 576, 8000),
    ],
)
def test_a_frame_has_the_bytes_of_its_samples_at_its_bit_rate(
    version, bit_rate, rate, size, samples, hertz
):
    for padding in (0, 1):
        frame = frame_of(header(version, bit_rate, rate, padding))
        assert (frame.size, frame.samples, frame.rate) == (size + padding, samples, hertz)


def test_a_header_with_a_reserved_value_is_no_frame():
    for version, bit_rate, rate in itertools.product(range(4), range(16), range(4)):
        is_reserved = version == RESERVED_VERSION or bit_rate in (0, 15) or rate == 3
        assert (frame_of(header(version, bit_rate, rate)) is None) == is_reserved


@pytest.mark.parametrize("size", [0, 1, 127, 128, 20_000, (3 << 21) + 5, (1 << 28) - 1])
def test_the_size_of_an_id3_tag_has_seven_bits_a_byte(size):
    tag = b"ID3\x03\0\0" + bytes(size >> shift & 0x7F for shift in (21, 14, 7, 0))
    assert end_of_id3(b"before" + tag, 6) == 6 + 10 + size
    with_footer = b"ID3\x04\0\x10" + tag[6:]
    assert end_of_id3(with_footer, 0) == 10 + size + 10
