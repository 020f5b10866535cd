"""Ground truths: what counts as certain, and what is remembered of it."""

import textwrap

import pytest

from codea1_jax.sandbox import Job, Limits, SandboxPool
from codea1_jax.types import Status

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
