"""A default-deny system call filter in raw BPF, for x86_64 and aarch64.

What is not listed fails with EPERM, so that honest code sees an OSError. Left:
computing, memory, threads, reading files that landlock lets it open, its own
pipes and socket pairs, signals to itself. Not left: processes, exec, sockets,
sendmsg (descriptors on their way count against the user, us included), files to
write, other processes' memory, limits, namespaces, kernel keys...
"""

import ctypes
import errno
import os
import struct

from codea1_jax.sandbox import kernel

_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_KILL_PROCESS, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
_LOAD, _JUMP_EQUAL, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_OWN_PID = 0xFEEDF00D  # stands for the child's pid until it is known

_CLONE_THREAD = 0x00010000
# O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_APPEND and the bit of O_TMPFILE.
_OPEN_WRITES = 0x1 | 0x2 | 0o100 | 0o1000 | 0o2000 | 0o20000000
_FCNTL = (0, 1, 2, 3, 4, 1030)  # dup and flags; no F_SETOWN: it sends signals
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # tty?, nonblocking
_PRCTL_SET_NAME = 15
_OUT_OF_BAND = 1  # MSG_OOB, which no program needs and kernels got wrong
_STREAMS = (1, 0o4001, 0o2000001, 0o2004001)  # nonblocking, closed by exec

# name: (x86_64, aarch64); None where the machine has no such call.
_ALLOWED = {
  "read": (0, 63),
  "write": (1, 64),
  "close": (3, 57),
  "mmap": (9, 222),
  "munmap": (11, 215),
  "brk": (12, 214),
  "mprotect": (10, 226),
  "mremap": (25, 216),
  "madvise": (28, 233),
  "futex": (202, 98),
  "clock_gettime": (228, 113),
  "exit_group": (231, 94),
  "exit": (60, 93),
  "stat": (4, None),
  "fstat": (5, 80),
  "lstat": (6, None),
  "newfstatat": (262, 79),
  "statx": (332, 291),
  "lseek": (8, 62),
  "getdents64": (217, 61),
  "access": (21, None),
  "faccessat": (269, 48),
  "faccessat2": (439, 439),
  "readlink": (89, None),
  "readlinkat": (267, 78),
  "getcwd": (79, 17),
  "pread64": (17, 67),
  "pwrite64": (18, 68),
  "readv": (19, 65),
  "writev": (20, 66),
  "dup": (32, 23),
  "dup2": (33, None),
  "dup3": (292, 24),
  "close_range": (436, 436),
  "pipe": (22, None),
  "pipe2": (293, 59),
  "eventfd2": (290, 19),
  "poll": (7, None),
  "ppoll": (271, 73),
  "select": (23, None),
  "pselect6": (270, 72),
  "epoll_create1": (291, 20),
  "epoll_ctl": (233, 21),
  "epoll_wait": (232, None),
  "epoll_pwait": (281, 22),
  "shutdown": (48, 210),
  "getsockname": (51, 204),
  "getpeername": (52, 205),
  "getsockopt": (55, 209),
  "rt_sigaction": (13, 134),
  "rt_sigprocmask": (14, 135),
  "rt_sigreturn": (15, 139),
  "rt_sigpending": (127, 136),
  "rt_sigtimedwait": (128, 137),
  "rt_sigsuspend": (130, 133),
  "sigaltstack": (131, 132),
  "restart_syscall": (219, 128),
  "pause": (34, None),
  "alarm": (37, None),
  "getitimer": (36, 102),
  "setitimer": (38, 103),
  "nanosleep": (35, 101),
  "clock_nanosleep": (230, 115),
  "clock_getres": (229, 114),
  "gettimeofday": (96, 169),
  "time": (201, None),
  "times": (100, 153),
  "getrandom": (318, 278),
  "sched_yield": (24, 124),
  "sched_getaffinity": (204, 123),
  "set_robust_list": (273, 99),
  "set_tid_address": (218, 96),
  "rseq": (334, 293),
  "membarrier": (324, 283),
  "getpid": (39, 172),
  "getppid": (110, 173),
  "gettid": (186, 178),
  "getuid": (102, 174),
  "geteuid": (107, 175),
  "getgid": (104, 176),
  "getegid": (108, 177),
  "getrusage": (98, 165),
  "getrlimit": (97, None),
  "uname": (63, 160),
  "sysinfo": (99, 179),
}
# These glibc calls have an older form to fall back to, which can be filtered.
_UNKNOWN = {"clone3": (435, 435), "openat2": (437, 437)}


def _instruction(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
  return struct.pack("<HBBI", code, yes, no, k)


_OK = _instruction(_RETURN, _ALLOW)
_DENY = _instruction(_RETURN, _ERRNO | errno.EPERM)


def _argument(index: int, high: bool = False) -> bytes:
  """Loads the low (or high) half of an argument; both are little-endian."""
  return _instruction(_LOAD, 16 + 8 * index + 4 * high)


def _one_of(index: int, values: tuple[int, ...]) -> bytes:
  checks = [_instruction(_JUMP_EQUAL, value, 0, 1) + _OK for value in values]
  return _argument(index) + b"".join(checks) + _DENY


def _without_bits(index: int, mask: int) -> bytes:
  return (
    _argument(index) + _instruction(_JUMP_ANY_BIT, mask, 0, 1) + _DENY + _OK
  )


def _with_bit(index: int, bit: int) -> bytes:
  return _argument(index) + _instruction(_JUMP_ANY_BIT, bit, 0, 1) + _OK + _DENY


def _reading_own_limits() -> bytes:
  """prlimit64(0, resource, NULL, old)."""
  zero = _instruction(_JUMP_EQUAL, 0, 1, 0) + _DENY
  return (
    _argument(0) + zero + _argument(2) + zero + _argument(2, True) + zero + _OK
  )


def _stream_pair() -> bytes:
  """socketpair(AF_UNIX, SOCK_STREAM): one of datagrams, though connected, can
  send to any socket file of the machine."""
  unix = _instruction(_JUMP_EQUAL, 1, 1, 0) + _DENY
  return _argument(0) + unix + _one_of(1, _STREAMS)


def _checked() -> dict[tuple[int, int | None], bytes]:
  """Calls that depend on their arguments."""
  return {
    (257, 56): _without_bits(2, _OPEN_WRITES),  # openat
    (2, None): _without_bits(1, _OPEN_WRITES),  # open
    (56, 220): _with_bit(0, _CLONE_THREAD),  # clone
    (72, 25): _one_of(1, _FCNTL),  # fcntl
    (16, 29): _one_of(1, _IOCTL),  # ioctl
    (157, 167): _one_of(0, (_PRCTL_SET_NAME,)),  # prctl
    (62, 129): _one_of(0, (_OWN_PID,)),  # kill
    (234, 131): _one_of(0, (_OWN_PID,)),  # tgkill
    (53, 199): _stream_pair(),  # socketpair
    (44, 206): _without_bits(3, _OUT_OF_BAND),  # sendto
    (45, 207): _without_bits(3, _OUT_OF_BAND),  # recvfrom
    (47, 212): _without_bits(2, _OUT_OF_BAND),  # recvmsg
    (302, 261): _reading_own_limits(),  # prlimit64
  }


def build() -> bytes:
  """The filter for this machine, with a mark where the own pid belongs.

  Raises:
    OSError: no filter is written for this machine.
  """
  if not kernel.IS_LINUX or kernel.MACHINE not in _ARCH:
    raise OSError(f"seccomp: no filter for {kernel.MACHINE}")
  column = list(_ARCH).index(kernel.MACHINE)
  arch = _ARCH[kernel.MACHINE]
  parts = [
    _instruction(_LOAD, 4),
    _instruction(_JUMP_EQUAL, arch, 1, 0),
    _instruction(_RETURN, _KILL_PROCESS),
    _instruction(_LOAD, 0),
  ]
  rules = {numbers: _OK for numbers in _ALLOWED.values()}
  rules |= _checked()
  nosys = _instruction(_RETURN, _ERRNO | errno.ENOSYS)
  rules |= {numbers: nosys for numbers in _UNKNOWN.values()}
  for numbers, body in rules.items():
    if numbers[column] is not None:
      skip = len(body) // 8
      parts.append(_instruction(_JUMP_EQUAL, numbers[column], 0, skip) + body)
  return b"".join(parts) + _DENY


def install(program: bytes) -> None:
  """Binds this process and all its later threads; needs no_new_privs."""
  own = program.replace(
    struct.pack("<I", _OWN_PID), struct.pack("<I", os.getpid())
  )
  buffer = ctypes.create_string_buffer(own, len(own))
  header = ctypes.create_string_buffer(
    struct.pack("HxxxxxxQ", len(own) // 8, ctypes.addressof(buffer))
  )
  kernel.prctl(kernel.PR_SET_SECCOMP, 2, ctypes.addressof(header))
