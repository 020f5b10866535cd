"""Ground truths: what counts as certain, and what is remembered of it."""

import textwrap

import pytest

from codea1_jax.sandbox import Job, JobResult, Limits, SandboxPool, oracle
from codea1_jax.types import Status, Verdict

_QUICK = Limits(call_cpu_s=0.3, load_cpu_s=0.5, wall_factor=4.0)
_DOUBLE = "def f(x, k=2):\n  return x * k\n"


@pytest.fixture(scope="module")
def pool():
  with SandboxPool(workers=2, limits=_QUICK) as made:
    yield made


def test_oracle_keeps_what_is_certain(pool):
  program = """
    import random, time, uuid
    seen = []
    def f(kind):
      seen.append(kind)
      return {
        'plain': lambda: {'a': [1, (2.5,)]},
        'random': random.random,
        'seeded': lambda: random.Random(1).random(),
        'hash': lambda: list({'a', 'b', 'c', 'd', 'e', 'f', 'g'}),
        'set': lambda: {'b', 'a'},
        'time': time.time_ns,
        'uuid': lambda: str(uuid.uuid4()),
        'id': lambda: id(object()),
        'order': lambda: len(seen),
        'nan': lambda: [float('nan')],
        'object': object,
        'frozen': lambda: [frozenset({1})],
        'huge': lambda: 10 ** 5000,
        'raise': lambda: 1 / 0,
      }[kind]()
  """
  uncertain = ["random", "hash", "time", "uuid", "id", "order"]
  unwritable = ["nan", "frozen", "huge"]
  certain = ["plain", "seeded", "set"]
  failing = ["object", "raise", "missing"]
  kinds = certain + uncertain + unwritable + failing
  job = Job(textwrap.dedent(program), "f", tuple(f"f({k!r})" for k in kinds))
  (result,) = pool.oracle([job])
  got = {kind: v.status.value for kind, v in zip(kinds, result.calls)}
  wanted = dict.fromkeys(kinds, "invalid")
  wanted |= dict.fromkeys(certain, "pass") | dict.fromkeys(failing, "error")
  assert got == wanted
  assert result.calls[0].value == "{'a': [1, (2.5,)]}"
  detail = {kind: v.detail for kind, v in zip(kinds, result.calls)}
  assert all("not deterministic" in detail[kind] for kind in uncertain)
  assert all("no literal value" in detail[kind] for kind in unwritable)


@pytest.mark.parametrize("failing", [(), (0,), (1,), (0, 1), (0, 3)])
@pytest.mark.parametrize("count", [3, 4, 5, 6])
def test_no_call_of_an_oracle_is_asked_twice_at_one_place(pool, count, failing):
  program = f"""
    seen = []
    def f(x):
      seen.append(x)
      if x in {failing}: raise ValueError
      return len(seen)
  """
  calls = tuple(f"f({k})" for k in range(count))
  (result,) = pool.oracle([Job(textwrap.dedent(program), "f", calls)])
  assert not any(verdict.passed for verdict in result.calls), result.calls


def test_the_number_of_a_process_is_no_certain_answer():
  job = Job("import os\ndef f(x): return os.getpid()", "f", ("f(1)",))
  with SandboxPool(workers=1) as fresh:
    (result,) = fresh.oracle([job])
  assert result.calls[0].status is Status.INVALID


def test_oracle_is_cached_by_content(pool, monkeypatch):
  good = Job(_DOUBLE, "f", ("f(1)", "f('a')", "f(())"))
  bad = Job("def f(x", "f", ("f(1)",))
  first = pool.oracle([good, bad, good])
  assert first[0] == first[2]
  assert [v.value for v in first[0].calls] == ["2", "'aa'", "()"]
  assert first[1].load.status is Status.INVALID

  def run(messages):
    assert not messages
    return []

  monkeypatch.setattr(pool._client, "run", run)
  again = pool.oracle([bad, Job(_DOUBLE, "f", ("f('a')", "f(1)"))])
  assert again[0].load == first[1].load
  assert [v.value for v in again[1].calls] == ["'aa'", "2"]
  assert again[1].cpu_s == 0.0
  with pytest.raises(AssertionError):
    pool.oracle([Job(_DOUBLE, "f", ("f(5)",))])


_DIES_BELOW_0 = """
import os
def f(x):
  if x < 0: os._exit(0)
  return x
"""
_DEADLY = tuple(f"f({x})" for x in range(-5, 0))


@pytest.fixture
def mortal_pool():
  with SandboxPool(workers=1, limits=Limits(max_deaths=2)) as made:
    yield made


def test_every_call_of_an_oracle_has_its_chance(mortal_pool):
  calls = ("f(1)", *_DEADLY, "f(7)", "g(8)", "f(9)")
  (result,) = mortal_pool.oracle([Job(_DIES_BELOW_0, "f", calls)])
  details = {verdict.detail for verdict in result.calls[1:6]}
  assert details == {"exited with status 0"}
  assert [result.calls[k].value for k in (0, 6, 8)] == ["1", "7", "9"]
  assert result.calls[7].status is Status.INVALID
  assert not result.not_run
  (alone,) = mortal_pool.oracle([Job(_DIES_BELOW_0, "f", ("f(7)",))])
  assert alone.calls[0].value == "7" and alone.cpu_s == 0.0


def test_calls_have_their_chance_in_the_second_run_too(mortal_pool):
  program = """
    import os
    first = hash("a") % 2
    def f(x):
      if x < 0 and hash("a") % 1000 != SEED: os._exit(0)
      return x
  """
  seed_0 = (
    mortal_pool.run([Job("def f(x): return hash('a') % 1000", "f", ("f(0)",))])[
      0
    ]
    .calls[0]
    .value
  )
  text = textwrap.dedent(program).replace("SEED", seed_0)
  job = Job(text, "f", ("f(7)", "f(8)", *_DEADLY))
  (result,) = mortal_pool.oracle([job])
  assert [v.value for v in result.calls[:2]] == ["7", "8"]
  assert {v.status for v in result.calls[2:]} == {Status.ERROR}


def test_calls_that_were_not_run_are_not_remembered(pool):
  cache = oracle.OracleCache()
  job = Job(_DOUBLE, "f", ("f(1)", "f(2)"))
  passed, lost = Verdict(Status.PASS, "2"), Verdict(Status.TIMEOUT)
  cache.put(job, JobResult(passed, (passed, lost), 0.0, not_run=(1,)))
  assert cache.get(job) is None
  assert cache.get(Job(_DOUBLE, "f", ("f(1)",))).calls == (passed,)
  assert cache.get(Job(_DOUBLE, "f", ("f(2)",))) is None


def test_a_code_that_kills_processes_says_which_calls_were_not_run(mortal_pool):
  calls = ("f(1)", *_DEADLY, "f(7)", "g(8)", "f(9)")
  (result,) = mortal_pool.run([Job(_DIES_BELOW_0, "f", calls)])
  assert result.not_run == (3, 4, 5, 6, 8)
  details = {result.calls[k].detail for k in result.not_run}
  assert details == {"not run, after 2 ended processes"}


def test_calls_that_are_never_run_do_not_keep_an_oracle_for_ever(
  pool, monkeypatch
):
  """As where each child is overdue, and only one call a job is over."""
  sent = []

  def run(messages):
    sent.extend(messages)
    return [_overdue(len(message["calls"])) for message in messages]

  monkeypatch.setattr(pool._client, "run", run)
  calls = tuple(f"f({k})" for k in range(40))
  (result,) = pool.oracle([Job(f"# overdue\n{_DOUBLE}", "f", calls)])
  assert len(sent) == 1 + 3  # three times 16 deaths are enough for 40 calls
  assert result.not_run == tuple(range(4, 40))


def _overdue(count):
  calls = [["timeout", None, ""]] * count
  return [0, 0.0, ["pass", None, ""], calls, list(range(1, count))]
