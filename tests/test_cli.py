import errno
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from wenet_uio.cli import listed, run


def test_all_of_a_few_items_are_listed():
    assert listed(["a", "b"], 2) == "a, b"
    assert listed([], 2) == ""


def test_the_first_of_many_items_are_listed_and_the_others_counted():
    assert listed(dict.fromkeys("abcd"), 2) == "a, b and 2 more"
    assert listed(["a", "b", "c"], 1, "; ") == "a and 2 more"


def test_nothing_that_a_command_prints_has_a_password_or_signature(tmp_path):
    script = """
import logging, sys
from wenet_uio.cli import run
def main():
    logging.basicConfig()
    logging.warning("reading %s", "http://me:secret@host/a?sig=secret")
    print("from", "http://me:secret@host/b")
    raise (ValueError if sys.argv[1] == "expected" else RuntimeError)("lost: http://me:secret@host/c?sig=secret")
run(main)
"""
    (tmp_path / "command.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
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
