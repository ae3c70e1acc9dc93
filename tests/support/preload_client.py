"""`python SCRIPT` or `python -m MODULE` by the server of preloaded.py, and the processes that multiprocessing spawns.

Starts Python itself for other arguments.

A copy of this file is called python, in the folder of the server. It imports little, because it starts often.
"""

import json
import os
import signal
import socket
import struct
import sys

arguments = sys.argv[1:]
unbuffered = arguments[:1] == ["-u"]  # torchrun starts its ranks with it
if unbuffered:
    del arguments[0]
files = [0, 1, 2]
if arguments[-1:] == ["--multiprocessing-fork"]:  # it receives open files by their numbers
    arguments = arguments[-3:]  # without the options of the interpreter, which are those of the server
    files += [number for number in map(int, os.listdir("/proc/self/fd")) if number > 2]
    files = [number for number in files if os.path.exists(f"/proc/self/fd/{number}")]  # without that of listdir
elif not arguments or (arguments[0].startswith("-") and arguments[0] != "-m"):
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
request = {"arguments": arguments, "unbuffered": unbuffered, "cwd": os.getcwd(), "environment": dict(os.environ)}
request = json.dumps({**request, "files": files}).encode()
server = socket.socket(socket.AF_UNIX)
server.connect(os.path.dirname(os.path.abspath(__file__)) + "/socket")
socket.send_fds(server, [struct.pack("I", len(request))], files)
server.sendall(request)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda received, _: server.send(bytes([received])))
answer = server.recv(4)
(status,) = struct.unpack("i", answer)
if status < 0:
    signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), -status)
os._exit(status)
