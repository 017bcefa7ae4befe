"""Single threads of another process, stopped as a debugger stops them: SIGSTOP would stop all of them."""

import contextlib
import ctypes
import os
from collections.abc import Iterator

from loadtest.cluster.network import ClusterError

# ptrace(2), and waitpid(2) for __WALL, without which a thread is not waited for.
_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_WALL = 0x40000000


@contextlib.contextmanager
def stopped(thread_ids: list[int]) -> Iterator[None]:
    """Within the block they do not run; they go on at its end, also if this process or thread ends before."""
    seized: list[int] = []
    try:
        for thread_id in thread_ids:
            _ptrace(_SEIZE, thread_id)
            seized.append(thread_id)
            _ptrace(_INTERRUPT, thread_id)
            os.waitpid(thread_id, _WALL)
        yield
    finally:
        for thread_id in seized:
            with contextlib.suppress(ClusterError):  # it has ended with its process
                _ptrace(_DETACH, thread_id)


def _ptrace(request: int, thread_id: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(ctypes.c_long(request), ctypes.c_long(thread_id), None, None) == -1:
        number = ctypes.get_errno()
        raise ClusterError(
            f"thread {thread_id} cannot be stopped: {os.strerror(number)} (it takes CAP_SYS_PTRACE)"
        )
