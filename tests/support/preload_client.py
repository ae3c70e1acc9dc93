"""`python SCRIPT`, `python -m MODULE` or `python -c CODE` by the server of preloaded.py, and the
processes that multiprocessing spawns.

Starts Python itself for other arguments.

A copy of this file is called python, in the folder of the server. It starts often; the built-in
modules of signals and sockets are imported twice as fast as those that wrap them.
"""

import _signal as signal
import _socket as socket
import marshal
import os
import sys

arguments = sys.argv[1:]
unbuffered = arguments[:1] == ["-u"]  # torchrun starts its ranks with it
if unbuffered:
    del arguments[0]
files = [0, 1, 2]
if arguments[-1:] == ["--multiprocessing-fork"]:  # it receives open files by their numbers
    # Without the options of the interpreter, which are those of the server
    arguments = arguments[-3:]
    files += [number for number in map(int, os.listdir("/proc/self/fd")) if number > 2]
    # Without that of listdir
    files = [number for number in files if os.path.exists(f"/proc/self/fd/{number}")]
elif not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-m", "-c")):
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
folder = os.path.dirname(os.path.abspath(__file__))
request = {
    "arguments": arguments,
    "unbuffered": unbuffered,
    "cwd": os.getcwd(),
    "environment": dict(os.environ),
}
request = marshal.dumps({**request, "files": files})
server = socket.socket(socket.AF_UNIX)
server.connect(folder + "/socket")
numbers = b"".join(number.to_bytes(4, sys.byteorder) for number in files)
server.sendmsg(
    [len(request).to_bytes(4, "little")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)]
)
server.sendall(request)


def forward(received, _):
    try:
        server.send(bytes([received]))
    except ConnectionError:
        return  # the command has ended; its status lies in the socket


for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, forward)
answer = server.recv(4)
if not answer:
    sys.exit(f"error: the server of commands has ended; {folder}/log may say why")
status = int.from_bytes(answer, "little", signed=True)
if status < 0:
    if -status not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
