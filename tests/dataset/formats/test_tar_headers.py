import io
import mmap
import random
import subprocess
import tarfile

import pytest

from wenet_uio.dataset.formats.tar_headers import (
    LOOK_BACK,
    MOST_EXTENDED,
    HeaderError,
    member_before,
    parse_header,
)
from wenet_uio.dataset.formats.tar_members import read_members

LETTERS = "ab/é你."


def pax_record(key, value):
    """One record of a pax header; the length counts its own digits."""
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest) + 1
    while len(b"%d" % length) + len(rest) != length:
        length += 1
    return b"%d" % length + rest


def member(name, data=b"data", kind=tarfile.REGTYPE):
    """Header, data and padding of one member in the format of GNU; the name may be bytes."""
    info = tarfile.TarInfo("")
    info.size, info.type = len(data), kind
    header = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    name = name if isinstance(name, bytes) else name.encode()
    header[: len(name)] = name
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + data + bytes(-len(data) % 512)


def write(path, *parts):
    path.write_bytes(b"".join(parts) + bytes(1024))
    return str(path)


def as_tarfile(path):
    with tarfile.open(path, errors="surrogateescape") as tar:
        return [
            (item.name.removeprefix("./"), item.offset_data, item.size)
            for item in tar
            if item.isreg()
        ]


def as_read(path):
    members, bad = read_members(str(path))
    assert bad == []
    return [(item.name, item.offset, item.size) for item in members if not item.target]


@pytest.mark.parametrize("layout", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_are_those_that_tarfile_reads(tmp_path, layout):
    random.seed(layout)
    with tarfile.open(tmp_path / "a.tar", "w", format=layout) as tar:
        for number in range(300):
            longest = 60 if layout == tarfile.USTAR_FORMAT else 1500
            name = "".join(random.choices(LETTERS, k=random.choice([1, 20, 95, longest])))[:longest]
            info = tarfile.TarInfo(f"{number}{name.replace('//', '/').rstrip('/')}x")
            info.size, info.mtime = (
                random.choice([0, 1, 511, 512, 513, 5000]),
                random.random() * 1e9,
            )
            tar.addfile(info, io.BytesIO(random.randbytes(info.size)))
    assert as_read(tmp_path / "a.tar") == as_tarfile(tmp_path / "a.tar")
    assert len(as_read(tmp_path / "a.tar")) == 300


@pytest.mark.parametrize("layout", ["v7", "oldgnu", "gnu", "ustar", "posix"])
def test_members_are_those_that_the_tar_of_the_system_wrote(tmp_path, layout):
    source = tmp_path / "source"
    names = [
        "a.txt",
        "b.c.wav",
        "é你.txt",
        *([] if layout in ("v7", "ustar") else [f"{'d' * 120}/{'n' * 180}.txt"]),
    ]
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name * 100)
    subprocess.run(
        ["tar", "-c", f"--format={layout}", "-f", tmp_path / "a.tar", "-C", source, *names],
        check=True,
    )
    assert as_read(tmp_path / "a.tar") == as_tarfile(tmp_path / "a.tar")
    assert [name for name, _, _ in as_read(tmp_path / "a.tar")] == names
    data = (tmp_path / "a.tar").read_bytes()
    for name, offset, size in as_read(tmp_path / "a.tar"):
        assert member_before(data[max(0, offset - LOOK_BACK) : offset]) == (name, size)


def test_a_backup_of_gnu_tar_with_times_in_place_of_a_prefix_is_read(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    command = [
        "tar",
        "-c",
        "-g",
        tmp_path / "snapshot",
        "-V",
        "a label",
        "-f",
        tmp_path / "a.tar",
        "-C",
        tmp_path,
    ]
    subprocess.run([*command, "a.txt"], check=True)
    assert [name for name, _, _ in as_read(tmp_path / "a.tar")] == ["a.txt"]


def test_values_of_global_pax_headers_apply_to_all_members(tmp_path):
    common = member(
        "g", pax_record(b"comment", b"x") + pax_record(b"linkpath", b"y"), tarfile.XGLTYPE
    )
    path = write(tmp_path / "a.tar", common, member("a.txt"), member("b.txt"))
    assert [name for name, _, _ in as_read(path)] == ["a.txt", "b.txt"]


@pytest.mark.parametrize(
    ("extended", "reason"),
    [
        (
            member("x", b"9" * 200_000 + b" path=a\n", tarfile.XHDTYPE),
            "its pax header is damaged at byte 0",
        ),
        (member("x", b"4 a=\n", tarfile.XHDTYPE), "its pax header is damaged at byte 0"),
        (member("x", b"999 path=a.txt\n", tarfile.XHDTYPE), "its pax header is damaged at byte 0"),
        (
            member("x", pax_record(b"path", b"a\0b"), tarfile.XHDTYPE),
            "its name is empty or holds a zero byte",
        ),
        (
            member("x", pax_record(b"path", b""), tarfile.XHDTYPE),
            "its name is empty or holds a zero byte",
        ),
        (member("x", pax_record(b"path", b"\xff"), tarfile.XHDTYPE), "its name is not UTF-8"),
        (
            member("x", pax_record(b"size", b"-5"), tarfile.XHDTYPE),
            "its header states no valid size",
        ),
        (
            member("x", pax_record(b"size", b"9" * 400), tarfile.XHDTYPE),
            "its header states no valid size",
        ),
        (member("x", pax_record(b"size", b"9" * 18), tarfile.XHDTYPE), "cut short"),
        (
            member("L", b"n" * (MOST_EXTENDED + 1), tarfile.GNUTYPE_LONGNAME),
            "its extended header has 1048577 bytes",
        ),
        (member("L", b"", tarfile.GNUTYPE_LONGNAME), "its name is empty or holds a zero byte"),
    ],
)
def test_a_damaged_or_endless_extended_header_loses_its_member_alone(tmp_path, extended, reason):
    path = write(tmp_path / "a.tar", member("a.txt"), extended, member("b.txt"), member("c.txt"))
    members, bad = read_members(path)
    assert [item.name for item in members] == ["a.txt", "c.txt"]
    assert len(bad) == 1
    assert bad[0][1].startswith(reason)


def test_any_number_of_long_names_before_a_member_is_read(tmp_path):
    names = [
        member("L", b"name%d.txt" % number, tarfile.GNUTYPE_LONGNAME) for number in range(5000)
    ]
    assert [name for name, _, _ in as_read(write(tmp_path / "a.tar", *names, member("short")))] == [
        "name4999.txt"
    ]
    _, bad = read_members(write(tmp_path / "b.tar", member("a.txt"), *names))
    assert [reason for _, reason in bad] == [
        "damaged at byte 5121024 (no member behind an extended header)"
    ]


def test_sparse_members_in_every_format_and_devices_are_refused_by_name(tmp_path):
    with open(tmp_path / "holes.wav", "wb") as file:
        for part in range(30):  # more parts than one header has room for
            file.seek(part * 100_000)
            file.write(b"x" * 4096)
    (tmp_path / "after.txt").write_text("after")
    for layout in ("gnu", "oldgnu", "posix"):
        command = [
            "tar",
            "-c",
            "-S",
            f"--format={layout}",
            "-f",
            tmp_path / "a.tar",
            "-C",
            tmp_path,
        ]
        subprocess.run([*command, "holes.wav", "after.txt"], check=True)
        members, bad = read_members(str(tmp_path / "a.tar"))
        assert [item.name for item in members] == ["after.txt"]
        assert bad == [("holes.wav", "stored as a sparse file; pack it without --sparse")]
    devices = [member(f"device{kind}.wav", b"", b"%d" % kind) for kind in (3, 4, 6, 8)]
    members, bad = read_members(write(tmp_path / "b.tar", *devices, member("a.txt")))
    assert [item.name for item in members] == ["a.txt"]
    assert bad == [
        (f"device{kind}.wav", f"neither a file nor a link, but a member of type {kind}")
        for kind in (3, 4, 6, 8)
    ]


def test_old_headers_without_a_mark_and_with_signed_sums_are_read(tmp_path):
    header = bytearray(member("é.txt"))
    header[257:265] = bytes(8)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % (
        sum(header[:512]) - 256 * sum(byte > 127 for byte in header[:512])
    )
    assert [name for name, _, _ in as_read(write(tmp_path / "a.tar", bytes(header)))] == ["é.txt"]


@pytest.mark.parametrize("wrong", [-256, -1, 1, 256])
def test_a_sum_that_is_neither_signed_nor_unsigned_is_no_header(wrong):
    """One character of two bytes, 195 and 128: the signed sum is 512 less than the unsigned one."""
    header = bytearray(member("À.txt")[:512])
    header[148:156] = b" " * 8
    unsigned = sum(header)
    for right in (unsigned, unsigned - 512):
        header[148:156] = b"%06o\0 " % right
        assert parse_header(bytes(header)).name == "À.txt"
        header[148:156] = b"%06o\0 " % (right + wrong)
        with pytest.raises(HeaderError):
            parse_header(bytes(header))


def test_marks_without_headers_are_passed_over_quickly(tmp_path):
    path = write(tmp_path / "a.tar", b"ustar" * 400_000, bytes(240), member("a.txt"))
    members, bad = read_members(path)
    assert [item.name for item in members] == ["a.txt"]
    assert len(bad) == 1


def test_the_name_before_data_is_found_behind_headers_of_any_format(tmp_path):
    for layout in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with tarfile.open(tmp_path / "a.tar", "w", format=layout) as tar:
            for name in ("short.wav", "é你.wav", "n" * 99, "n" * 101, "é" * 400):
                info = tarfile.TarInfo(name)
                info.size = len(name)
                tar.addfile(info, io.BytesIO(b"d" * info.size))
        with (
            open(tmp_path / "a.tar", "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            for item in read_members(str(tmp_path / "a.tar"))[0]:
                assert member_before(data[max(0, item.offset - LOOK_BACK) : item.offset]) == (
                    item.name,
                    item.size,
                )
    assert member_before(b"x" * 511) == ("", -1)
