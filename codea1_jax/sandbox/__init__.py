"""Runs programs that nobody trusts, and says what they returned.

    job = Job("def f(x): return x + 1", "f", ("f(1)", "f(2)"), ("2", "4"))
    with SandboxPool() as pool:
      (result,) = pool.run([job])
    result.load.passed, [call.status for call in result.calls]  # PASS, FAIL

The trainer talks to a manager process, which judges and holds the expected
values but runs no code; warm zygotes fork one child a job, and only those run
programs. Values are compared in the manager, so that a program can end itself,
lie about its types or write into every descriptor and yet only claim what it
returned. The kernel's layers (isolation.py) bound what else it can do.

Not covered: faults of the kernel itself; side channels such as timing, the load
of the machine and the access times of files, by which programs may leave each
other notes; memory beyond the address space limit that the kernel spends on a
program's behalf (page tables, socket buffers).
"""

from codea1_jax.sandbox.limits import (
  CheckJob,
  CheckResult,
  Job,
  JobResult,
  Limits,
)
from codea1_jax.sandbox.pool import SandboxPool

__all__ = [
  "CheckJob",
  "CheckResult",
  "Job",
  "JobResult",
  "Limits",
  "SandboxPool",
]
