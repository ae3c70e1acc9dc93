"""Archives of others: what is written, and what is refused."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from collections.abc import Callable

import pytest

from wenet_uio.prepare.archive import unpack

FORMS = ("tar", "tar.gz", "tar.bz2", "tar.xz", "zip")
BODY = bytes(range(256)) * 8
AUDIO = {f"top/audio/{number}.wav": bytes([number]) * 700 for number in range(5)}


def tar_of(members: list[tarfile.TarInfo], form: str = "tar") -> bytes:
    """A tar of members, whose files have the content BODY up to their size."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{form.partition('.')[2]}") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(BODY) if member.isreg() else None)
    return buffer.getvalue()


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0, **fields: object
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def archive_of(files: dict[str, bytes], form: str) -> bytes:
    buffer = io.BytesIO()
    if form == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, body in files.items():
                zipped.writestr(name, body)
        return buffer.getvalue()
    with tarfile.open(fileobj=buffer, mode=f"w:{form.partition('.')[2]}") as tar:
        for name, body in files.items():
            tar.addfile(member(name, size=len(body)), io.BytesIO(body))
    return buffer.getvalue()


def link_in_zip() -> bytes:
    """A zip with a link, as `zip --symlinks` writes it, and a file behind the link."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        link = zipfile.ZipInfo("top/link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        zipped.writestr(link, "../victim")
        zipped.writestr("top/link/file", "x")
    return buffer.getvalue()


def long_links() -> bytes:
    """A chain of links longer than a path may be, behind which os.path.realpath loses its way
    (CVE-2025-4517).
    """
    members, path, steps, folder = (
        [member("top", tarfile.DIRTYPE)],
        "top",
        "abcdefghijklmnop",
        "d" * 247,
    )
    for step in steps:
        members += [
            member(f"{path}/{folder}", tarfile.DIRTYPE),
            member(f"{path}/{step}", tarfile.SYMTYPE, folder),
        ]
        path += f"/{folder}"
    last = "/".join(steps) + "/" + "l" * 254
    members += [member(f"top/{last}", tarfile.SYMTYPE, "../" * len(steps))]
    members += [
        member("top/escape", tarfile.SYMTYPE, f"{last}/../../victim"),
        member("top/escape/file", size=1),
    ]
    return tar_of(members)


@pytest.fixture
def attempt(tmp_path) -> Callable[[bytes], str]:
    """A function that unpacks an archive and expects an error; returns it after nothing else was
    written anywhere.
    """

    def unpack_and_fail(content: bytes) -> str:
        (tmp_path / "victim").mkdir()
        (tmp_path / "x.archive").write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.archive: ") as error:
            unpack(tmp_path / "x.archive", tmp_path / "corpus", {})
        assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
            "victim",
            "x.archive",
        ]
        assert "\n" not in str(error.value)
        return str(error.value)

    return unpack_and_fail


@pytest.mark.parametrize("form", FORMS)
def test_files_and_folders_are_written_and_the_single_top_folder_gets_the_name(tmp_path, form):
    (tmp_path / "my archive").write_bytes(archive_of({**AUDIO, "top/README": b""}, form))
    unpack(tmp_path / "my archive", tmp_path / "corpus", {"audio/*.wav": 5})
    written = {
        str(path.relative_to(tmp_path / "corpus")): path
        for path in (tmp_path / "corpus").rglob("*.wav")
    }
    assert {f"top/{name}": path.read_bytes() for name, path in written.items()} == AUDIO
    assert (tmp_path / "corpus" / "README").read_bytes() == b""


def test_of_two_members_with_a_name_the_later_is_written_and_permissions_and_owners_are_not(
    tmp_path,
):
    members = [
        member("top", tarfile.DIRTYPE, mode=0o000),
        member("top/a", size=5, mode=0o4777, uid=12345),
    ]
    (tmp_path / "x").write_bytes(tar_of([*members, member("top/a", size=7, mode=0o000)]))
    unpack(tmp_path / "x", tmp_path / "corpus", {})
    found = (tmp_path / "corpus" / "a").stat()
    expected = (tmp_path / "x").stat()
    assert (found.st_size, found.st_mode, found.st_uid) == (7, expected.st_mode, expected.st_uid)


@pytest.mark.parametrize("form", ["tar", "zip"])
@pytest.mark.parametrize("names", [["a.wav", "b.wav"], ["a/x", "b/x"]])
def test_an_archive_without_a_single_top_folder_is_refused(attempt, names, form):
    assert "expected one folder at the top" in attempt(archive_of(dict.fromkeys(names, b""), form))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "name", ["../outside", "/outside", "top/../../victim/outside", "top/..", "./../outside"]
)
def test_a_name_that_leads_out_of_the_folder_is_refused(attempt, form, name):
    assert "leads out of the folder of the archive" in attempt(
        archive_of({"top/file": b"", name: b"x"}, form)
    )


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, b"S"],
)
@pytest.mark.parametrize("target", ["../victim", "file", "/etc/passwd"])
def test_a_member_that_is_not_a_file_or_folder_is_refused(attempt, kind, target):
    error = attempt(
        tar_of(
            [
                member("top/file", size=3),
                member("top/link", kind, target),
                member("top/link/x", size=1),
            ]
        )
    )
    assert "'top/link' is not a file or folder" in error


@pytest.mark.parametrize("content", [long_links(), link_in_zip()], ids=["tar", "zip"])
def test_an_archive_whose_links_lead_outside_writes_nothing_there_in_any_python(attempt, content):
    assert "is not a file or folder" in attempt(content)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_an_archive_that_is_cut_short_is_damaged(attempt, form, share):
    files = {f"top/{number}": bytes(range(256)) * number for number in range(40)}
    content = archive_of(files, form)
    assert "damaged archive" in attempt(content[: int(len(content) * share)])


@pytest.mark.parametrize("form", FORMS)
def test_a_changed_byte_in_the_middle_is_damage_if_the_form_has_checksums(attempt, form):
    content = bytearray(archive_of(AUDIO, form))
    # In a header of the tar
    place = 512 + 1024 + 4 if form == "tar" else len(content) // (4 if form == "zip" else 2)
    content[place] ^= 0x55
    assert "damaged archive" in attempt(bytes(content))


def test_a_tar_that_ends_between_two_members_is_damaged(attempt):
    assert "neither a member nor an end mark" in attempt(archive_of(AUDIO, "tar")[: 3 * 1536])


def negative_size() -> bytes:
    """A tar whose second member has the size -512 in base 256, so that tarfile reads this member
    again and again.
    """
    content = bytearray(tar_of([member("top/a"), member("top/b")]))
    header = bytearray(content[512:1024])
    header[124:136] = (-512).to_bytes(12, "big", signed=True)
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    content[512:1024] = header
    return bytes(content)


@pytest.mark.parametrize(
    "content",
    [
        negative_size(),
        tar_of([member("top/a"), member("top/b", pax_headers={"size": "-1024"})]),
        tar_of([member("top/a"), member("top/b", pax_headers={"comment": "9" * (2 << 20)})]),
        tar_of([member("n" * 200)])[:1024] * 3000,
        tar_of([member("top/a", size=3), member("top/a/b", size=3)]),
        tar_of([member("top/a", size=3), member("top/a", tarfile.DIRTYPE)]),
        tar_of([member("top/a/b", size=3), member("top/a", size=3)]),
        b"",
        b"PK",
        b"<html>not found</html>",
    ],
    ids=[
        "size",
        "pax size",
        "long pax",
        "chain",
        "file/x",
        "file+folder",
        "folder+file",
        "empty",
        "no zip",
        "html",
    ],
)
def test_an_archive_that_contradicts_itself_is_one_line(attempt, content):
    assert "archive" in attempt(content)


def test_an_encrypted_zip_is_one_line(attempt):
    content = bytearray(archive_of({"top/file": b"secret"}, "zip"))
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + flags] |= 1
    assert "encrypted" in attempt(bytes(content))
