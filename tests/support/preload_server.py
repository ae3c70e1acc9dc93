"""Server of preloaded.py: runs the commands of its clients in processes forked from itself.

preload_server.py FOLDER MODULE…      listens at FOLDER/socket until standard input ends; imports the modules

A client sends its arguments, folder and variables with its standard input, output and error (a
process of multiprocessing: all its open files), and after that the numbers of the signals that it
receives. It gets the exit status of its command. A client that is killed takes its command with it.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import marshal
import multiprocessing
import os
import re
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "wenet_uio"
MOST_FILES = 253
"""Linux sends no more with one message."""
LIBC, PR_SET_PDEATHSIG, MADV_COLLAPSE = ctypes.CDLL(None), 1, 25
HUGE_PAGE = 1 << 21
HEAP = re.compile(r"(\w+)-(\w+) rw-p 00000000 00:00 0 *(\[heap\])?")
"""A line of /proc/self/maps."""
PATIENCE = 60
"""Seconds that a client has for its request."""


class Server:
    """A loop over new clients, signals from clients, and ends of commands."""

    def __init__(self, listening: socket.socket) -> None:
        self.selector = selectors.DefaultSelector()
        self.selector.register(listening, selectors.EVENT_READ, self.accept)
        self.selector.register(sys.stdin.fileno(), selectors.EVENT_READ, self.end)
        self.running: set[int] = set()
        self.request: dict[str, Any] | None = None

    def serve(self) -> dict[str, Any]:
        """Return in each forked process, with the request that it runs."""
        while self.request is None:
            for key, _ in self.selector.select():
                key.data(key.fileobj)
                if self.request:
                    break
        return self.request

    def accept(self, listening: socket.socket) -> None:
        client, _ = listening.accept()
        client.settimeout(PATIENCE)
        received: list[int] = []
        try:
            length, received, *_ = socket.recv_fds(client, 4, MOST_FILES)
            request = marshal.loads(
                client.recv(int.from_bytes(length, "little"), socket.MSG_WAITALL)
            )
            child = os.fork()
        except (
            OSError,
            EOFError,
        ) as error:
            # The client was killed, or there is no room for a process
            print(f"a command was not started: {error!r}", file=sys.stderr, flush=True)
            client.close()
            for file in received:
                os.close(file)
            return
        if not child:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # it would hold open files of a test
            os.setsid()
            self.request = request
            for key in self.selector.get_map().values():
                if isinstance(key.fileobj, socket.socket):
                    key.fileobj.close()
                elif key.fd:
                    os.close(key.fd)
            self.selector.close()
            client.close()
            place(received, request.pop("files"))
        else:
            ended = os.pidfd_open(child)
            self.running.add(child)
            self.selector.register(
                client, selectors.EVENT_READ, lambda _: self.signal(client, child)
            )
            self.selector.register(
                ended, selectors.EVENT_READ, lambda _: self.reap(client, child, ended)
            )
            for file in received:
                os.close(file)

    def signal(self, client: socket.socket, child: int) -> None:
        if child not in self.running:  # it has just ended
            return
        try:
            received = client.recv(1)
        except OSError:
            received = b""
        os.kill(child, received[0] if received else signal.SIGKILL)
        if not received:
            self.selector.unregister(client)

    def reap(self, client: socket.socket, child: int, ended: int) -> None:
        _, status = os.waitpid(child, 0)
        self.running.remove(child)
        self.selector.unregister(ended)
        os.close(ended)
        with suppress(KeyError):  # the client was killed
            self.selector.unregister(client)
        with suppress(OSError):
            client.send(os.waitstatus_to_exitcode(status).to_bytes(4, "little", signed=True))
        client.close()

    def end(self, _: object) -> None:
        for child in self.running:
            os.kill(child, signal.SIGKILL)
        os._exit(0)


def place(received: list[int], numbers: list[int]) -> None:
    """Give the received files the numbers that they have in the client."""
    above = [fcntl.fcntl(file, fcntl.F_DUPFD, max(numbers) + 1) for file in received]
    for file in received:
        os.close(file)
    for file, number in zip(above, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)


def command(arguments: list[str], unbuffered: bool, cwd: str, environment: dict[str, str]) -> None:
    """Run `python ARGUMENTS`: a script, -m MODULE, or -c CODE."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    sys.stdout = open(1, "w", 1 if unbuffered else -1, encoding="utf-8", closefd=False)
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # that of TMPDIR
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.path.insert(0, cwd if arguments[0] == "-m" else str(Path(arguments[0]).resolve().parent))
    forget_other_project()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.modules.pop(arguments[1], None)  # it runs as __main__
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(arguments[1], {"__name__": "__main__"})
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


def forget_other_project() -> None:
    """Forget the modules of this project if the command finds another copy of it, or none; a link
    is no copy.
    """
    names = [name for name in sys.modules if name.partition(".")[0] == PROJECT]
    imported = {name: sys.modules.pop(name) for name in names}
    found = find_spec(PROJECT) if imported else None
    if found and found.origin and Path(found.origin).samefile(str(imported[PROJECT].__file__)):
        sys.modules.update(imported)


def make_cheaper() -> None:
    """Leave out what torch does in processes with thousands of modules and what no test sees."""
    # 0.1 s at the end of a process, to free registered operators
    for finalizer in list(weakref.finalize._registry):
        finalizer.atexit = False
    atexit.unregister(sys.modules["torch._dynamo.utils"].dump_compile_times)
    # A launcher records the names of its own functions. `inspect.stack()` takes 1 s for them.
    rendezvous = importlib.import_module("torch.distributed.elastic.rendezvous.dynamic_rendezvous")
    rendezvous.get_method_name = lambda depth=2: sys._getframe(depth).f_code.co_name


def use_huge_pages() -> None:
    """Move the heap into huge pages: a fork copies the table of all pages, which takes 20 ms for
    400 MB of small pages.

    Linux before 6.1 refuses this, and nothing changes.
    """
    for line in Path("/proc/self/maps").read_text().splitlines():
        if found := HEAP.fullmatch(line):
            first, end = (int(address, 16) for address in found.groups()[:2])
            for start in range(-(-first // HUGE_PAGE) * HUGE_PAGE, end - HUGE_PAGE + 1, HUGE_PAGE):
                LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(HUGE_PAGE), MADV_COLLAPSE)


def status_of(run: Callable[[], None]) -> int:
    """Run a function; the exit status that Python gives to a program with its exception."""
    try:
        run()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def main(folder: str, *modules: str) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"{folder}/new")
    listening.listen(100)
    # Who finds the socket can connect; commands wait for the imports
    os.rename(f"{folder}/new", f"{folder}/socket")
    sys.path[0] = str(ROOT)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # what is imported stays
    for module in modules:
        importlib.import_module(module)
    del sys.path[0]
    if "torch" in sys.modules:
        make_cheaper()
    gc.collect()
    gc.freeze()
    gc.enable()
    use_huge_pages()
    request = Server(listening).serve()
    sys.executable = f"{folder}/python"  # commands that a command starts are forked too
    multiprocessing.set_executable(sys.executable)  # and its processes that are spawned
    status = status_of(lambda: command(**request))
    status = status_of(end) or status
    os._exit(status)


def end() -> None:
    """What Python does at its end, except for the destructors of modules."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
