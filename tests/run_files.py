"""What two runs of one seed must have in common."""

import jax
import numpy as np
import orbax.checkpoint as ocp

from codea1_jax import checkpoint, dumps, jsonl, metrics

# That hold one object a line.
NAMES = ("metrics.jsonl", "eval.jsonl", dumps.FILE)


def read(path):
  """All lines of such a file."""
  if path.name == dumps.FILE:
    return list(dumps.read_dump(path))
  return jsonl.read_jsonl(path)


def timeless(path):
  """A run's lines, but for what the machine decides."""
  return [
    {k: v for k, v in row.items() if not metrics.is_measured(k)}
    for row in read(path)
  ]


def arrays(workdir):
  """Every array of a run's newest checkpoint, as numpy."""
  source = checkpoint.find(str(workdir))
  path = source.workdir / "checkpoints" / str(source.step) / "policies"
  with ocp.PyTreeCheckpointer() as reader:
    tree = reader.metadata(path).item_metadata.tree
    host = jax.tree.map(
      lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree
    )
    return reader.restore(path, restore_args=host)


def assert_identical(workdir, wanted):
  """Files, book and arrays of two runs are equal to the last bit."""
  for name in NAMES:
    assert timeless(workdir / name) == timeless(wanted / name), name
  ours, theirs = (checkpoint.find(str(path)) for path in (workdir, wanted))
  assert ours.step == theirs.step
  assert checkpoint.read_game(ours) == checkpoint.read_game(theirs)
  jax.tree.map(np.testing.assert_array_equal, arrays(workdir), arrays(wanted))
