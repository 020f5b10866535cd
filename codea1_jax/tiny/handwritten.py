"""Problems written by hand: simple algorithms that are no composition.

They are training problems only: held-out problems are new compositions of
known blocks, and an algorithm that was never shown is not one.
"""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Handwritten:
  name: str
  question: str
  program: str
  faulty: tuple[str, ...]
  inputs: tuple[tuple[Any, ...], ...]  # argument tuples, edge cases first


def _problem(name, question, program, swaps, inputs):
  """`swaps` are (right, wrong) texts: each makes one faulty program.

  A faulty program need not compile (one in `vowels` does not): the corpus shows
  it like the others, but it is no target of the kill rate.
  """
  program = program.strip()
  faulty = tuple(program.replace(*swap) for swap in swaps)
  if any(f == program for f in faulty):
    raise ValueError(f"{name}: a swap changes nothing")
  return Handwritten(name, question, program, faulty, tuple(inputs))


_NUMBERS = [(n,) for n in (0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 15, 16, 27)]
_TWO = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1), (2, 4), (3, 5), (4, 6),
        (6, 4), (9, 3), (10, 5), (12, 18), (7, 7), (8, 3)]  # fmt: skip
_LISTS = [([],), ([0],), ([1],), ([-1],), ([1, 1],), ([1, 2],), ([2, 1],),
          ([3, 1, 2],), ([2, 2, 1],), ([1, 2, 3, 4],), ([4, -4, 0],),
          ([5, 1, 5, 1],), ([-2, -3, -1],), ([1, 3, 2, 3, 5],)]  # fmt: skip
_TEXTS = [("",), ("a",), ("A",), ("aa",), ("ab",), ("aba",), ("abc",),
          ("aab",), ("Aa b",), ("abba",), ("a b c",), ("xxyz",), ("12 a",),
          ("zzzz",)]  # fmt: skip
_LIST_K = [([], 1), ([1], 1), ([1], 0), ([1, 2], 1), ([2, 1], 2),
           ([1, 2, 3], 2), ([3, 1, 2], 1), ([1, 1, 2], 1), ([5, 4, 3], 0),
           ([1, 2, 3, 4], 3), ([2, 2, 2], 2), ([0, 1, 0], 0),
           ([4, 1, 3, 2], 4), ([-1, 2, 1], 1)]  # fmt: skip
_LIST_LIST = [([], []), ([1], []), ([], [1]), ([1], [1]), ([1, 2], [2]),
              ([1, 2], [3]), ([1, 3], [2, 4]), ([1, 1], [1]),
              ([2], [2, 2]), ([1, 2, 3], [3, 2]), ([0, 5], [5, 0]),
              ([-1, 4], [4]), ([1, 5], [2, 3]), ([3], [1, 2])]  # fmt: skip

PROBLEMS = (
  _problem("gcd", "Return the greatest common divisor of a and b.", """
def solve(a, b):
    while b:
        a, b = b, a % b
    return a
""", [("a % b", "a // b if a < b else 0"), ("return a", "return b"),
      ("a, b = b, a % b", "a, b = b, (a - 1) % b")], _TWO),
  _problem("factorial", "Return the factorial of n.", """
def solve(n):
    y = 1
    for i in range(2, n + 1):
        y *= i
    return y
""", [("n + 1", "n"), ("y *= i", "y += i"), ("y = 1", "y = 0")],
           _NUMBERS),
  _problem("fibonacci", "Return Fibonacci number n, starting 0, 1.", """
def solve(n):
    a, b = 0, 1
    for i in range(n):
        a, b = b, a + b
    return a
""", [("0, 1", "1, 1"), ("return a", "return b"),
      ("range(n)", "range(1, n)")], _NUMBERS),
  _problem("is_prime", "Return whether n is prime.", """
def solve(n):
    return n > 1 and all(n % d for d in range(2, n))
""", [("n > 1 and ", ""), ("range(2, n)", "range(1, n)"), ("n > 1", "n > 2")],
           _NUMBERS),
  _problem("power", "Return a to the power b.", """
def solve(a, b):
    y = 1
    for i in range(b):
        y *= a
    return y
""", [("y *= a", "y *= b"), ("y = 1", "y = a"), ("range(b)", "range(1, b)")],
           _TWO),
  _problem("triangle", "Return the sum of the numbers from 1 to n.", """
def solve(n):
    return n * (n + 1) // 2
""", [("n + 1", "n - 1"), ("// 2", "// 3"), ("(n + 1)", "n")], _NUMBERS),
  _problem("bits", "Return how many 1 bits n has.", """
def solve(n):
    return bin(n).count("1")
""", [('"1"', '"0"'), ('.count("1")', '[2:].count("0")'),
      ("bin(n)", "str(n)")], _NUMBERS),
  _problem("binary", "Return n as a binary string.", """
def solve(n):
    return bin(n)[2:]
""", [("[2:]", ""), ("[2:]", "[1:]"), ("[2:]", "[3:]")], _NUMBERS),
  _problem("sign", "Return 1, 0 or -1: the sign of a - b.", """
def solve(a, b):
    return (a > b) - (a < b)
""", [("a > b", "a >= b"), ("a < b", "a <= b"),
      ("(a > b) - (a < b)", "(b > a) - (b < a)")], _TWO),
  _problem("divides", "Return whether b divides a; zero divides nothing.", """
def solve(a, b):
    return b != 0 and a % b == 0
""", [("b != 0 and ", ""), ("a % b", "b % a if a else 1"),
      ("a % b == 0", "a % b == 1")], _TWO),
  _problem("palindrome", "Return whether s reads the same backwards.", """
def solve(s):
    return s == s[::-1]
""", [("s[::-1]", "s[::1]"), ("s == s[::-1]", "s[:1] == s[-1:]"),
      ("==", "!=")], [*_TEXTS, ("acba",)]),
  _problem("vowels", "Return how many vowels s has, in either case.", """
def solve(s):
    return sum(c in "aeiou" for c in s.lower())
""", [(".lower()", ""), ("aeiou", "aeio"), (" in ", " not in ")],
           [*_TEXTS, ("u",)]),
  _problem("capitalize", "Capitalize each word of s.", """
def solve(s):
    return " ".join(w.capitalize() for w in s.split())
""", [("w.capitalize()", "w.upper()"), ('" ".join', '"".join'),
      ("w.capitalize()", "w")], _TEXTS),
  _problem("run_length", "Return the runs of s as (character, length).", """
def solve(s):
    ys = []
    for c in s:
        if ys and ys[-1][0] == c:
            ys[-1] = (c, ys[-1][1] + 1)
        else:
            ys.append((c, 1))
    return ys
""", [("(c, 1)", "(c, 0)"), ("+ 1", "+ 2"), ("ys[-1][0] == c", "c == 'a'")],
           _TEXTS),
  _problem("char_counts", "Count each character of s in a dict.", """
def solve(s):
    d = {}
    for c in s:
        d[c] = d.get(c, 0) + 1
    return d
""", [("d.get(c, 0)", "d.get(c, 1)"), ("d.get(c, 0) + 1", "1"),
      ("in s:", "in s[1:]:")], _TEXTS),
  _problem("first_index", "Return the first index of k in xs or -1.", """
def solve(xs, k):
    return xs.index(k) if k in xs else -1
""", [(" if k in xs else -1", ""), ("-1", "0"),
      ("xs.index(k)", "xs.index(k) + 1")], _LIST_K),
  _problem("rotate", "Rotate xs to the left by k places.", """
def solve(xs, k):
    k = k % len(xs) if xs else 0
    return xs[k:] + xs[:k]
""", [("xs[k:] + xs[:k]", "xs[-k:] + xs[:-k]"), (" if xs else 0", ""),
      ("+ xs[:k]", "+ xs[:k - 1]")], _LIST_K),
  _problem("has_pair", "Return whether two places of xs sum to k.", """
def solve(xs, k):
    for i in range(len(xs)):
        for j in range(i):
            if xs[i] + xs[j] == k:
                return True
    return False
""", [("range(i)", "range(i + 1)"), ("== k", "> k"), ("True", "False")],
           [*_LIST_K, ([2, 3], 5), ([1, 2], 3), ([2], 4)]),
  _problem("chunk", "Cut xs in lists of k + 1 numbers.", """
def solve(xs, k):
    k = k + 1
    return [xs[i:i + k] for i in range(0, len(xs), k)]
""", [("k = k + 1", "k = k + 2"), ("i + k]", "k]"),
      ("range(0,", "range(1,")], _LIST_K),
  _problem("count_k", "Return how often k is in xs.", """
def solve(xs, k):
    return sum(x == k for x in xs)
""", [("x == k", "x >= k"), ("x == k", "x != k"), ("in xs", "in xs[1:]")],
           _LIST_K),
  _problem("running_sum", "Return the running sums of xs.", """
def solve(xs):
    ys = []
    for x in xs:
        ys.append((ys[-1] if ys else 0) + x)
    return ys
""", [("else 0", "else 1"), ("+ x", "- x"), ("ys[-1]", "ys[0]")], _LISTS),
  _problem("differences", "Return each number of xs minus the one before.", """
def solve(xs):
    return [b - a for a, b in zip(xs, xs[1:])]
""", [("b - a", "a - b"), ("xs[1:]", "xs"), ("b - a", "abs(b - a)")],
           _LISTS),
  _problem("is_sorted", "Return whether xs never falls.", """
def solve(xs):
    return all(a <= b for a, b in zip(xs, xs[1:]))
""", [("a <= b", "a < b"), ("all", "any"), ("a <= b", "a >= b")], _LISTS),
  _problem("max_run", "Return the longest rising run length in xs.", """
def solve(xs):
    best = run = 0
    for i, x in enumerate(xs):
        run = run + 1 if i and x > xs[i - 1] else 1
        best = max(best, run)
    return best
""", [("x > xs", "x >= xs"), ("else 1", "else 0"), ("max(best, run)", "run")],
           _LISTS),
  _problem("bubble", "Return xs sorted, without using sorted.", """
def solve(xs):
    ys = []
    for x in xs:
        i = 0
        while i < len(ys) and ys[i] < x:
            i += 1
        ys.insert(i, x)
    return ys
""", [("ys[i] < x", "ys[i] > x"), ("i = 0", "i = 1"),
      ("ys.insert(i, x)", "ys.insert(0, x)")], _LISTS),
  _problem("second_largest", "Return the second largest distinct or -1.", """
def solve(xs):
    ys = sorted(set(xs))
    return ys[-2] if len(ys) > 1 else -1
""", [("set(xs)", "xs"), ("ys[-2]", "ys[1]"), ("> 1", "> 2")], _LISTS),
  _problem("duplicates", "Return the numbers that repeat in xs, sorted.", """
def solve(xs):
    return sorted({x for x in xs if xs.count(x) > 1})
""", [("> 1", "> 2"), ("> 1", "== 1"), ("sorted(", "list(")],
           [*_LISTS, ([9, 9, -8, -8],), ([7, 7, 7],), ([3, 3, -3, -3],)]),
  _problem("intersection", "Return the numbers of xs that are in ys.", """
def solve(xs, ys):
    return [x for x in xs if x in ys]
""", [("if x in ys", "if x not in ys"), ("for x in xs if x in ys",
      "for x in ys if x in xs"), (" if x in ys", "")], _LIST_LIST),
  _problem("difference", "Return the numbers of xs that are not in ys.", """
def solve(xs, ys):
    return [x for x in xs if x not in ys]
""", [("not in ys", "in ys"), ("for x in xs if x not in ys",
      "for x in ys if x not in xs"), (" if x not in ys", "")], _LIST_LIST),
  _problem("merge", "Merge the sorted lists xs and ys.", """
def solve(xs, ys):
    return sorted(xs + ys)
""", [("sorted(xs + ys)", "xs + ys"), ("xs + ys", "set(xs + ys)"),
      ("xs + ys)", "xs)")], _LIST_LIST),
  _problem("interleave", "Take numbers of xs and ys in turn, then the rest.",
           """
def solve(xs, ys):
    n = min(len(xs), len(ys))
    zs = [z for pair in zip(xs, ys) for z in pair]
    return zs + xs[n:] + ys[n:]
""", [("min(", "max("), (" + ys[n:]", ""), ("zip(xs, ys)", "zip(ys, xs)")],
           _LIST_LIST),
  _problem("dot", "Return the sum of the products of xs and ys.", """
def solve(xs, ys):
    return sum(x * y for x, y in zip(xs, ys))
""", [("x * y", "x + y"), ("zip(xs, ys)", "zip(xs, ys[1:])"),
      ("x * y for", "x * x for")], _LIST_LIST),
)  # fmt: skip
