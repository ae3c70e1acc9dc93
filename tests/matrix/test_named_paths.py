"""An error of the system names the file: reading every form of lists, tables and texts where the
disk fails (EIO), and locking the folder of a run on a full disk.
"""

import errno
import os
import resource

import pytest

from tests.support.data.tars import wav, write_tar
from wenet_uio.base.files import digest_of, naming
from wenet_uio.base.run_files import LOCK
from wenet_uio.config.load import load_config
from wenet_uio.config.mixture import MixtureConf
from wenet_uio.dataset.formats.data_list import read_shard_list
from wenet_uio.dataset.open import open_corpus
from wenet_uio.dataset.storage import objects
from wenet_uio.models.cmvn import load_cmvn
from wenet_uio.prepare.diagnose.check_shards import opened_for_check
from wenet_uio.prepare.forms import FORMS
from wenet_uio.text.symbols import read_non_lang_syms, read_symbols
from wenet_uio.text.table import read_table
from wenet_uio.train.checkpoint import RunFolder

FAILING = "/proc/self/mem"
"""A file whose first bytes cannot be read: EIO."""
DIRECTORIES = ("kaldi",)
WITH_SUFFIX = {"xlsx": ".xlsx", "ods": ".ods"}


def source(**keys):
    """A door that opens a file as a source of a mixture."""
    return lambda path, folder: open_corpus(
        MixtureConf(
            sources=[{name: value.format(path=path, folder=folder) for name, value in keys.items()}]
        ),
        "raw",
    )


def check(path, _):
    with opened_for_check(path, "shard"):
        pass


def listed(data_type, line):
    """A door that opens a list with a file."""

    def opened(path, folder):
        data_list = folder / "of.list"
        data_list.write_text(line.replace("PATH", path) + "\n")
        return open_corpus(str(data_list), data_type)

    return opened


DOORS = {
    "raw list": (".list", lambda path, _: open_corpus(path, "raw")),
    "shard list": (".list", lambda path, _: open_corpus(path, "shard")),
    "check": (".list", check),
    "shard list of a tool": (".list", lambda path, _: read_shard_list(path)),
    "mixture": (".yaml", lambda path, _: open_corpus(path, "raw")),
    "config": (".yaml", lambda path, _: load_config(path)),
    "texts": (".txt", source(type="txt", paths="{path}", language="en")),
    "pair": (
        ".txt",
        source(
            type="txt_pair",
            source_paths="{folder}/sound.txt",
            target_paths="{path}",
            source_language="en",
            target_language="de",
        ),
    ),
    "conversations": (".json", source(type="multimodal_conversation", manifest_filepath="{path}")),
    "texts to speak": (
        ".json",
        source(type="tts_text", manifest_filepath="{path}", speakers_filepath="{folder}/sound.txt"),
    ),
    "manifest of NeMo": (".json", source(type="nemo", manifest_filepath="{path}")),
    "tarred manifest": (
        ".json",
        source(
            type="nemo_tarred",
            manifest_filepath="{path}",
            tarred_audio_filepaths="{folder}/sound.tar",
        ),
    ),
    "cuts": (".jsonl", source(type="lhotse_cuts", cuts_path="{path}")),
    "packed cuts": (".jsonl.gz", source(type="lhotse_cuts", cuts_path="{path}")),
    "packed tar": (".tar.gz", listed("shard", "PATH")),
    "audio": (".wav", listed("raw", '{"key": "a", "wav": "PATH", "txt": "one"}')),
    "units": (".txt", lambda path, _: read_symbols(path)),
    "symbols": (".txt", lambda path, _: read_non_lang_syms(path)),
    "table of Kaldi": ("", lambda path, _: read_table(path)),
    "CMVN": ("", lambda path, _: load_cmvn(path, True, 80)),
    "digest": ("", lambda path, _: digest_of(path)),
    "whole file": ("", lambda path, _: objects.read_bytes(path)),
    **{
        f"form {name}": (WITH_SUFFIX.get(name, ".txt"), lambda path, _, form=form: form.read(path))
        for name, form in FORMS.items()
        if name not in DIRECTORIES
    },
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    (tmp_path / "sound.txt").write_text("one\n")
    write_tar(tmp_path / "sound.tar", [("a.wav", wav())])
    return tmp_path


@pytest.mark.parametrize("door", DOORS)
def test_an_error_of_a_disk_names_the_file_that_cannot_be_read(folder, door):
    suffix, opened = DOORS[door]
    path = folder / f"failing{suffix}"
    path.symlink_to(FAILING)
    with pytest.raises((OSError, ValueError), match=f"{path}(?!\\.)"):
        opened(str(path), folder)


def test_a_full_disk_names_the_lock_of_a_run(tmp_path):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        # No file may grow: the error of a quota, in the place of a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        try:
            RunFolder(tmp_path).hold()
        except OSError as error:
            os.write(writing, f"{error.errno} {error.filename}".encode())
        finally:
            os._exit(0)

    os.close(writing)
    told = os.read(reading, 1000).decode()
    os.waitpid(child, 0)
    assert told == f"{errno.EFBIG} {tmp_path / LOCK}"


def test_errors_that_name_a_file_and_those_of_this_package_stay_as_they_are(tmp_path):
    with pytest.raises(FileNotFoundError) as raised, naming("other"):
        open(tmp_path / "none")
    assert raised.value.filename == str(tmp_path / "none")
    mine = OSError("a message of this package")
    with pytest.raises(OSError, match="a message") as raised, naming("other"):
        raise mine
    assert raised.value is mine
