"""Programs that are paid for a verdict and try to fake it: none gets one."""

import os
import pathlib
import textwrap

import pytest
import sandbox_batches as batches
from sandbox_claims import CLAIMS
from sandbox_fakes import FAKES
from sandbox_thefts import THEFTS

from codea1_jax.sandbox import Job, Limits, SandboxPool

_FAKES = FAKES | THEFTS | CLAIMS
_LIMITS = Limits(call_cpu_s=0.5, load_cpu_s=0.5, wall_factor=10.0)


@pytest.fixture(scope="module")
def pool():
  with SandboxPool(workers=1, limits=_LIMITS) as made:
    yield made


@pytest.mark.parametrize("name", _FAKES)
def test_a_fake_gets_no_mark_and_harms_nobody(pool, name):
  jobs = batches.fake_jobs(_FAKES[name], batches.make_secrets())
  assert batches.complaint_on_fake(*pool.run(jobs)) == ""


def test_nothing_is_left_for_the_next_job(pool):
  leave = """
    import builtins, sys
    frame = sys._getframe()
    while "progress" not in frame.f_locals: frame = frame.f_back
    def f():
      builtins.note = "secret note"
      frame.f_locals["progress"][16:27] = b"secret note"
      return hasattr(builtins, "note"), b"note" in frame.f_locals["progress"][:]
  """
  look = """
    import builtins, sys
    frame = sys._getframe()
    while "progress" not in frame.f_locals: frame = frame.f_back
    def f():
      return hasattr(builtins, "note"), b"note" in frame.f_locals["progress"][:]
  """
  first, second = pool.run(
    [Job(textwrap.dedent(text), "f", ("f()",)) for text in (leave, look)]
  )
  assert first.calls[0].value == "(True, True)"
  assert second.calls[0].value == "(False, False)"


def test_no_trace_of_the_harness_to_sniff(pool):
  program = """
    import os, sys
    def f():
      names = [n for n in sys.modules if "codea1" in n or "pytest" in n]
      return names, dict(os.environ), sys.argv, [p for p in sys.path if not p]
  """
  (result,) = pool.run([Job(textwrap.dedent(program), "f", ("f()",))])
  assert result.calls[0].value == "([], {}, [''], [])"


def test_files_of_project_and_home_are_closed(pool):
  if "landlock" not in pool.description:
    pytest.skip("this kernel has no landlock")
  here = pathlib.Path(__file__).resolve()
  paths = [
    str(here),
    str(here.parents[1]),
    "/etc/passwd",
    "/",
    str(here.home()),
  ]
  program = """
    import os
    def f(path):
      return os.listdir(path) if os.path.isdir(path) else open(path).read()
  """
  calls = tuple(f"f({path!r})" for path in paths)
  (result,) = pool.run([Job(textwrap.dedent(program), "f", calls)])
  details = [verdict.detail for verdict in result.calls]
  assert all("PermissionError" in detail for detail in details)


def test_the_result_pipe_cannot_be_opened_again(pool):
  """Who reads from it takes frames back."""
  if "seccomp" not in pool.description:
    pytest.skip("without a system call filter a program may change its mode")
  program = """
    import os
    def f(flags): return os.open("/proc/self/fd/4", flags)
    def chmod(): os.chmod("/proc/self/fd/4", 0o600)
  """
  calls = tuple(f"f({flags})" for flags in (os.O_RDONLY, os.O_NONBLOCK))
  text = textwrap.dedent(program)
  results = pool.run([Job(text, "f", calls), Job(text, "chmod", ("chmod()",))])
  verdicts = [verdict for result in results for verdict in result.calls]
  details = [verdict.detail for verdict in verdicts]
  assert all("PermissionError" in detail for detail in details), verdicts
