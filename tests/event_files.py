"""Reads back what boards and profiles hold, as their viewers would."""

import gzip
import json
import pathlib
import struct
from typing import Any

STAGES = ("rollout", "sandbox", "score", "update")


def traces(directory: pathlib.Path) -> list[list[dict[str, Any]]]:
  """For each trace the named events that are of steps and stages."""
  return [
    [
      event
      for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
      if event.get("name") in ("train", *STAGES)
    ]
    for path in sorted(directory.glob("plugins/profile/*/*.trace.json.gz"))
  ]


def scalars(directory: pathlib.Path) -> dict[tuple[str, int], list[float]]:
  """(tag, step) -> the values that TensorBoard shows of it, in their order.

  A file that says it starts at a step hides that step and all later ones of
  the files before.
  """
  from tensorboardX.proto import event_pb2

  shown: dict[tuple[str, int], list[float]] = {}
  for path in sorted(directory.glob("*.tfevents.*"), key=_when):
    for data in _tf_records(path.read_bytes()):
      event = event_pb2.Event.FromString(data)
      if event.session_log.status == event_pb2.SessionLog.START:
        shown = {k: v for k, v in shown.items() if k[1] < event.step}
      for value in event.summary.value:
        at = shown.setdefault((value.tag, event.step), [])
        at.append(value.simple_value)
  return shown


def wandb_rows(directory: pathlib.Path) -> list[list[dict[str, str]]]:
  """For each offline start its rows: metric -> JSON."""
  from wandb.proto import wandb_internal_pb2

  starts = []
  for path in sorted(directory.glob("offline-run-*/*.wandb")):
    rows = []
    for data in _leveldb_records(path.read_bytes()):
      record = wandb_internal_pb2.Record.FromString(data)
      if record.WhichOneof("record_type") == "history":
        items = record.history.item
        rows.append(
          {i.key or "/".join(i.nested_key): i.value_json for i in items}
        )
    starts.append(rows)
  return starts


def _when(path: pathlib.Path) -> tuple[int, int]:
  """Seconds in the file's name, then when it was last written."""
  return int(path.name.split(".")[3]), path.stat().st_mtime_ns


def _tf_records(data: bytes):
  at = 0
  while at < len(data):
    (size,) = struct.unpack_from("<Q", data, at)
    yield data[at + 12 : at + 12 + size]
    at += size + 16  # with the length and two checksums


def _leveldb_records(data: bytes):
  """After a header of 7 bytes: blocks of 32 KiB with pieces of records."""
  at, record = 7, b""
  while at + 7 <= len(data):
    if (left := 2**15 - at % 2**15) < 7:
      at += left
      continue
    _, size, kind = struct.unpack_from("<IHB", data, at)
    record += data[at + 7 : at + 7 + size]
    at += 7 + size
    if kind in (1, 4):  # whole, or its last piece
      yield record
      record = b""
