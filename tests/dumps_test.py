"""A rollout dump: whole steps, whatever kills the writer."""

import os
import shutil
import signal
import subprocess
import sys
import tracemalloc
import types

import numpy as np
import pytest
import zstandard

from codea1_jax import assembly, dumps, report, run_log


def records(step, count=2):
  return [
    {"problem": {"id": f"{step}-{i}"}, "text": f"\x1b{step}\n" * 5}
    for i in range(count)
  ]


def steps(path):
  return [row["step"] for row in dumps.read_dump(path)]


@pytest.fixture
def writer(tmp_path):
  """Of a dump with the steps 0, 10 and 20."""
  made = dumps.DumpWriter(tmp_path / "new" / "run" / dumps.FILE)
  for step in (0, 10, 20):
    made.write(step, records(step))
  return made


def test_a_step_is_on_disk_when_it_is_written(tmp_path):
  writer = dumps.DumpWriter(tmp_path / "new" / "run" / dumps.FILE)
  writer.write(np.int32(3), records(3))
  assert list(dumps.read_dump(writer.path)) == [
    {"step": 3, **record} for record in records(3)
  ]
  dumps.DumpWriter(writer.path).write(4, records(4, count=1))
  assert steps(writer.path) == [3, 3, 4]
  assert len(dumps.frames(writer.path)) == 2  # a frame a step


def test_what_is_not_to_be_written_leaves_nothing(tmp_path):
  dumps.DumpWriter(tmp_path / "a", writes=False).write(0, records(0))
  dumps.DumpWriter(tmp_path / "b").write(0, [])
  dumps.DumpWriter(tmp_path / "c").truncate_after(3)
  assert not list(tmp_path.iterdir())


def test_other_programs_read_it(writer):
  if not shutil.which("zstdcat"):
    pytest.skip("no zstdcat")
  done = subprocess.run(["zstdcat", writer.path], capture_output=True)
  assert done.returncode == 0, done.stderr
  assert done.stdout.count(b"\n") == 6
  packed = subprocess.run(["zstd"], input=done.stdout, capture_output=True)
  writer.path.write_bytes(packed.stdout)  # and theirs is read: one frame
  assert steps(writer.path) == [0, 0, 10, 10, 20, 20]


def test_a_frame_cut_anywhere_is_left_out_and_mended(writer):
  whole = writer.path.read_bytes()
  last = dumps.frames(writer.path)[-1]
  assert last.end == len(whole)
  for end in range(last.start, last.end):
    writer.path.write_bytes(whole[:end])
    assert steps(writer.path) == [0, 0, 10, 10], end
    dumps.DumpWriter(writer.path)
    assert writer.path.read_bytes() == whole[: last.start], end
  dumps.DumpWriter(writer.path).write(20, records(20))
  assert writer.path.read_bytes() == whole


_KILLED = """
import os, resource, signal, sys
from codea1_jax import dumps

writer = dumps.DumpWriter(sys.argv[1])
size = os.path.getsize(sys.argv[1]) + 100_000
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # what goes beyond is death
writer.write(30, [{"text": os.urandom(200_000).hex()}])
"""


def test_a_writer_killed_while_it_writes(writer):
  whole = writer.path.read_bytes()
  done = subprocess.run([sys.executable, "-c", _KILLED, writer.path])
  assert done.returncode == -signal.SIGXFSZ
  torn = writer.path.read_bytes()
  assert len(torn) == len(whole) + 100_000 and torn.startswith(whole)
  assert steps(writer.path) == [0, 0, 10, 10, 20, 20]
  dumps.DumpWriter(writer.path).write(30, records(30))
  assert steps(writer.path)[-2:] == [30, 30]
  assert writer.path.read_bytes().startswith(whole)


def test_a_broken_frame_is_one_error_and_never_cut_off(writer):
  whole = writer.path.read_bytes()
  first, broken, last = dumps.frames(writer.path)
  harmless = 0
  for place in range(broken.start, broken.end):
    for flipped in (0x01, 0x80, 0xFF):
      changed = bytearray(whole)
      changed[place] ^= flipped
      writer.path.write_bytes(changed)
      try:
        harmless += steps(writer.path) == [0, 0, 10, 10, 20, 20]
      except ValueError as error:
        text = str(error)
        assert "\n" not in text and text.startswith(f"{writer.path}: byte ")
        assert int(text.split()[2].rstrip(":")) in (broken.start, last.start) \
          or "no zstd frame begins" in text, text  # fmt: skip
      try:
        dumps.DumpWriter(writer.path)
      except ValueError as error:
        assert str(writer.path) in str(error)
      assert writer.path.read_bytes() == changed, (place, flipped)
  assert first.end == broken.start and harmless <= 4  # bits without a meaning


def test_resume_drops_later_steps_and_reads_no_earlier_ones(
  writer, monkeypatch
):
  read, lines = [], dumps.lines
  monkeypatch.setattr(
    dumps, "lines", lambda path, frame: read.append(frame) or lines(path, frame)
  )
  writer.write(30, records(30))
  _, ten, twenty, thirty = dumps.frames(writer.path)
  resumed = dumps.DumpWriter(writer.path)
  resumed.truncate_after(15)
  assert read == [thirty, twenty, ten]
  resumed.write(20, records(21))
  assert [row["problem"]["id"] for row in dumps.read_dump(writer.path)] == [
    "0-0", "0-1", "10-0", "10-1", "21-0", "21-1"
  ]  # fmt: skip
  resumed.truncate_after(-1)
  assert writer.path.read_bytes() == b""
  assert os.listdir(writer.path.parent) == [dumps.FILE]


@pytest.mark.parametrize(
  "text, words",
  [
    (b'{"step": 1}\n{"step"\n', "byte 0, line 2: not JSON"),
    (b"[2, 3, 4, 5, 6]\n", "byte 0, line 1: expected an object, got list"),
  ],
)
def test_what_is_no_record_is_named(tmp_path, text, words):
  path = tmp_path / dumps.FILE
  path.write_bytes(zstandard.compress(text))
  with pytest.raises(ValueError, match=rf"jsonl\.zst: {words}"):
    list(dumps.read_dump(path))


def test_a_record_without_a_step_is_named(tmp_path):
  path = tmp_path / dumps.FILE
  path.write_bytes(zstandard.compress(b'{"text": 3}\n'))
  with pytest.raises(ValueError, match="byte 0: a record without a step"):
    dumps.DumpWriter(path).truncate_after(1)


def test_a_plain_file_is_no_dump(tmp_path):
  path = tmp_path / dumps.FILE
  path.write_text('{"step": 1}\n')
  with pytest.raises(ValueError, match="byte 0: no zstd frame begins here"):
    dumps.frames(path)


def test_a_run_is_not_resumed_over_a_broken_dump(writer):
  whole = bytearray(writer.path.read_bytes())
  whole[-1] ^= 1
  writer.path.write_bytes(whole)
  workdir = writer.path.parent
  run = types.SimpleNamespace(
    workdir=workdir, hosts=types.SimpleNamespace(writes=True)
  )
  said = r"jsonl\.zst: byte \d+: .*; without that file the run goes on"
  with pytest.raises(assembly.InputError, match=said):
    run_log.RunLog(run, 15)
  assert writer.path.read_bytes() == whole
  assert os.listdir(workdir) == [dumps.FILE]


def test_readers_hold_a_step_or_two_of_a_large_file(tmp_path):
  writer = dumps.DumpWriter(tmp_path / dumps.FILE)
  for step in range(40):
    writer.write(step, [{"text": "x" * 250_000}, {"text": f"{step}"}])
  tracemalloc.start()
  try:
    assert len(steps(writer.path)) == 80
    assert dumps.step_of(writer.path, dumps.frames(writer.path)[-1]) == 39
    text, note = report._rollouts(writer.path, budget=6_500)
    peak = tracemalloc.get_traced_memory()[1]
  finally:
    tracemalloc.stop()
  assert "of 80 written rollouts" in note and '"step":39' in text
  assert peak < 3_000_000  # of 10 MB
