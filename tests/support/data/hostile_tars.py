"""Tars that a stranger could send, or that damage could leave: one between two sound samples
each.
"""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from dataclasses import dataclass

from tests.support.data.tars import wav

AUDIO = wav(0.1)
END = bytes(1024)


def header(name, size=0, kind=b"0", link="", size_field=None):
    """One header block with a valid checksum; `name` may be bytes, and `size_field` any 12
    bytes.
    """
    info = tarfile.TarInfo("")
    info.size, info.type, info.linkname = size, kind, link
    block = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    name = name if isinstance(name, bytes) else name.encode()
    block[: len(name)] = name
    if size_field is not None:
        block[124:136] = size_field
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def member(name, data, kind=b"0"):
    data = data.encode() if isinstance(data, str) else data
    return header(name, len(data), kind) + data + bytes(-len(data) % 512)


def sample(key):
    return member(f"{key}.txt", f"text of {key}") + member(f"{key}.wav", AUDIO)


def pax(*records):
    return member("pax", b"".join(records), b"x")


def sized(field):
    """The sample `lost`, whose audio states a size with this field."""
    data = AUDIO + bytes(-len(AUDIO) % 512)
    return member("lost.txt", "text") + header("lost.wav", size_field=field.ljust(12, b"\0")) + data


def extended(*before):
    """The sample `lost`, with these headers before its audio."""
    return member("lost.txt", "text") + b"".join(before) + member("lost.wav", AUDIO)


def with_json(text):
    """The sample `lost` with its text in JSON."""
    return member("lost.json", text) + member("lost.wav", AUDIO)


def replaced(*parts):
    """A text without the audio `lost`, and other members in its place."""
    return member("lost.txt", "text") + b"".join(parts)


def long_name(name):
    return member("././@LongLink", name, b"L")


def link(name, target, kind=b"2"):
    return header(name, kind=kind, link=target)


def ring(count):
    """Symbolic links from each to the next, and from the last to the first."""
    return b"".join(
        link(f"ring{number}.wav", f"ring{(number + 1) % count}.wav") for number in range(count)
    )


def sparse(extensions):
    block = bytearray(header("lost.wav", 512, b"S"))
    block[482] = 1
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + (bytes(504) + b"\1" + bytes(7)) * extensions + bytes(512) + bytes(512)


def zipped(name="x"):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"{name}.txt", "text")
        archive.writestr(f"{name}.wav", AUDIO)
    return buffer.getvalue()


@dataclass(frozen=True)
class Hostile:
    """A tar, and what must be said about it."""

    middle: bytes
    """Between the samples `first` and `after`."""
    kept: tuple[str, ...] = ("first", "after")
    """Keys of the samples that can be read."""
    named: tuple[str, ...] = ("lost",)
    """Keys or members that a finding names; TAR is the tar itself."""
    says: str = ""
    """Part of a reason."""

    def content(self):
        return sample("first") + self.middle + sample("after") + END


TAR = "the tar"


@dataclass(frozen=True)
class Whole(Hostile):
    """A tar with other content than a middle between two samples."""

    def content(self):
        return self.middle


NONE: tuple[str, ...] = ()
SIZE = {
    "negative_octal": (b"-0000000512", "no valid size"),
    "negative_binary": (b"\xff" * 12, "no valid size"),
    "minus_one_block": (b"\xff" * 10 + b"\xfe\0", "no valid size"),
    "largest_binary": (b"\x80" + b"\xff" * 11, "cut short"),
    "eight_exabytes": (b"\x80\0\0\0\x80" + bytes(7), "cut short"),
    "largest_octal": (b"77777777777", "cut short"),
    "letters": (b"abcdefghijk", "no valid size"),
    "hexadecimal": (b"0x00000010", "no valid size"),
    "underscores": (b"1_000", "no valid size"),
    "digits_of_ten": (b"999", "no valid size"),
    "a_sign": (b"+0000000512", "no valid size"),
}
PAX = {
    "digits": ([b"9" * 200_000 + b" path=a\n"], "pax header is damaged"),
    "length_zero": ([b"0 path=a\n"], "pax header is damaged"),
    "length_beyond": ([b"99 path=a\n"], "pax header is damaged"),
    "no_equals": ([b"10 pathaaa\n"], "pax header is damaged"),
    "negative_size": ([b"13 size=-512\n"], "no valid size"),
    "size_of_400_digits": ([b"410 size=" + b"9" * 400 + b"\n"], "no valid size"),
    "size_of_18_digits": ([b"27 size=" + b"9" * 18 + b"\n"], "cut short"),
    "zero_byte_in_name": ([b"15 path=a\0b.wa\n"], "holds a zero byte"),
    "name_not_utf8": ([b"15 path=\xff\xfe.wav\n"], "not UTF-8"),
    "endless": ([b"a" * 2_000_000], "extended header has 2000000 bytes"),
    "sparse": ([b"22 GNU.sparse.major=1\n"], "sparse"),
}
EXTENDED = {
    "pax_beyond_the_end": [header("pax", 10**9, b"x")],
    "pax_of_negative_size": [header("pax", kind=b"x", size_field=b"\xff" * 12)],
    "long_name_of_negative_size": [header("././@LongLink", kind=b"L", size_field=b"-0000000512\0")],
    "long_name_beyond_the_end": [header("././@LongLink", kind=b"L", size_field=b"77777777777\0")],
    "long_name_of_2_mb": [long_name(b"n" * 2_000_000)],
    "empty_long_name": [long_name(b"")],
    "long_name_not_utf8": [long_name(b"\xff.wav\0")],
    "global_digits": [member("pax", b"9" * 200_000, b"g")],
}
PACKED = {
    "gzip": (gzip.compress(sample("first") + END), "name it .tar.gz"),
    "bzip2": (bz2.compress(sample("first") + END), "bunzip2"),
    "xz": (lzma.compress(sample("first") + END), "xz -d"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(range(200)), "zstd -d"),
    "lz4": (b"\x04\x22\x4d\x18" + bytes(range(200)), "lz4 -d"),
    "lzip": (b"LZIP\1" + bytes(range(200)), "lzip -d"),
    "zip": (zipped(), "tar --sort=name -cf ../NAME.tar *"),
    "7z": (b"7z\xbc\xaf\x27\x1c" + bytes(range(200)), "7z x"),
    "rar": (b"Rar!\x1a\7" + bytes(range(200)), "unrar x"),
    "parquet": (b"PAR1" + bytes(range(200)), "name it .parquet"),
}
"""Files that are no plain tars, and what to do with them."""
APART = {
    "audio_before_texts": (("lost.wav", "other.wav", "lost.txt", "other.txt"), "--sort=name"),
    "texts_before_audio": (("lost.txt", "other.txt", "lost.wav", "other.wav"), "--sort=name"),
    "three_parts": (("lost.wav", "other.wav", "lost.txt", "other.txt", "lost.spk"), "--sort=name"),
    "folders": (("wav/lost.wav", "wav/o.wav", "txt/lost.txt", "txt/o.txt"), "wav/ and txt/"),
    "a_folder": (("lost.wav", "o.wav", "txt/lost.txt", "txt/o.txt"), "./ and txt/"),
}
"""Names of members in an order in which audio and text of a sample are apart; what is said."""


def apart(names):
    return b"".join(member(name, AUDIO if name.endswith("wav") else "text") for name in names)


TARS: dict[str, Hostile] = {
    **{name: Whole(content, NONE, (TAR,), says) for name, (content, says) in PACKED.items()},
    **{
        name: Hostile(apart(names), named=(names[0].rpartition(".")[0],), says=says)
        for name, (names, says) in APART.items()
    },
    "texts_in_json_apart": Hostile(
        member("lost.wav", AUDIO) + sample("between") + member("lost.json", '{"text": "a"}'),
        ("first", "between", "after"),
        says="not next to each other",
    ),
    "text_apart_of_no_audio": Hostile(
        member("lost.txt", "a") + sample("between") + member("lost.spk", "b"),
        ("first", "between", "after"),
        says="no audio",
    ),
    "apart_twice": Hostile(
        apart(("lost.wav", "o.wav", "lost.txt", "o.txt", "lost.wav")), says="no text"
    ),
    "packed_tar_between": Hostile(replaced(bz2.compress(sample("in"))), named=(TAR, "lost")),
    **{f"size_{name}": Hostile(sized(field), says=says) for name, (field, says) in SIZE.items()},
    **{
        f"pax_{name}": Hostile(extended(pax(*records)), says=says)
        for name, (records, says) in PAX.items()
    },
    **{name: Hostile(extended(*parts)) for name, parts in EXTENDED.items()},
    "chained_long_names": Hostile(
        extended(*[long_name("lost.wav")] * 3000), ("first", "lost", "after"), NONE
    ),
    "chained_pax_headers": Hostile(extended(*[pax(b"9 path=a\n")] * 3000), says="no audio"),
    "long_names_at_the_end": Whole(
        sample("first") + long_name("lost.wav") * 3000 + END, ("first",), (TAR,)
    ),
    "sparse": Hostile(replaced(sparse(1)), says="sparse"),
    "sparse_without_end": Whole(
        sample("first") + replaced(sparse(3000)), ("first",), ("lost", "lost.wav")
    ),
    "ring_of_links": Hostile(replaced(ring(5000)), named=("lost", "ring0.wav", "ring4999.wav")),
    "link_outside": Hostile(replaced(link("lost.wav", "/etc/passwd")), says="not in the tar"),
    "link_upward": Hostile(
        replaced(link("lost.wav", "../" * 30 + "first.txt")), says="not in the tar"
    ),
    "hard_link_to_nothing": Hostile(replaced(link("lost.wav", "nowhere.wav", b"1"))),
    "character_device": Hostile(replaced(header("lost.wav", kind=b"3")), says="type 3"),
    "block_device": Hostile(replaced(header("lost.wav", 10**6, b"4")), says="type 4"),
    "fifo": Hostile(replaced(header("lost.wav", kind=b"6")), says="type 6"),
    "unknown_type": Hostile(replaced(member("lost.wav", AUDIO, b"Q")), says="type Q"),
    "folder_with_a_size": Hostile(replaced(header("lost.wav", 10**6, b"5"))),
    "tail_of_zeros": Whole(sample("first") + bytes(200_000), ("first",), (TAR,), "bytes of zeros"),
    "cut_in_padding": Whole(
        (sample("first") + sample("last"))[:-300], ("first", "last"), (TAR,), "in the padding"
    ),
    "cut_in_data": Whole(
        (sample("first") + sample("lost"))[:-900], ("first",), ("lost", "lost.wav"), "cut short"
    ),
    "cut_in_header": Whole(
        (sample("first") + sample("lost"))[:-2400], ("first",), (TAR, "lost"), "damaged"
    ),
    "cut_before_the_end": Whole(sample("first"), ("first",), (TAR,), "without an end mark"),
    "garbage_between": Hostile(
        replaced(bytes(range(1, 256)) * 10), named=(TAR, "lost"), says="damaged"
    ),
    "garbage_alone": Whole(b"<html>404</html>" * 100, NONE, (TAR,), "damaged at byte 0"),
    "marks_without_headers": Hostile(
        replaced(b"ustar" * 100_000), named=(TAR, "lost"), says="damaged"
    ),
    "zeros_between": Hostile(replaced(bytes(20480)), named=(TAR, "lost"), says="members behind it"),
    "garbage_behind_the_end": Whole(
        sample("first") + END + b"x" * 99, ("first",), (TAR,), "behind an end mark"
    ),
    "empty": Whole(b"", NONE, (TAR,), "empty"),
    "only_zeros": Whole(bytes(100_000), NONE, (TAR,), "bytes of zeros"),
    "equal_names": Hostile(
        extended(member("lost.wav", AUDIO)), says="two members with the field wav"
    ),
    "name_not_utf8": Hostile(
        replaced(member(b"\xff\xfe.wav", AUDIO)), named=("lost", "\\udcff\\udcfe.wav")
    ),
    "empty_name": Hostile(replaced(member("", AUDIO)), says="its name is empty"),
    "tar_in_a_tar": Hostile(replaced(member("lost.tar", sample("inner") + END)), says="no audio"),
    "audio_without_samples": Hostile(replaced(member("lost.wav", b"RIFF" + bytes(2000)))),
    "text_not_utf8": Hostile(
        member("lost.txt", b"\xff") + member("lost.wav", AUDIO), says="not UTF-8"
    ),
    "json_nested_a_little": Hostile(
        with_json(f'{{"text": "a", "x": {"[" * 99 + "]" * 99}}}'), ("first", "lost", "after"), NONE
    ),
    "json_surrogate": Hostile(with_json('{"text": "\\ud800"}'), says="surrogates not allowed"),
    "json_digits": Hostile(with_json('{"text": "a", "x": ' + "9" * 5000 + "}"), says="JSON"),
    "json_nested": Hostile(
        member("lost.json", b"[" * 100_000) + member("lost.wav", AUDIO), says="JSON"
    ),
}
