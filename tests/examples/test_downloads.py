"""The downloads of the recipes, from a mirror on loopback."""

from __future__ import annotations

import functools
import io
import subprocess
import tarfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support import preloaded
from tests.support.serve.running_server import running
from wenet_uio.prepare.archive import digest_of_files

ROOT = Path(__file__).resolve().parents[2]
FOLDER = """it's my "data" * $HOME; [1] #x"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments) -> None:
        """Keep quiet."""


@pytest.fixture
def mirror(tmp_path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address under which it is served."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    with running(
        ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    ) as server:
        yield folder, f"http://127.0.0.1:{server.server_port}"


def download(recipe: str, mirror: str, *arguments: str | Path) -> subprocess.CompletedProcess:
    environment = preloaded.on_path()
    path = f"{ROOT / 'tools'}:{environment['PATH']}"
    return subprocess.run(
        [
            "bash",
            str(ROOT / "examples" / recipe / "s0" / "local" / "download.sh"),
            *map(str, arguments),
        ],
        env=environment | {"PATH": path, "PYTHONPATH": str(ROOT), "OPENSLR": mirror},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def pack(archive: Path, *names: str) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz") as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())


@pytest.mark.all
def test_a_corpus_comes_whole_and_a_second_call_fetches_nothing(mirror, tmp_path):
    folder, url = mirror
    archive = folder / "101" / "speechocean762.tar.gz"
    pack(archive, *(f"speechocean762/WAVE/SPEAKER0001/{number:09d}.WAV" for number in range(5000)))
    corpus = tmp_path / FOLDER / "corpus"
    result = download("speechocean762", url, corpus)
    assert result.returncode == 0, result.stderr
    assert len(list(corpus.glob("WAVE/*/*.WAV"))) == 5000
    archive.unlink()
    assert download("speechocean762", url, corpus).stdout == f"{corpus} is there already\n"


def test_archives_of_speakers_are_unpacked_and_cannot_lead_each_other_outside(tmp_path):
    """GNU tar writes through a link that an earlier archive made (CVE-2025-45582)."""
    (tmp_path / "outside").mkdir()
    wav = tmp_path / FOLDER / "data_aishell" / "wav"
    pack(wav / "S0001.tar.gz", "train/S0001/a.wav")
    with tarfile.open(wav / "S0002.tar.gz", "w:gz") as tar:
        link = tarfile.TarInfo("train/S0002")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "outside")
        tar.addfile(link)
    pack(wav / "S0003.tar.gz", "train/S0002/b.wav")
    refused = download("aishell", "http://127.0.0.1:1", wav.parents[1], "false")
    assert refused.returncode == 1
    assert refused.stderr.endswith("S0002.tar.gz: 'train/S0002' is not a file or folder\n")
    (wav / "S0002.tar.gz").unlink()
    rest = download("aishell", "http://127.0.0.1:1", wav.parents[1], "false")
    assert "expected 141925 recordings, found 2" in rest.stderr
    assert sorted(str(path.relative_to(wav)) for path in wav.rglob("*.*")) == [
        "train/S0001/a.wav",
        "train/S0002/b.wav",
    ]
    assert list((tmp_path / "outside").iterdir()) == []


def test_the_digest_of_fsdd_is_that_of_its_recordings(corpora):
    digest = digest_of_files(corpora / "fsdd", "recordings/*.wav")
    script = ROOT / "examples" / "fsdd" / "s0" / "local" / "download.sh"
    assert f"--files_sha256 'recordings/*.wav={digest}'" in script.read_text()


def test_every_download_of_a_recipe_is_checked_by_a_digest():
    """A recipe without one, of which no digest is known, relies on the note of the first
    download."""
    scripts = {
        path.parts[-4]: path.read_text() for path in ROOT.glob("examples/*/*/local/download.sh")
    }
    noted = {name for name, script in scripts.items() if "sha256 " not in script.split("set -e")[1]}
    assert noted == {"speechocean762", "voices"}
    for name in noted:
        assert "first download" in scripts[name]
        readme = (ROOT / "examples" / name / "s0" / "README.md").read_text()
        assert "first\ndownload" in readme or "first download" in readme


@pytest.mark.parametrize(
    ("recipe", "archive", "arguments", "found"),
    [
        ("yesno", "1/waves_yesno.tar.gz", (), "sha256"),
        ("aishell", "33/data_aishell.tgz", ("false",), "15582913665"),
        ("librispeech", "12/dev-clean.tar.gz", ("train-clean-100",), "337926286"),
        ("speechocean762", "101/speechocean762.tar.gz", (), "5000"),
    ],
)
def test_an_archive_that_differs_from_the_published_archive_is_refused(
    mirror, tmp_path, recipe, archive, arguments, found
):
    folder, url = mirror
    pack(folder / archive, "corpus/README")
    corpus = tmp_path / FOLDER / "corpus"
    result = download(recipe, url, corpus, *arguments)
    assert result.returncode == 1
    assert found in result.stderr
    assert not list(corpus.rglob("README"))
