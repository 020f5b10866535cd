"""What a run writes down can be read back and resumed."""

import json
import math
import os

import jax.numpy as jnp
import numpy as np
import pytest

from codea1_jax import jsonl


def test_lines_are_on_disk_after_every_step(tmp_path):
  writer = jsonl.JsonlWriter(tmp_path / "new" / "run" / "metrics.jsonl")
  writer.write(1, {"code/loss": 0.5})
  assert jsonl.read_jsonl(writer.path) == [{"step": 1, "code/loss": 0.5}]
  writer.write(2, {"code/loss": 0.25})
  assert [r["step"] for r in jsonl.read_jsonl(writer.path)] == [1, 2]
  assert writer.path == tmp_path / "new" / "run" / "metrics.jsonl"


def test_arrays_scalars_and_records_become_json(tmp_path):
  writer = jsonl.JsonlWriter(tmp_path / "rollouts.jsonl")
  record = {
    "jax": jnp.float32(0.5),
    "half": jnp.bfloat16(1.5),
    "count": np.int64(3),
    "flag": np.bool_(True),
    "array": np.arange(3),
    "nested": {"codes": [{"reward": np.float32(0.25), "oracle": None}]},
    "text": "</script> \ud800",
  }
  writer.write(np.int32(7), record)
  (row,) = jsonl.read_jsonl(writer.path)
  assert row == {
    "step": 7,
    "jax": 0.5,
    "half": 1.5,
    "count": 3,
    "flag": True,
    "array": [0, 1, 2],
    "nested": {"codes": [{"reward": 0.25, "oracle": None}]},
    "text": "</script> \ud800",
  }


def test_non_finite_values_leave_the_file_strict_json(tmp_path):
  writer = jsonl.JsonlWriter(tmp_path / "metrics.jsonl")
  writer.write(1, {"a": math.nan, "b": np.float32(-np.inf), "c": [math.inf]})

  def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")

  row = json.loads(writer.path.read_text(), parse_constant=refuse)
  assert row == {"step": 1, "a": "nan", "b": "-inf", "c": ["inf"]}
  assert math.isnan(float(row["a"]))


def test_what_is_no_number_is_refused(tmp_path):
  writer = jsonl.JsonlWriter(tmp_path / "metrics.jsonl")
  with pytest.raises(ValueError, match="no number: object"):
    writer.write(1, {"a": object()})
  assert not writer.path.exists()


def test_resume_drops_what_will_be_done_again(tmp_path):
  writer = jsonl.JsonlWriter(tmp_path / "metrics.jsonl")
  for step in range(1, 6):
    writer.write(step, {"x": step / 3})
  resumed = jsonl.JsonlWriter(tmp_path / "metrics.jsonl")
  resumed.truncate_after(3)
  resumed.write(4, {"x": -1.0})
  rows = jsonl.read_jsonl(writer.path)
  assert [(r["step"], r["x"]) for r in rows] == [
    (1, 1 / 3),
    (2, 2 / 3),
    (3, 1.0),
    (4, -1.0),
  ]
  assert os.listdir(tmp_path) == ["metrics.jsonl"]


def test_truncate_without_a_file_makes_none(tmp_path):
  writer = jsonl.JsonlWriter(tmp_path / "metrics.jsonl")
  writer.truncate_after(0)
  assert not writer.path.exists()


def test_a_line_cut_by_a_kill_is_left_out_and_mended(tmp_path):
  path = tmp_path / "metrics.jsonl"
  path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3, "co')
  assert jsonl.read_jsonl(path) == [{"step": 1}, {"step": 2}]
  jsonl.JsonlWriter(tmp_path / "metrics.jsonl").write(3, {})
  assert path.read_text() == '{"step": 1}\n{"step": 2}\n{"step": 3}\n'


@pytest.mark.parametrize(
  "line, message", [('{"step": 2', "not JSON"), ("[2]", "got list")]
)
def test_a_broken_line_is_named(tmp_path, line, message):
  path = tmp_path / "metrics.jsonl"
  path.write_text(f'{{"step": 1}}\n\n{line}\n{{"step": 3}}\n')
  with pytest.raises(ValueError, match=rf"metrics\.jsonl:3: .*{message}"):
    jsonl.read_jsonl(path)
