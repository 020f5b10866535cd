"""Writes a run's policy as a Hugging Face directory.

  python -m experiments.export_policy --config=configs/tiny.py \
    --workdir=runs/tiny --role=code --out=build/code_llm

With LoRA, base and adapter are merged; --only_adapter writes a PEFT directory
instead. The config must be the run's own.
"""

from absl import app, flags
from ml_collections import config_flags

from codea1_jax import assembly, checkpoint, policy_export
from experiments import command_line

_CONFIG = config_flags.DEFINE_config_file("config", lock_config=True)
_WORKDIR = flags.DEFINE_string("workdir", None, "Directory of the run.")
_ROLE = flags.DEFINE_enum("role", "code", ["code", "test"], "Whose policy.")
_STEP = flags.DEFINE_integer("step", None, "Of the checkpoint; the newest.")
_OUT = flags.DEFINE_string("out", None, "Directory to write.")
_ADAPTER = flags.DEFINE_bool("only_adapter", False, "PEFT, not merged.")
_DTYPE = flags.DEFINE_enum(
  "dtype", "float32", ["float32", "bfloat16", "float16"], "Of the weights."
)


def main(_):
  try:
    step = "" if _STEP.value is None else f":{_STEP.value}"
    source = checkpoint.find(_WORKDIR.value + step)
    with assembly.open_run(_CONFIG.value, _WORKDIR.value) as run:
      state = checkpoint.read_policy(
        source,
        _ROLE.value,
        getattr(run.initial_state(), _ROLE.value),
        run.parallel[_ROLE.value],
      )
      policy_export.export_policy(
        run,
        state,
        _ROLE.value,
        _OUT.value,
        only_adapter=_ADAPTER.value,
        dtype=_DTYPE.value,
      )
  except (ValueError, OSError) as error:
    command_line.fail(error)
  print(f"wrote {_OUT.value}: {_ROLE.value} of {source}")


if __name__ == "__main__":
  flags.mark_flags_as_required(["config", "workdir", "out"])
  app.run(main, flags_parser=command_line.parse)
