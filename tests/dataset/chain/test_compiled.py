"""The compiled functions: how they come to be, and what happens without them."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from tests.support import preloaded
from wenet_uio.config.dataset import DatasetConf, FbankConf
from wenet_uio.dataset.chain import compiled as module
from wenet_uio.dataset.chain.compiled import SWITCH, compiled
from wenet_uio.dataset.chain.fbank import fbank
from wenet_uio.dataset.chain.features import feature_operators

ROOT = Path(__file__).parents[3]
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, module.COMPILERS)), reason="this machine has no C++ compiler"
)
WAVEFORM = torch.randn(4000, generator=torch.Generator().manual_seed(0)) * 1000


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """An empty cache, an empty folder of temporary files, and nothing compiled."""
    for name in ("cache", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    for name in (SWITCH, "CXX"):
        monkeypatch.delenv(name, raising=False)
    compiled.cache_clear()
    yield tmp_path
    compiled.cache_clear()


def files_in(folder):
    return {path.suffix for path in folder.rglob("*") if path.is_file()}


def as_compiler(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def counted_compiler(folder):
    """The compiler of the machine; each call that compiles adds a line to `calls`."""
    real = next(filter(None, map(shutil.which, module.COMPILERS)))
    script = f'case "$*" in *fbank.cpp*) echo $$ >> {folder}/calls;; esac\nexec {real} "$@"'
    return as_compiler(folder / "counted", script)


def calls(folder):
    return len((folder / "calls").read_text().splitlines())


def expect_numpy(reason, caplog):
    """Features are computed without compiled functions, and the log says why, once."""
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            assert fbank(WAVEFORM, 16000, FbankConf()).shape == (23, 80)
            feature_operators(DatasetConf(), training=True)
    assert compiled().functions is None
    assert compiled().way == f"torch and numpy ({compiled().description})"
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1, messages
    assert reason in messages[0]
    assert "\n" not in messages[0]
    assert {record.levelname for record in caplog.records} == {"INFO"}


@needs_compiler
def test_the_first_use_compiles_and_later_ones_load_the_file(folders, monkeypatch):
    monkeypatch.setenv("CXX", counted_compiler(folders))
    for _ in range(3):
        compiled.cache_clear()
        assert compiled().functions is not None
    assert calls(folders) == 1

    assert compiled().way == "compiled functions"
    path = Path(compiled().description)
    assert path.parent == folders / "cache" / f"compiled-{os.getuid()}"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    names = {"lock", path.name, f"{path.name}.sha256"}
    assert {file.name for file in path.parent.iterdir()} == names
    assert files_in(folders / "temporary") == set()


@needs_compiler
def test_another_source_flag_compiler_or_processor_has_a_file_of_its_own(folders, monkeypatch):
    other_source = folders / "other.cpp"
    other_source.write_text(module.SOURCE.read_text() + "// changed\n")
    paths = [compiled().description]
    for change in (
        lambda: monkeypatch.setattr(module, "FLAGS", (*module.FLAGS, "-DLANES=4")),
        lambda: monkeypatch.setattr(module, "_processor", lambda: ["flags: none"]),
        lambda: monkeypatch.setattr(module, "SOURCE", other_source),
        lambda: monkeypatch.setenv("CXX", counted_compiler(folders)),
    ):
        change()
        compiled.cache_clear()
        assert compiled().functions is not None
        paths.append(compiled().description)
    assert len(set(paths)) == len(paths)


@needs_compiler
def test_processes_that_start_together_compile_once(folders, monkeypatch):
    monkeypatch.setenv("CXX", counted_compiler(folders))
    (folders / "start.py").write_text(
        "from wenet_uio.dataset.chain.compiled import compiled; assert compiled().functions"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen([preloaded.python(), str(folders / "start.py")], env=environment)
        for _ in range(8)
    ]
    assert [process.wait() for process in processes] == [0] * 8
    assert calls(folders) == 1


def cut_short(library):
    library.write_bytes(library.read_bytes()[:8192])


def emptied(library):
    library.write_bytes(b"")


def changed(library):
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 1
    library.write_bytes(content)


def without_digest(library):
    library.with_name(f"{library.name}.sha256").unlink()


def with_half_a_digest(library):
    library.with_name(f"{library.name}.sha256").write_bytes(b"\xff12")


def with_a_digest_alone(library):
    library.unlink()


@needs_compiler
@pytest.mark.parametrize(
    "damage",
    [cut_short, emptied, changed, without_digest, with_half_a_digest, with_a_digest_alone],
)
def test_a_compiled_file_that_was_damaged_is_compiled_again(damage, folders, monkeypatch):
    """A process that loads one cut short ends with a bus error."""
    monkeypatch.setenv("CXX", counted_compiler(folders))
    library = Path(compiled().description)
    damage(library)
    (folders / "start.py").write_text(
        "from wenet_uio.dataset.chain.compiled import compiled; assert compiled().functions"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _ in range(2):
        command = [preloaded.python(), str(folders / "start.py")]
        assert subprocess.run(command, env=environment).returncode == 0
    assert calls(folders) == 2


@needs_compiler
def test_what_a_killed_process_left_is_removed(folders):
    folder = folders / "cache" / f"compiled-{os.getuid()}"
    folder.mkdir(mode=0o700)
    left = folder / ".fbank-0.so.0123456789ab.tmp"
    left.write_bytes(b"half")
    assert compiled().functions is not None
    assert not left.exists()


WORKERS = """
import multiprocessing, sys
from pathlib import Path

if __name__ == "__main__":
    method, data_list, calls = sys.argv[1:]
    multiprocessing.set_start_method(method)
    from wenet_uio.config import parse_config
    from wenet_uio.dataset.dataset import build_loader
    from wenet_uio.dataset.options import LoaderOptions

    config = parse_config({"dataset_conf": {"batch_conf": {"batch_type": "static", "batch_size": 1}}}, "test")
    options = LoaderOptions(num_workers=2, rank=0, world_size=1)
    loader = build_loader(data_list, "raw", config, None, training=False, options=options)
    assert len(Path(calls).read_text().splitlines()) == 1, "compiled before the workers start"
    assert sum(len(batch.keys) for batch in loader) == 4
"""


@needs_compiler
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.all)])
def test_workers_use_what_was_compiled_before_they_start(method, folders, monkeypatch, corpora):
    from wenet_uio.dataset.formats.data_list import RawLine
    from wenet_uio.prepare.list_making import make_raw_list

    wavs = sorted((corpora / "fsdd" / "recordings").glob("*.wav"))[:4]
    data_list = str(folders / "data.list")
    make_raw_list([RawLine(wav.stem, str(wav), "a") for wav in wavs], data_list)
    monkeypatch.setenv("CXX", counted_compiler(folders))
    (folders / "workers.py").write_text(WORKERS)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    del environment["TMPDIR"]  # the sockets of spawned processes need a short path
    python = sys.executable if method == "spawn" else preloaded.python()  # preloaded ones fork only
    command = [python, "workers.py", method, data_list, str(folders / "calls")]
    subprocess.run(command, check=True, env=environment, cwd=folders)
    assert calls(folders) == 1


IMPORTS_AND_HELP = """
import runpy, sys
import wenet_uio.dataset.dataset, wenet_uio.addons.listen.transcription

for sys.argv in (["wenet_uio", "--help"], ["wenet_uio", "train", "--help"]):
    try:
        runpy.run_module("wenet_uio", run_name="__main__")
    except SystemExit as end:
        assert not end.code
"""


def test_importing_and_help_compile_nothing(folders):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", IMPORTS_AND_HELP]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: ") == 2
    assert [*(folders / "cache").iterdir()] == []


def test_a_variable_switches_the_functions_off(folders, monkeypatch, caplog):
    monkeypatch.setenv(SWITCH, "0")
    expect_numpy("WENET_UIO_COMPILE=0", caplog)
    assert [*(folders / "cache").iterdir()] == []


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("PATH", "/nowhere", "no c++, g++, clang++; install g++"),
        ("CXX", "no-such-compiler -O2", "CXX=no-such-compiler -O2: no such program"),
        ("CXX", "g++ '", "CXX=g++ ': No closing quotation"),
    ],
)
def test_without_a_compiler_numpy_computes(variable, value, reason, monkeypatch, caplog):
    monkeypatch.setenv(variable, value)
    expect_numpy(reason, caplog)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 3", "failed with exit status 3 (no message)"),
        ('[ "$1" = --version ] || { echo "x.cpp:1: error: bad" >&2; exit 1; }', "error: bad"),
        ("printf '\\377: error' >&2; exit 1", "failed with exit status 1"),
        ("sleep 50; echo slept", "did not end in 1 s"),
    ],
)
def test_when_the_compiler_fails_numpy_computes(script, reason, folders, monkeypatch, caplog):
    monkeypatch.setattr(module, "TIME_LIMIT", 1)
    monkeypatch.setenv("CXX", as_compiler(folders / "compiler", script))
    expect_numpy(reason, caplog)
    assert ".so" not in files_in(folders)
    assert ".tmp" not in files_in(folders)


def test_a_program_that_cannot_be_run_is_named(folders, monkeypatch, caplog):
    path = as_compiler(folders / "compiler", "")
    Path(path).write_bytes(b"\x7fELF of another machine")
    monkeypatch.setenv("CXX", path)
    expect_numpy("Exec format error", caplog)


@needs_compiler
def test_a_compiler_that_writes_no_library_is_named(folders, monkeypatch, caplog):
    script = 'while [ "$1" != -o ]; do [ $# = 0 ] && exit; shift; done; echo text > "$2"'
    monkeypatch.setenv("CXX", as_compiler(folders / "compiler", script))
    expect_numpy("no folder for the compiled functions", caplog)


def not_a_folder(path):
    path.write_text("a file")
    return path


def open_to_others(path):
    (path / f"compiled-{os.getuid()}").mkdir(parents=True)
    (path / f"compiled-{os.getuid()}").chmod(0o777)
    return path


def linked(path):
    (path.parent / "elsewhere").mkdir()
    path.mkdir()
    (path / f"compiled-{os.getuid()}").symlink_to(path.parent / "elsewhere")
    return path


@needs_compiler
@pytest.mark.parametrize("make", [not_a_folder, open_to_others, linked])
def test_a_cache_that_cannot_be_used_is_replaced_by_temporary_files(make, folders, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(make(folders / "unusable")))
    assert compiled().functions is not None
    expected = folders / "temporary" / f"wenet_uio-compiled-{os.getuid()}"
    assert Path(compiled().description).parent == expected


@needs_compiler
def test_without_any_folder_numpy_computes(folders, monkeypatch, caplog):
    monkeypatch.setenv("WENET_UIO_CACHE", str(not_a_folder(folders / "unusable")))
    name = folders / "temporary" / f"wenet_uio-compiled-{os.getuid()}"
    not_a_folder(name)
    expect_numpy("set WENET_UIO_CACHE or TMPDIR", caplog)


@needs_compiler
def test_without_a_home_folder_temporary_files_are_used(folders, monkeypatch):
    monkeypatch.delenv("WENET_UIO_CACHE")
    monkeypatch.delenv("NEMO_DATA_STORE_CACHE_DIR", raising=False)

    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert Path(compiled().description).parent.parent == folders / "temporary"


@needs_compiler
def test_a_file_system_mounted_noexec_is_left(folders, monkeypatch):
    """As dlopen reports it there; mounting needs more rights than a test has."""
    load = module.ctypes.CDLL

    def refusing(path):
        if path.startswith(str(folders / "cache")):
            raise OSError(f"{path}: failed to map segment from shared object")
        return load(path)

    monkeypatch.setattr(module.ctypes, "CDLL", refusing)
    assert Path(compiled().description).parent.parent == folders / "temporary"
