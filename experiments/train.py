"""Trains a pair of policies: --config=configs/tiny.py --workdir=runs/tiny.

On several hosts the same command runs on each, with one workdir that all see,
--config.parallel=mesh, and either --hosts=auto, where a cluster's manager tells
who they are, or --hosts=ADDRESS:PORT,COUNT,INDEX, the address being host 0's.
"""

import re

from absl import app, flags
from ml_collections import config_flags

from codea1_jax import assembly, guards, hosts, trainer
from codea1_jax.checkpoint import CheckpointError
from codea1_jax.starting import Start
from experiments import command_line

_CONFIG = config_flags.DEFINE_config_file("config", lock_config=True)
_WORKDIR = flags.DEFINE_string("workdir", None, "Directory of the run.")
_RESUME = flags.DEFINE_bool(
  "resume", True, "Go on with the workdir's run; --noresume: there is none yet."
)
_RESTORE = flags.DEFINE_string(
  "restore", "", "Begin with the game of RUN[:STEP], another workdir's."
)
_RESTORE_CODE = flags.DEFINE_string("restore_code", "", "Its Code LLM alone.")
_RESTORE_TEST = flags.DEFINE_string("restore_test", "", "Its Test LLM alone.")
_PARAMS_ONLY = flags.DEFINE_bool(
  "params_only", False, "Restore no optimizer, book or step."
)
_ALLOWED = flags.DEFINE_list(
  "allow_config_change", [], "Fields that may differ from the workdir's run."
)
_HOSTS = flags.DEFINE_string("hosts", "", "auto, or ADDRESS:PORT,COUNT,INDEX.")


def _connect(hosts_flag: str) -> None:
  """Joins the other hosts: "", "auto" or "ADDRESS:PORT,COUNT,INDEX".

  Raises:
    InputError: none of the three.
  """
  if not hosts_flag:
    return
  if hosts_flag == "auto":
    hosts.connect(None, None, None)
    return
  found = re.fullmatch(r"([^,]+:\d+),(\d+),(\d+)", hosts_flag)
  if not found or int(found[3]) >= int(found[2]):
    raise assembly.InputError(
      f"--hosts={hosts_flag}: expected auto or ADDRESS:PORT,COUNT,INDEX with"
      " INDEX below COUNT"
    )
  hosts.connect(found[1], int(found[2]), int(found[3]))


def main(_):
  try:
    _connect(_HOSTS.value)
    start = Start(
      _RESUME.value,
      _RESTORE.value,
      _RESTORE_CODE.value,
      _RESTORE_TEST.value,
      _PARAMS_ONLY.value,
      tuple(_ALLOWED.value),
    )
    trainer.train(_CONFIG.value, _WORKDIR.value, start)
  except assembly.InputError as error:
    command_line.fail(error)
  except CheckpointError as error:
    hosts.leave(error)  # another host's end may be the cause
    command_line.fail(error)
  except guards.Breach as error:
    command_line.fail(error, code=3)
  except Exception as error:
    hosts.leave(error)
    raise


if __name__ == "__main__":
  flags.mark_flags_as_required(["config", "workdir"])
  app.run(main, flags_parser=command_line.parse)
