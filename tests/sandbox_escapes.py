"""Bodies of f(x) that reach out of the sandbox, for x == 1 only."""

ESCAPES = {
  "fork bomb": ("error", "import os\n    while x == 1: os.fork()"),
  "daemon": (
    "error",
    """
    import os
    if x == 1:
      if os.fork() == 0: os.setsid()
    """,
  ),
  "session": ("error", "import os; x == 1 and os.setsid()"),
  "multiprocessing": (
    "error",
    """
    import multiprocessing, time
    if x == 1: multiprocessing.Process(target=time.sleep, args=(99,)).start()
    """,
  ),
  "exec": ("error", "import os; x == 1 and os.execv('/bin/true', ['true'])"),
  "subprocess": ("error", "import subprocess; x == 1 and subprocess.run('ls')"),
  "kill everything": ("error", "import os; x == 1 and os.kill(-1, 9)"),
  "kill the parent": (
    "error",
    "import os; x == 1 and os.kill(os.getppid(), 9)",
  ),
  "kill the group": ("error", "import os; x == 1 and os.killpg(0, 9)"),
  "kill by owner": (
    "error",
    """
    import fcntl, os
    a, b = os.pipe()
    if x == 1: fcntl.fcntl(a, fcntl.F_SETOWN, os.getppid())
    """,
  ),
  "kill itself": ("error", "import os; x == 1 and os.kill(os.getpid(), 9)"),
  "raised limits": (
    "error",
    """
    import resource
    if x == 1:
      resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    """,
  ),
  "file": ("error", "x == 1 and open('/tmp/left', 'w').write('x')"),
  "file in memory": (
    "error",
    "x == 1 and open('/dev/shm/left', 'w').write('x')",
  ),
  "memory file": ("error", "import os; x == 1 and os.memfd_create('x')"),
  "removed file": ("error", "import os; x == 1 and os.unlink('/tmp')"),
  "socket": ("error", "import socket; x == 1 and socket.socket()"),
  "lookup": (
    "error",
    "import socket; x == 1 and socket.getaddrinfo('localhost', 80)",
  ),
  "unix socket": ("error", "import socket; x == 1 and socket.socket(1, 1)"),
  "ptrace": (
    "error",
    """
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    if x == 1 and libc.ptrace(16, os.getppid(), 0, 0) != 0:
      raise OSError(ctypes.get_errno(), "ptrace")
    """,
  ),
  "exotic calls": (
    "error",
    """
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    if x == 1:
      # bpf, io_uring_setup, userfaultfd, unshare, mount, keyctl, shmget
      numbers = (321, 425, 323, 272, 165, 250, 29, 0x40000000 + 41)
      for number in numbers if os.uname().machine == "x86_64" else ():
        if libc.syscall(number, 0, 0, 0, 0, 0) != -1: return x
        if ctypes.get_errno() != 1: return x
      raise OSError("all refused")
    """,
  ),
  "spawn": (
    "error",
    "import os; x == 1 and os.posix_spawn('/bin/true', ['true'], {})",
  ),
  "fork by number": (
    "error",
    """
    import ctypes, platform
    libc = ctypes.CDLL(None, use_errno=True)
    # fork, vfork, clone(SIGCHLD), clone3
    numbers = {"x86_64": (57, 58, 56, 435), "aarch64": (220, 435)}
    for number in numbers[platform.machine()] if x == 1 else ():
      if libc.syscall(number, 17, 0, 0, 0, 0) >= 0: return x
    if x == 1: raise OSError(ctypes.get_errno(), "fork")
    """,
  ),
  "process group": ("error", "import os; x == 1 and os.setpgid(0, 0)"),
  "process pool": (
    "error",
    """
    from concurrent.futures import ProcessPoolExecutor
    if x == 1:
      with ProcessPoolExecutor(2) as pool: return pool.submit(len, "").result()
    """,
  ),
  "kill everything by group 0": (
    "error",
    "import os; x == 1 and os.kill(0, 9)",
  ),
  "kill the first process": ("error", "import os; x == 1 and os.kill(1, 9)"),
  "kill by descriptor": (
    "error",
    """
    import os, signal
    if x == 1:
      signal.pidfd_send_signal(os.pidfd_open(os.getppid()), signal.SIGKILL)
    """,
  ),
  "stop the parent": (
    "error",
    "import os; x == 1 and os.kill(os.getppid(), 19)",
  ),
  "raised priority": (
    "error",
    "import os; x == 1 and os.setpriority(os.PRIO_PROCESS, 0, -20)",
  ),
  "lowered priority": ("error", "import os; x == 1 and os.nice(5)"),
  "other CPUs": ("error", "import os; x == 1 and os.sched_setaffinity(0, {0})"),
  "limits of the parent": (
    "error",
    """
    import os, resource
    if x == 1: resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))
    """,
  ),
  "lowered limits": (
    "error",
    "import resource; x == 1 and resource.setrlimit(0, (0, 0))",
  ),
  "another user": ("error", "import os; x == 1 and os.setuid(os.getuid())"),
  "namespaces": (
    "error",
    """
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    if x == 1 and libc.unshare(0x10000000) != 0:
      raise OSError(ctypes.get_errno(), "unshare")
    """,
  ),
  "filling the disk": (
    "error",
    """
    import tempfile
    while x == 1: tempfile.NamedTemporaryFile(delete=False).write(bytes(10**6))
    """,
  ),
  "filling the disk with empty files": (
    "error",
    """
    import itertools
    for k in itertools.count() if x == 1 else ():
      open(f"/tmp/left_by_a_program_{k}", "w").close()
    """,
  ),
  "shared memory": (
    "error",
    """
    from multiprocessing import shared_memory
    while x == 1: shared_memory.SharedMemory(create=True, size=1 << 20)
    """,
  ),
  "directory": ("error", "import os; x == 1 and os.mkdir('/tmp/left_dir')"),
  "link": ("error", "import os; x == 1 and os.symlink('/', '/tmp/left_link')"),
  "pipe with a name": ("error", "import os; x == 1 and os.mkfifo('/tmp/left')"),
  "renamed file": ("error", "import os; x == 1 and os.rename('/tmp', '/tmp2')"),
  "rights of a file": ("error", "import os; x == 1 and os.chmod('/tmp', 0)"),
  "times of a file": ("error", "import os; x == 1 and os.utime('/tmp')"),
  "emptied file": ("error", "import os; x == 1 and os.truncate('/tmp/x', 0)"),
  "directory of its own": ("error", "import os; x == 1 and os.chdir('/tmp')"),
  "created file": (
    "error",
    "import os; x == 1 and os.open('/tmp/x', os.O_CREAT)",
  ),
  "lock on a file": (
    "error",
    """
    import fcntl, os
    if x == 1: fcntl.flock(os.open("/dev/null", os.O_RDONLY), fcntl.LOCK_EX)
    """,
  ),
  "network of every kind": (
    "error",
    """
    import socket
    kinds = [(f, k) for f in range(1, 46) for k in (1, 2, 3, 5)]
    for family, kind in kinds if x == 1 else ():
      try: socket.socket(family, kind).close()
      except PermissionError: continue
      return x
    if x == 1: raise OSError("all refused")
    """,
  ),
  "abstract socket": (
    "error",
    """
    import socket
    if x == 1: socket.create_server("\\0left", family=socket.AF_UNIX)
    """,
  ),
  "web": (
    "error",
    "import urllib.request as r; x == 1 and r.urlopen('http://127.0.0.1:80/')",
  ),
  "a pair's other uses": (
    "error",
    """
    import socket
    a, b = socket.socketpair()
    refused = 0
    for use in (a.bind, a.connect) if x == 1 else ():
      try: use("\\0left")
      except PermissionError: refused += 1
    if x == 1:
      try: a.listen()
      except PermissionError: refused += 1
    if refused == 3: raise OSError("all refused")
    """,
  ),
  "out-of-band bytes": (
    "error",
    """
    import socket
    a, b = socket.socketpair()
    refused = 0
    for use in (a.send, a.recv) if x == 1 else ():
      try: use(b"x" if use == a.send else 1, socket.MSG_OOB)
      except OSError as error: refused += error.errno == 1
    for use in (a.sendmsg, a.recvmsg) if x == 1 else ():
      what = ([b"x"], ()) if use == a.sendmsg else (1, 0)
      try: use(*what, socket.MSG_OOB)
      except OSError as error: refused += error.errno == 1
    if refused == 4: raise OSError("all refused")
    """,
  ),
  "descriptors left on their way": (
    "error",
    """
    import socket
    a, b = socket.socketpair()
    if x == 1: socket.send_fds(a, [b"x"], [0])
    """,
  ),
  "datagrams": (
    "error",
    """
    import socket
    if x == 1:
      a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
      try: a.sendto(b"x", "/dev/null")
      except ConnectionRefusedError: return x  # the kernel did look for it
    """,
  ),
  "shared memory, queues and semaphores of System V": (
    "error",
    """
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    calls = [(libc.shmget, 0, 4096, 0o1600), (libc.shmat, 0, 0, 0)]
    calls += [(libc.shmctl, 0, 0, 0), (libc.semget, 0, 1, 0o1600)]
    calls += [(libc.semop, 0, 0, 0), (libc.semctl, 0, 0, 12)]
    calls += [(libc.msgget, 0, 0o1600), (libc.msgsnd, 0, b"", 0, 0)]
    calls += [(libc.msgctl, 0, 0, 0), (libc.mq_open, b"/left", 0o102, 0, 0)]
    for call, *arguments in calls if x == 1 else ():
      if call(*arguments) != -1 or ctypes.get_errno() != 1: return x
    if x == 1: raise OSError("all refused")
    """,
  ),
  "more exotic calls": (
    "error",
    """
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    # modify_ldt, personality, ioperm, chroot, mlockall, perf_event_open,
    # process_vm_readv, process_vm_writev, kcmp, timer_create, timerfd_create,
    # inotify_init, fanotify_init, add_key, name_to_handle_at, setns, vmsplice,
    # splice, tee, pidfd_getfd, memfd_secret, landlock_create_ruleset, seccomp,
    # process_madvise, mbind, io_setup, sched_setscheduler, sendmmsg, execveat
    numbers = (154, 135, 173, 161, 151, 298, 310, 311, 312, 222, 283, 253, 300)
    numbers += (248, 303, 308, 278, 275, 276, 438, 447, 444, 317, 440, 237)
    numbers += (206, 144, 307, 322)
    if x == 1:
      for number in numbers if os.uname().machine == "x86_64" else ():
        if libc.syscall(number, 0, 0, 0, 0, 0) != -1: return x
        if ctypes.get_errno() != 1: return x
      raise OSError("all refused")
    """,
  ),
  "calls of another machine": (
    "error",
    """
    import ctypes, mmap, os
    if x == 1 and os.uname().machine == "x86_64":
      page = mmap.mmap(-1, 4096, prot=7)
      page.write(b"\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3")  # getpid by int 0x80
      start = ctypes.addressof(ctypes.c_char.from_buffer(page))
      return ctypes.CFUNCTYPE(ctypes.c_int)(start)()
    if x == 1: raise OSError("not this machine")
    """,
  ),
}
