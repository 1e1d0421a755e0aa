"""Faults: a process is watched from outside at every change it makes to a folder, and stopped or failed at the n-th.

The kernel itself hands each call over (seccomp user notification, Linux 5.5; needs no root and no compiler), so that
what Python, Rust, Arrow and PyTorch write is seen alike, and nothing in the product knows of it. A call is held while
its number is compared; it then goes on, fails with an errno, or the process gets a signal before the call is made.
What a killed process can leave in a folder is what it had done before one of these calls: going through all numbers
goes through all states.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from errno import ENOENT
from pathlib import Path
from typing import NoReturn

__all__ = ["GROWING", "Change", "Ended", "available", "run_process", "run_unwatched"]


@dataclass(frozen=True, slots=True)
class Change:
    """One call that changes the folder: its number (from 1), its name, and the path it is about."""

    number: int
    call: str
    path: str


@dataclass(slots=True)
class Ended:
    """How a process ended: exit status, or minus the signal; what it changed; whether the fault was reached."""

    status: int
    changes: list[Change] = field(default_factory=list)


#: Calls that need space, so that a full disk can fail them.
GROWING = {
    "write", "pwrite64", "writev", "pwritev", "open", "creat", "openat", "mkdir", "mkdirat", "rename", "renameat",
    "renameat2", "ftruncate", "fallocate", "fsync", "fdatasync", "sendfile", "copy_file_range",
}  # fmt: skip
# name: (number, where the path is: "fd" in argument 0, "path" in argument 0, "at" = folder in 0 and path in 1)
_X86_64 = {
    "write": (1, "fd"), "pwrite64": (18, "fd"), "writev": (20, "fd"), "pwritev": (296, "fd"), "open": (2, "path"),
    "creat": (85, "path"), "openat": (257, "at"), "mkdir": (83, "path"), "mkdirat": (258, "at"),
    "rename": (82, "path"), "renameat": (264, "at"), "renameat2": (316, "at"), "unlink": (87, "path"),
    "unlinkat": (263, "at"), "rmdir": (84, "path"), "ftruncate": (77, "fd"), "fallocate": (285, "fd"),
    "fsync": (74, "fd"), "fdatasync": (75, "fd"), "chmod": (90, "path"), "fchmod": (91, "fd"),
    "fchmodat": (268, "at"), "sendfile": (40, "fd"), "copy_file_range": (326, "copy"),
}  # fmt: skip
_AARCH64 = {
    "write": (64, "fd"), "pwrite64": (68, "fd"), "writev": (66, "fd"), "pwritev": (70, "fd"), "openat": (56, "at"),
    "mkdirat": (34, "at"), "renameat": (38, "at"), "renameat2": (276, "at"), "unlinkat": (35, "at"),
    "ftruncate": (46, "fd"), "fallocate": (47, "fd"), "fsync": (82, "fd"), "fdatasync": (83, "fd"),
    "fchmod": (52, "fd"), "fchmodat": (53, "at"), "sendfile": (71, "fd"), "copy_file_range": (285, "copy"),
}  # fmt: skip
#: machine -> (calls, number of seccomp(2), AUDIT_ARCH of the kernel's headers)
_MACHINES = {"x86_64": (_X86_64, 317, 0xC000003E), "aarch64": (_AARCH64, 277, 0xC00000B7)}
_FLAGS_AT = {"open": 1, "openat": 2}  # the argument with O_CREAT
_NOTIFY, _ALLOW = 0x7FC00000, 0x7FFF0000
_RECEIVE, _ANSWER, _GO_ON = 0xC0502100, 0xC0182101, 1
_AT_CWD = -100


def available() -> bool:
    """Say whether this kernel lets a process be watched."""
    try:
        return run_process(lambda: 0, "/nowhere").status == 0
    except OSError:
        return False


def run_process(
    main: Callable[[], int], folder: Path | str, fault: Callable[[Change], int | None] | None = None
) -> Ended:
    """Fork, run ``main`` in the child (in a process group of its own) and return how it ended.

    The parent must have no thread that holds a lock.

    Parameters
    ----------
    main : callable
        Returns the exit status.
    folder : path
        Changes of what is in it are counted.
    fault : callable, optional
        Is asked before each change. None lets the call be made; a positive number is the errno with which it fails;
        a negative number is a signal (``-signal.SIGKILL``) that the process group gets before the call is made.

    Raises
    ------
    OSError
        The kernel does not let the child be watched.
    """
    root = os.path.realpath(folder)
    here, there = socket.socketpair()
    child = os.fork()
    if child == 0:
        _child(lambda: _handed_over(there) or main())
    there.close()
    ended = Ended(0)
    try:
        _, received, _, _ = socket.recv_fds(here, 1, 1)
        here.close()
        if not received:
            raise OSError("seccomp user notification is not available")
        _watch(received[0], child, root, fault, ended.changes)
    finally:
        _, status = os.waitpid(child, 0)
    ended.status = os.waitstatus_to_exitcode(status)
    return ended


def run_unwatched(main: Callable[[], int], seconds: float | None = None) -> Ended:
    """As :func:`run_process`, not watched; after ``seconds`` the process group is killed."""
    child = os.fork()
    if child == 0:
        _child(main)
    with contextlib.suppress(OSError):  # whoever comes first
        os.setpgid(child, child)
    process = os.pidfd_open(child)
    try:
        if seconds is not None and not select.select([process], [], [], seconds)[0]:
            os.killpg(child, signal.SIGKILL)
        return Ended(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    finally:
        os.close(process)


def _child(main: Callable[[], int]) -> NoReturn:
    status = 70
    try:
        os.setpgid(0, 0)
        status = main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _watch(
    listener: int, group: int, root: str, fault: Callable[[Change], int | None] | None, seen: list[Change]
) -> None:
    calls = {number: (name, where) for name, (number, where) in _MACHINES[platform.machine()][0].items()}
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    try:
        while poll.poll()[0][1] & select.POLLIN:
            message = bytearray(80)
            try:
                fcntl.ioctl(listener, _RECEIVE, message)
            except OSError as error:
                if error.errno == ENOENT:  # the call was given up: a signal came
                    continue
                raise
            request, thread, _, number, _, _, *arguments = struct.unpack("=QIIiIQ6Q", message)
            name, where = calls[number]
            path = _path(thread, where, arguments)
            answer: int | None = None
            if path is not None and (path + "/").startswith(root + "/") and _creates(name, arguments):
                seen.append(Change(len(seen) + 1, name, path[len(root) + 1 :]))
                answer = fault(seen[-1]) if fault else None
            if answer is not None and answer < 0:
                os.killpg(group, -answer)
                if -answer == signal.SIGKILL:
                    continue
                answer = None
            response = struct.pack("=Qqii", request, 0, -(answer or 0), 0 if answer else _GO_ON)
            try:
                fcntl.ioctl(listener, _ANSWER, response)
            except OSError as error:
                if error.errno != ENOENT:
                    raise
    finally:
        os.close(listener)


def _handed_over(there: socket.socket) -> None:
    listener = _listen()
    socket.send_fds(there, [b"x"], [listener])
    os.close(listener)
    there.close()


def _creates(name: str, arguments: list[int]) -> bool:
    return name not in _FLAGS_AT or bool(arguments[_FLAGS_AT[name]] & (os.O_CREAT | os.O_TRUNC))


def _path(thread: int, where: str, arguments: list[int]) -> str | None:
    """Absolute path a call is about; None when it has gone."""
    try:
        if where == "fd":
            return os.readlink(f"/proc/{thread}/fd/{arguments[0]}")
        if where == "copy":
            return os.readlink(f"/proc/{thread}/fd/{arguments[2]}")
        address = arguments[1 if where == "at" else 0]
        with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
            path = os.fsdecode(os.pread(memory.fileno(), 4096 - address % 4096, address).split(b"\0")[0])
            if address % 4096 and "\0" not in path and len(path) == 4096 - address % 4096:
                path += os.fsdecode(os.pread(memory.fileno(), 4096, address + len(path)).split(b"\0")[0])
        if path.startswith("/"):
            return path
        descriptor = ctypes.c_int(arguments[0] & 0xFFFFFFFF).value if where == "at" else _AT_CWD
        base = os.readlink(f"/proc/{thread}/cwd" if descriptor == _AT_CWD else f"/proc/{thread}/fd/{descriptor}")
        return os.path.join(base, path)
    except OSError:
        return None


def _listen() -> int:
    """Have the kernel hand over the calls of this process; returns the descriptor they come from."""
    calls, seccomp, machine = _MACHINES[platform.machine()]
    numbers = [number for number, _ in calls.values()]
    code = [(0x20, 0, 0, 4), (0x15, 1, 0, machine), (0x06, 0, 0, _ALLOW), (0x20, 0, 0, 0)]
    code += [(0x15, len(numbers) - index, 0, number) for index, number in enumerate(numbers)]
    code += [(0x06, 0, 0, _ALLOW), (0x06, 0, 0, _NOTIFY)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in code))
    pointer = ctypes.create_string_buffer(struct.pack("@HP", len(code), ctypes.addressof(program)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, 1, 0, 0, 0)  # no new privileges
    listener = libc.syscall(seccomp, 1, 8, pointer)  # SECCOMP_SET_MODE_FILTER, with a listener
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return int(listener)
