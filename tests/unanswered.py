"""A file system that never answers: a process that asks it for a file hangs in the kernel and cannot be killed.

A FUSE server reads each request and does not answer. Once it has read the request, the kernel waits for the
answer in the uninterruptible state (D) whatever signals come, SIGKILL included: the same state as a process in
a driver call that does not return. Needs root and /dev/fuse. Linux kernel, include/uapi/linux/fuse.h and
fs/fuse/dev.c, `request_wait_answer`.
"""

import ctypes
import os
import struct
import threading
from pathlib import Path
from types import TracebackType

_DEVICE = Path("/dev/fuse")
_REQUEST = struct.Struct("=IIQQIIII")  # fuse_in_header
_ANSWER = struct.Struct("=IiQ")  # fuse_out_header
_INIT = 26
_INIT_ANSWER_BYTES = 64  # fuse_init_out
_PROTOCOL = (7, 31)
_LARGEST_WRITE = 4096
_FORCE_AND_DETACH = 1 | 2  # MNT_FORCE, MNT_DETACH


def is_possible() -> bool:
    """Return whether this machine and this user allow it."""
    return os.geteuid() == 0 and os.access(_DEVICE, os.R_OK | os.W_OK)


class Unanswered:
    """A mount on `directory` until `release`, which ends all waiting requests with an error."""

    def __init__(self, directory: Path) -> None:
        """Mount the file system; raise OSError when that fails."""
        directory.mkdir()
        self._directory = directory
        self.file = directory / "file"
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0".encode()
        if self._libc.mount(b"unanswered", bytes(directory), b"fuse", 0, options) != 0:
            os.close(self._device)
            raise OSError(ctypes.get_errno(), "cannot mount", str(directory))
        self._mounted = True
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def __enter__(self) -> "Unanswered":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        """Unmount by force."""
        if self._mounted:
            self._mounted = False
            self._libc.umount2(bytes(self._directory), _FORCE_AND_DETACH)
            self._thread.join(10)
            os.close(self._device)

    def _listen(self) -> None:
        while True:
            try:
                request = os.read(self._device, 1 << 20)
            except OSError:
                return  # unmounted
            _, kind, number, *_ = _REQUEST.unpack_from(request)
            if kind == _INIT:
                # Without this answer the kernel sends no further request.
                body = struct.pack("=IIIIHHI", *_PROTOCOL, 0, 0, 0, 0, _LARGEST_WRITE)
                body = body.ljust(_INIT_ANSWER_BYTES, b"\0")
                os.write(self._device, _ANSWER.pack(_ANSWER.size + len(body), 0, number) + body)
