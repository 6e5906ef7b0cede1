"""Has a command of ``tool.py`` run by the process that waits at a socket, and ends as that one did.

Usage: ``ask.py SOCKET COMMAND ARGUMENT...``. It imports next to nothing, as the checks start it hundreds of times.
"""

import json
import os
import socket
import sys


def ask(path: str, *words: str) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(path)
        request = json.dumps([os.getcwd(), dict(os.environ), words])  # noqa: PTH109  (pathlib takes a while)
        socket.send_fds(server, [request.encode()], [0, 1, 2])
        answer = server.recv(1)
    return answer[0] if answer else 1


if __name__ == "__main__":
    sys.exit(ask(*sys.argv[1:]))
