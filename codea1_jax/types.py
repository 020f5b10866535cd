"""The frozen records that the stages of a training step hand to each other.

Letters used across the package: Q questions in a step, M codes a question,
N suites a code, K tests a suite.
"""

import dataclasses
import enum


class Status(enum.StrEnum):
  """What became of one program or one call (ALGORITHM.md, Verdicts)."""

  PASS = "pass"
  FAIL = "fail"  # ran, returned another value than the expected one
  ERROR = "error"  # raised, exited, or returned something not plain data
  TIMEOUT = "timeout"
  MEMORY = "memory"
  INVALID = "invalid"  # not a test / not a program: nothing was run
  INFRASTRUCTURE = "infrastructure"  # our fault: masks the sample, never 0


@dataclasses.dataclass(frozen=True)
class Verdict:
  """One outcome. `value` is the returned value as canonical literal source."""

  status: Status
  value: str | None = None
  detail: str = ""

  @property
  def passed(self) -> bool:
    return self.status is Status.PASS


@dataclasses.dataclass(frozen=True)
class TestCase:
  """`assert CALL == EXPECTED`, both ast-normalized source text."""

  __test__ = False  # not a test class, whatever pytest thinks of its name

  call: str  # "f([1, 2], k=3)": a call of the entry point, literal arguments
  expected: str  # "[2, 1]": a Python literal

  @property
  def source(self) -> str:
    return f"assert {self.call} == {self.expected}"


@dataclasses.dataclass(frozen=True)
class Problem:
  """One programming question with its oracle."""

  id: str
  question: str
  signature: str  # "def f(xs):"
  entry_point: str
  ground_truth: str  # Python source that defines the entry point
  golden_tests: tuple[TestCase, ...] = ()  # evaluation and `golden_tests` only
  faulty_programs: tuple[str, ...] = ()  # fixed targets of the kill rate
  family: str = ""  # what the generator built it from; for reports


@dataclasses.dataclass(frozen=True)
class ParsedCode:
  """The program of a completion; `error` says why there is none."""

  source: str
  error: str = ""


@dataclasses.dataclass(frozen=True)
class ParsedSuite:
  """The first K tests of a completion, in order, and what did not parse."""

  tests: tuple[TestCase, ...]
  num_unparsed: int = 0  # statements that were meant as tests and are not


@dataclasses.dataclass(frozen=True)
class Completion:
  """One sampled text with the tokens it was read from (end token included)."""

  text: str
  tokens: tuple[int, ...]
  log_probs: tuple[float, ...]  # the sampler's own, one a token
  finished: bool  # ended by itself; False: cut by the length limit
