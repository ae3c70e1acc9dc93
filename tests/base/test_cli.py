import errno
import os
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from wenet_uio.base.cli import run

ROOT = Path(__file__).parents[2]


def test_nothing_that_a_command_prints_has_a_password_or_signature(tmp_path):
    script = """
import logging, sys
from wenet_uio.base.cli import run
def main():
    logging.basicConfig()
    logging.warning("reading %s", "http://me:secret@host/a?sig=secret")
    print("from", "http://me:secret@host/b")
    raise (ValueError if sys.argv[1] == "expected" else RuntimeError)("lost: http://me:secret@host/c?sig=secret")
run(main)
"""
    (tmp_path / "command.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    for kind, end in (
        ("expected", "error: lost: http://…@host/c?…"),
        ("bug", "RuntimeError: lost: http://…@host/c?…"),
    ):
        command = [sys.executable, str(tmp_path / "command.py"), kind]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 1
        assert done.stdout == "from http://…@host/b\n"
        assert done.stderr.splitlines()[0] == "WARNING:root:reading http://…@host/a?…"
        assert done.stderr.splitlines()[-1] == end
        assert "secret" not in done.stderr


def test_texts_of_utterances_are_printed_unchanged(capsys):
    with pytest.raises(SystemExit):
        run(lambda: print("utt1 http://a:b@c/?d=e"), prints_data=True)
    assert capsys.readouterr().out == "utt1 http://a:b@c/?d=e\n"


def test_an_error_of_the_system_begins_with_the_name_of_the_file(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        run(lambda: Path(tmp_path / "missing.yaml").unlink())
    assert end.value.code == 1
    assert capsys.readouterr().err == f"error: {tmp_path}/missing.yaml: No such file or directory\n"


def said_of(error, capsys):
    def fail():
        raise error

    with pytest.raises(SystemExit) as end:
        run(fail)
    assert end.value.code == 1
    return capsys.readouterr().err


def test_a_full_disk_is_named_and_the_command_may_be_repeated(capsys):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "exp/state_3.pt")
    mended = "No space left on device; free space, then run the same command again\n"
    assert said_of(full, capsys) == f"error: exp/state_3.pt: {mended}"
    assert said_of(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), capsys) == f"error: {mended}"


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EIO, "Input/output error; mend the disk or its mount"),
        (errno.EMFILE, "Too many open files; allow more open files (ulimit -n)"),
        (errno.EACCES, "Permission denied; permit it to this user"),
        (errno.ENOMEM, "Cannot allocate memory; free memory"),
        (errno.ESTALE, "Stale file handle; mount the folder again"),
    ],
)
def test_an_error_that_does_not_come_from_the_files_says_how_to_mend_it(number, told, capsys):
    error = OSError(number, os.strerror(number), "exp/state_3.pt")
    said = said_of(error, capsys)
    assert said == f"error: exp/state_3.pt: {told}, then run the same command again\n"


def test_full_shared_memory_is_named_with_the_option_of_docker(capsys, monkeypatch):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: usage(4096 if path == "/dev/shm" else 10**9)
    )
    # As multiprocessing.Lock raises it
    said = said_of(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), capsys)
    assert said.startswith("error: /dev/shm is full")
    assert "--shm-size" in said
    assert "error: x: No space left" in said_of(
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x"), capsys
    )


@pytest.mark.parametrize(
    "command",
    [
        "tools/check_data.py",
        "tools/make_raw_list.py",
        "wenet_uio.bin.train",
        "wenet_uio.bin.launch",
    ],
)
def test_ctrl_c_while_a_command_imports_its_libraries_prints_nothing(command, tmp_path):
    # The first import of torch or numpy, wherever it is, meets the signal.
    (tmp_path / "torch.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    (tmp_path / "numpy.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    name = [command] if command.endswith(".py") else ["-m", command]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, *name, "--help"], env=environment, cwd=ROOT, capture_output=True
    )
    assert done.returncode in (130, -signal.SIGINT)
    assert done.stdout == done.stderr == b""


def test_ctrl_c_ends_a_command_whose_library_swallows_the_interrupt(tmp_path):
    (tmp_path / "torch.py").write_text(
        "import os, signal, time\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(5)\n"
        "except BaseException:\n    print('swallowed', flush=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    command = [sys.executable, "-m", "wenet_uio", "check", "--help"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True)
    assert done.returncode == -signal.SIGINT
    assert done.stdout == done.stderr == b""


@pytest.mark.parametrize("closed", [(), (0,), (1,), (2,), (0, 1, 2)])
@pytest.mark.parametrize(("arguments", "status"), [("--version", 0), ("nonsense", 2)])
def test_a_command_runs_with_closed_streams(closed, arguments, status):
    command = f"'{sys.executable}' -m wenet_uio {arguments} {' '.join(f'{fd}>&-' for fd in closed)}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == status
    assert (done.stdout == "") == (1 in closed or status == 2)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_an_error_while_a_command_imports_its_libraries_has_a_stack_trace(tmp_path):
    script = "import wenet_uio.base.cli\nraise RuntimeError('odd')"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert "Traceback" in done.stderr
