import io
import os
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wenet_uio.dataset.formats.tar_members import read_members

NAMES = [f"utt{number}.txt" for number in range(6)]


def content(name):
    return name.encode() * 100


def write(path, names=NAMES, layout=tarfile.PAX_FORMAT):
    with tarfile.open(path, "w", format=layout) as tar:
        for name in names:
            add(tar, name)
    return str(path)


def add(tar, name):
    member = tarfile.TarInfo(name)
    member.size = len(content(name))
    tar.addfile(member, io.BytesIO(content(name)))


def names(path):
    members, bad = read_members(path)
    data = open(path, "rb").read()
    for member in members:
        assert data[member.offset : member.offset + member.size] == content(member.name)
    return [member.name for member in members], [reason for _, reason in bad]


@pytest.mark.parametrize("layout", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names_are_read_in_every_format(tmp_path, layout):
    long = ["some/folders/" + "n" * 80 + ".txt", "é你.txt"] + (
        [] if layout == tarfile.USTAR_FORMAT else ["x" * 300]
    )
    assert names(write(tmp_path / "a.tar", long, layout)) == (long, [])


def test_a_leading_dot_folder_is_not_part_of_a_name(tmp_path):
    path = write(tmp_path / "a.tar", ["./a.txt", "b/./c.txt"])
    assert [member.name for member in read_members(path)[0]] == ["a.txt", "b/./c.txt"]


def damaged(tmp_path, change):
    path = write(tmp_path / "a.tar", layout=tarfile.USTAR_FORMAT)
    data = bytearray(open(path, "rb").read())
    open(path, "wb").write(bytes(change(data)))
    return path


def header(number):
    """Offset of the header of a member; each member has a header and two blocks of data, of 512
    bytes each.
    """
    return number * 1536


def test_garbage_in_a_header_loses_only_that_member(tmp_path):
    def change(data):
        data[header(2) : header(2) + 512] = os.urandom(512)
        return data

    found, bad = names(damaged(tmp_path, change))
    assert found == [name for name in NAMES if name != "utt2.txt"]
    assert bad == [
        "damaged at byte 3072 (no header of a member); the next member that can be read is at byte "
        "4608"
    ]


def test_garbage_of_any_length_between_members_is_skipped(tmp_path):
    found, bad = names(
        damaged(tmp_path, lambda data: data[: header(3)] + b"\x07" * 777 + data[header(3) :])
    )
    assert found == NAMES
    assert len(bad) == 1
    assert "damaged at byte 4608" in bad[0]


def test_a_hole_of_zeros_is_reported_and_skipped(tmp_path):
    def change(data):
        data[header(1) : header(3)] = bytes(3072)
        return data

    found, bad = names(damaged(tmp_path, change))
    assert found == ["utt0.txt", "utt3.txt", "utt4.txt", "utt5.txt"]
    assert bad == [
        "an end mark at byte 1536, and members behind it; the next member that can be read is at "
        "byte 4608"
    ]


@pytest.mark.parametrize(
    ("size", "whole", "reasons"),
    [
        (
            header(4) + 600,
            4,
            ["cut short: 88 of 800 bytes are there", "ends at byte 6744, in its last member"],
        ),
        (header(4), 4, ["without an end mark"]),
        (header(4) + 100, 4, ["damaged at byte 6144"]),
        (0, 0, ["an empty file"]),
        (100, 0, ["damaged at byte 0"]),
    ],
)
def test_a_tar_that_is_cut_short_gives_its_complete_members(tmp_path, size, whole, reasons):
    found, bad = names(damaged(tmp_path, lambda data: data[:size]))
    assert found == NAMES[:whole]
    assert all(reason in each for reason, each in zip(reasons, bad, strict=True))


def test_a_file_that_is_not_a_tar_is_reported(tmp_path):
    (tmp_path / "a.tar").write_text("<html>404 not found</html>\n" * 100)
    assert names(str(tmp_path / "a.tar")) == ([], ["damaged at byte 0 (no header of a member)"])
    (tmp_path / "b.tar").write_bytes(b"\x1f\x8b" + bytes(1000))
    assert "gzip" in names(str(tmp_path / "b.tar"))[1][0]


def test_a_damaged_pax_header_loses_no_other_member(tmp_path):
    path = write(tmp_path / "a.tar", ["a.txt", "é" * 100, "b.txt"])
    data = bytearray(open(path, "rb").read())
    at = data.index(b"path=") - 5
    data[at : at + 6] = b"999999"
    open(path, "wb").write(data)
    found, bad = read_members(path)
    assert [member.name for member in found][:1] == ["a.txt"]
    assert [member.name for member in found][-1:] == ["b.txt"]
    assert bad


def link(name, target, kind):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def test_links_stand_for_their_targets_and_broken_links_are_reported(tmp_path):
    path = write(tmp_path / "a.tar", ["d/a.txt"])
    with tarfile.open(path, "a") as tar:
        tar.addfile(link("d/hard.txt", "d/a.txt", tarfile.LNKTYPE))
        tar.addfile(link("d/soft.txt", "../d/hard.txt", tarfile.SYMTYPE))
        tar.addfile(link("lost.txt", "/elsewhere/a.txt", tarfile.SYMTYPE))
        tar.addfile(link("ring1", "ring2", tarfile.SYMTYPE))
        tar.addfile(link("ring2", "ring1", tarfile.SYMTYPE))
    members, bad = read_members(path)
    assert [member.name for member in members] == ["d/a.txt", "d/hard.txt", "d/soft.txt"]
    assert len({member.offset for member in members}) == 1
    assert [name for name, _ in bad] == ["lost.txt", "ring1", "ring2"]
    assert "a link to /elsewhere/a.txt, which is not in the tar" in bad[0][1]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_links_in_a_circle_are_named_as_such(tmp_path, kind):
    path = write(tmp_path / "a.tar", ["a.txt"])
    ring = [f"ring{number}.txt" for number in range(50)]
    with tarfile.open(path, "a") as tar:
        for name, target in [
            ("one.txt", "two.txt"),
            ("two.txt", "one.txt"),
            ("self.txt", "self.txt"),
            ("into.txt", "one.txt"),
            ("broken.txt", "lost.txt"),
            ("lost.txt", "nowhere.txt"),
            *zip(ring, [*ring[1:], "a.txt"], strict=True),
        ]:
            tar.addfile(link(name, target, kind))

    members, bad = read_members(path)
    reasons = dict(bad)
    assert reasons["one.txt"] == "a link to two.txt, which leads back to this link"
    assert reasons["two.txt"] == "a link to one.txt, which leads back to this link"
    assert reasons["self.txt"] == "a link to self.txt, which leads back to this link"
    circle = "behind which more than 40 links follow each other, or lead in a circle"
    assert reasons["into.txt"] == f"a link to one.txt, {circle}"
    broken = "a link to lost.txt, which leads to nowhere.txt, which is not in the tar"
    assert reasons["broken.txt"] == broken
    assert reasons["lost.txt"] == "a link to nowhere.txt, which is not in the tar"
    # As in Linux, 40 links may follow each other.
    assert [name for name in ring if name in reasons] == ring[:10]
    assert reasons["ring0.txt"] == f"a link to ring1.txt, {circle}"
    assert [member.name for member in members] == ["a.txt", *ring[10:]]


def test_a_sparse_member_is_refused_by_name(tmp_path):
    path = write(tmp_path / "a.tar", ["a.txt"])
    with tarfile.open(path, "a", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("holes.wav")
        member.size = 512
        member.pax_headers = {
            "GNU.sparse.map": "0,512",
            "GNU.sparse.size": "4096",
            "GNU.sparse.major": "0",
        }
        tar.addfile(member, io.BytesIO(bytes(512)))
    members, bad = read_members(path)
    assert [member.name for member in members] == ["a.txt"]
    assert bad == [("holes.wav", "stored as a sparse file; pack it without --sparse")]


@settings(max_examples=100)
@given(
    layout=st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    damages=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=3000)), max_size=3),
    cut=st.floats(0.5, 1),
)
def test_every_member_that_random_damage_spares_is_read_once(
    tmp_path_factory, layout, damages, cut
):
    path = tmp_path_factory.mktemp("damage") / "a.tar"
    wanted = [*NAMES, "n" * 150 + ".txt", "é你.txt"][: 8 if layout != tarfile.USTAR_FORMAT else 6]
    data = bytearray(open(write(path, wanted, layout), "rb").read())
    end = len(data)
    touched = [(end * 2, end * 2)]
    for share, garbage in damages:
        at = int(share * (end - 1))
        garbage = garbage[: end - at]
        data[at : at + len(garbage)] = garbage
        touched.append((at, at + len(garbage)))
    if cut < 0.9:
        touched.append((int(cut * end), end * 2))
        del data[int(cut * end) :]
    starts = []
    with tarfile.open(write(path, wanted, layout)) as tar:
        starts = [(member.name, member.offset, member.offset_data + member.size) for member in tar]
    path.write_bytes(data)
    spared = [
        name for name, first, last in starts if all(last <= a or b <= first for a, b in touched)
    ]
    members, _ = read_members(str(path))
    found = [member.name for member in members]
    assert set(spared) <= set(found)
    assert all(found.count(name) == 1 for name in spared)
    assert all(member.offset + member.size <= len(data) for member in members)


def zeros(number):
    """A change that replaces all behind the header of a member by zeros, as in a file that was half
    downloaded.
    """
    return lambda data: data[: header(number)] + bytes(len(data) - header(number))


def padded_to(record):
    return lambda data: (
        data[: header(6)] + bytes(-(-(header(6) + 1024) // record) * record - header(6))
    )


@pytest.mark.parametrize("members", [1, 3])
def test_a_tar_that_ends_with_more_zeros_than_a_record_is_reported(tmp_path, members):
    path = write(
        tmp_path / "a.tar", [f"utt{number}.txt" for number in range(20)], tarfile.USTAR_FORMAT
    )
    data = bytearray(open(path, "rb").read())
    data[header(members) :] = bytes(len(data) - header(members))
    open(path, "wb").write(data)
    found, bad = names(path)
    assert found == NAMES[:members]
    assert bad == [
        f"{40960 - header(members)} bytes of zeros at its end, from byte {header(members)}: "
        "it may have been downloaded or written in part"
    ]


def test_a_few_zeros_too_many_are_reported_if_the_tar_is_not_padded_to_a_record(tmp_path):
    assert names(damaged(tmp_path, lambda data: data[: header(5)] + bytes(1024))) == (NAMES[:5], [])
    found, bad = names(damaged(tmp_path, lambda data: zeros(3)(data[: header(5)] + bytes(1024))))
    assert found == NAMES[:3]
    assert "4096 bytes of zeros at its end" in bad[0]


@pytest.mark.parametrize("record", [512, 10240, 32768, 1 << 20])
def test_a_tar_that_is_padded_to_a_usual_record_is_whole(tmp_path, record):
    assert names(damaged(tmp_path, padded_to(record))) == (NAMES, [])


def test_a_tar_that_ends_in_the_padding_of_a_member_is_reported_and_the_member_read(tmp_path):
    found, bad = names(damaged(tmp_path, lambda data: data[: header(4) + 512 + 900]))
    assert found == NAMES[:5]
    assert bad == ["ends at byte 7556, in the padding of its last member: it may be cut short"]


def test_data_behind_the_end_mark_is_reported(tmp_path):
    found, bad = names(damaged(tmp_path, lambda data: data + b"\0" * 600 + b"x" * 100))
    assert found == NAMES
    assert bad == ["damaged at byte 10840 (no header of a member, behind an end mark at byte 9216)"]


def resized(data, number, field):
    """Set the size in the header of a member, with a valid checksum."""
    at = header(number)
    data[at + 124 : at + 136] = field
    data[at + 148 : at + 156] = b" " * 8
    data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])
    return data


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (b"-0000001000\0", "its header states no valid size"),
        (b"\xff" * 12, "its header states no valid size"),
        (b"\xff" * 11 + b"\0", "its header states no valid size"),
        (b"\x80" + b"\xff" * 11, "cut short"),
        (b"77777777777\0", "cut short"),
        (b"0x000000010\0", "its header states no valid size"),
        (b"9999\0       ", "its header states no valid size"),
    ],
)
def test_a_header_with_an_impossible_size_loses_only_its_member(tmp_path, field, reason):
    path = damaged(tmp_path, lambda data: resized(data, 2, field))
    members, bad = read_members(path)
    assert [member.name for member in members] == [name for name in NAMES if name != "utt2.txt"]
    assert [name for name, _ in bad] == ["utt2.txt"]
    assert bad[0][1].startswith(reason)
    assert bad[0][1].endswith("; the next member that can be read is at byte 4608")


@pytest.mark.parametrize("first", ["file", "link"])
def test_a_name_that_a_file_and_a_link_share_is_the_file(tmp_path, first):
    """`tar` writes the second occurrence of a file that was named twice as a link to itself."""
    path = str(tmp_path / "a.tar")
    added = {
        "file": lambda tar: add(tar, "a.txt"),
        "link": lambda tar: tar.addfile(link("./a.txt", "a.txt", tarfile.LNKTYPE)),
    }
    with tarfile.open(path, "w") as tar:
        for step in [first, *added.keys() - {first}]:
            added[step](tar)
        tar.addfile(link("b.txt", "a.txt", tarfile.SYMTYPE))

    members, bad = read_members(path)
    assert [member.name for member in members] == ["a.txt", "b.txt"]
    assert len({member.offset for member in members}) == 1
    assert bad == []


@pytest.mark.parametrize(("more", "is_whole"), [(-512, True), (0, False), (512, False)])
def test_as_many_zeros_as_a_record_and_an_end_mark_are_one_too_many(tmp_path, more, is_whole):
    """An end mark that just does not fit into a record needs a whole further one, and no more."""
    record = 10240
    path = write(tmp_path / "a.tar", ["utt0.txt"], tarfile.USTAR_FORMAT)
    members = 2 * record - 1024 - more
    with open(path, "wb") as file, tarfile.open(fileobj=file, mode="w|") as tar:
        info = tarfile.TarInfo("utt0.txt")
        info.size = members - 512
        tar.addfile(info, io.BytesIO(b"x" * info.size))
    data = open(path, "rb").read()[:members]
    open(path, "wb").write(data + bytes(3 * record - len(data)))

    bad = [reason for _, reason in read_members(path)[1]]
    assert (bad == []) == is_whole, bad
