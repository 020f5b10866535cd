"""Flags that all benchmarks have: a process may import several of them."""

from absl import flags

ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds that count.", 1)
OUT = flags.DEFINE_string("out", None, "JSON file of all numbers.")
