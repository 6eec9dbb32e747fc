"""A process that answers like NCCL's RAS: run as `python -m ...ras_server PORT LIBRARY FILE HOW`.

It maps LIBRARY as a process with NCCL does, listens with SO_REUSEPORT, speaks the protocol of NVIDIA/nccl
v2.30.7 (src/ras/client_support.cc:165-473) and sends FILE, with its own process id for PID. HOW:

- `well`; `twice FILE2`: FILE2 from the second answer on
- `old`: one that knows no JSON
- `endless`: the answer has no end
- `half`: the connection ends within the answer
- `slow`: the answer does not come, and the process works on
- `late`: the answer comes after a second
- `other`: it is no NCCL

Each command that it was sent stands in FILE with the ending `.heard`, and `answered` for each answer that was taken.
"""

import mmap
import os
import socket
import sys
import threading
import time
from pathlib import Path


class Server:
    def __init__(self, answers: list[bytes], how: str, heard: Path) -> None:
        self.answers, self.how, self.heard = answers, how, heard
        self.asked = 0

    def serve(self, peer: socket.socket) -> None:
        with peer, peer.makefile("rb") as lines:
            for line in lines:
                words = line.strip().decode().upper()
                self._note(words)
                if words in {"STATUS", "VERBOSE STATUS"}:
                    self._answer(peer)
                    self._note("answered")
                    return
                peer.sendall(self._said(words))

    def _note(self, words: str) -> None:
        with self.heard.open("a") as file:
            file.write(words + "\n")

    def _said(self, words: str) -> bytes:
        if self.how == "other":
            return b"SSH-2.0-OpenSSH_9.6\n"
        if words.startswith("CLIENT PROTOCOL"):
            return b"SERVER PROTOCOL 2\n"
        if words.startswith("TIMEOUT"):
            return b"OK\n"
        if words.startswith("SET FORMAT") and self.how != "old":
            return b"OK\n"
        return f"ERROR: Unknown command {words}\n".encode()

    def _answer(self, peer: socket.socket) -> None:
        content = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if self.how == "slow":
            time.sleep(3600)
        if self.how == "late":
            time.sleep(1.0)
        if self.how == "half":
            content = content[: len(content) // 2]
        peer.sendall(content)
        while self.how == "endless":
            peer.sendall(b" " * 65536)


def main() -> None:
    port, library, file, how, *more = sys.argv[1:]
    answers = [Path(name).read_bytes() for name in (file, *more)]
    answers = [it.replace(b'"pid": 1,', b'"pid": %d,' % os.getpid()) for it in answers]
    server = Server(answers, how, Path(file + ".heard"))
    with open(library, "rb") as stream:
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.bind(("127.0.0.1", int(port)))
    listening.listen()
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    while mapped:
        peer, _ = listening.accept()
        threading.Thread(target=_served, args=(server, peer), daemon=True).start()


def _served(server: Server, peer: socket.socket) -> None:
    try:
        server.serve(peer)
    except OSError:
        return


if __name__ == "__main__":
    main()
