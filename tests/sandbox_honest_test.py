"""Honest programs that do unusual things: the sandbox must not mind."""

import textwrap

import pytest
from sandbox_batches import CALLS
from sandbox_odd import ODD

from codea1_jax.sandbox import Job, Limits, SandboxPool


@pytest.fixture(scope="module")
def pool():
  with SandboxPool(workers=1, limits=Limits(wall_factor=20.0)) as made:
    yield made


@pytest.mark.parametrize("name", ODD)
def test_honest_but_unusual_programs_pass(pool, name):
  job = Job(textwrap.dedent(ODD[name]), "f", CALLS, ("90",) * 3)
  (result,) = pool.run([job])
  assert [verdict.detail for verdict in result.calls] == [""] * 3
  assert all(verdict.passed for verdict in result.calls)
