"""Commands of the server end as commands of a new Python would."""

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support import preloaded

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(tmp_path):
    def write(text):
        (tmp_path / "script.py").write_text(text)
        return str(tmp_path / "script.py")

    return write


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("print('out')", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("raise SystemExit('why')", 1, "why\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import os; os.kill(os.getpid(), 9)", -9, ""),
        ("import os; os.kill(os.getpid(), 11)", -11, ""),
    ],
)
def test_status_and_errors_are_those_of_python(script, text, status, said):
    done = preloaded.run([script(text)])
    assert done.returncode == status
    assert done.stderr.endswith(said)


def test_arguments_variables_and_folder_are_those_of_the_caller(script, tmp_path):
    text = (
        "import os, sys; print(sys.argv[1:], os.environ['NAME'], 'HOME' in os.environ, os.getcwd())"
    )
    done = preloaded.run([script(text), "a b", "ü"], cwd=tmp_path, env={"NAME": "value"})
    assert done.stdout == f"['a b', 'ü'] value False {tmp_path}\n"


def test_code_of_the_command_line_has_torch_already_and_the_folder_of_the_caller(tmp_path):
    (tmp_path / "beside.py").write_text("NAME = 'beside'")
    code = "import sys, beside; print(sys.argv, beside.NAME, 'torch' in sys.modules)"
    done = preloaded.run(["-c", code, "a b"], cwd=tmp_path)
    assert done.stdout == "['-c', 'a b'] beside True\n"


def test_a_command_that_a_command_starts_has_torch_already(script):
    text = "import subprocess, sys; print('torch' in sys.modules)\n"
    text += "len(sys.argv) == 1 and subprocess.run([sys.executable, '-u', __file__, 'again'], check=True)"
    assert preloaded.run([script(text)]).stdout.splitlines() == ["True", "True"]


def test_a_command_has_the_modules_of_this_project_already(script):
    text = "import sys; print('wenet_uio.train.trainer' in sys.modules); import wenet_uio; print(wenet_uio.__file__)"
    done = preloaded.run([script(text)], env={"PYTHONPATH": str(ROOT)})
    assert done.stdout.split() == ["True", str(ROOT / "wenet_uio/__init__.py")]


def test_a_command_beside_another_copy_of_the_project_imports_that(script, tmp_path):
    (tmp_path / "wenet_uio").mkdir()
    (tmp_path / "wenet_uio/__init__.py").write_text("")
    done = preloaded.run(
        [
            script(
                "import wenet_uio, sys; print(wenet_uio.__file__, 'wenet_uio.train' in sys.modules)"
            )
        ]
    )
    assert done.stdout.split() == [str(tmp_path / "wenet_uio/__init__.py"), "False"]


def test_a_module_of_the_project_runs_once_and_without_a_warning():
    done = preloaded.run(["-m", "wenet_uio.bin.train", "--help"], env={"PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stderr) == (0, "")


def test_a_process_that_a_command_spawns_has_torch_already_and_its_queues(script):
    text = "import multiprocessing, sys\n"
    text += "def work(numbers, words): words.put((numbers.get(), 'torch' in sys.modules)); sys.exit(3)\n"
    text += "if __name__ == '__main__':\n"
    text += "    context = multiprocessing.get_context('spawn')\n"
    text += "    numbers, words = context.Queue(), context.Queue()\n"
    text += "    process = context.Process(target=work, args=(numbers, words))\n"
    text += "    process.start(); numbers.put(7); print(words.get()); process.join(); print(process.exitcode)\n"
    assert preloaded.run([script(text)]).stdout.splitlines() == ["(7, True)", "3"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_client_reaches_the_command(script, tmp_path, number):
    text = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(600)"
    client = subprocess.Popen([preloaded.python(), script(text)], stdout=subprocess.PIPE, text=True)
    assert client.stdout.readline()
    client.send_signal(number)
    assert client.wait(60) == -number
    assert client.stdout.read() == ""  # returns when the command has ended too


def test_commands_end_with_the_server(script):
    program, server = preloaded.start([])
    waiting = script("import time; print('runs', flush=True); time.sleep(600)")
    command = subprocess.Popen(
        [program, waiting], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert command.stdout.readline()
    server.kill()
    said = command.communicate(timeout=60)[1]  # returns when the command has ended too
    assert said == f"error: the server of commands has ended; {program.parent}/log may say why\n"
    server.communicate(timeout=60)
    shutil.rmtree(program.parent)
