"""Whether a config fits its devices: no weights, no devices needed.

python -m experiments.plan --config=configs/qwen2_5_coder.py:7b --device=v5e-16
"""

from absl import app, flags
from ml_collections import config_flags

from codea1_jax import catalog, checks, planner
from experiments import command_line

_CONFIG = config_flags.DEFINE_config_file("config", lock_config=True)
_DEVICE = flags.DEFINE_string("device", None, "Such as v5e-16, h100-8, cpu.")
_GIB = 2**30


def _print_memory(plan: planner.Plan) -> None:
  device = plan.device
  print(f"{device.count} x {device.name}, {device.memory / _GIB:.1f} GiB each")
  print("\nGiB a device, from step to step")
  for name, size in plan.held.items():
    print(f"  {name:28}{size / _GIB:9.2f}")
  print("\nGiB beside them      arguments results activations  peak")
  for program in plan.programs:
    parts = program.arguments + program.beside, program.results
    numbers = (*parts, program.temporary, plan.peak(program))
    columns = "".join(f"{number / _GIB:10.2f}" for number in numbers)
    print(f"  {program.name:16}{columns}")


def _print_flops(plan: planner.Plan) -> None:
  print("\nFLOPs of a step")
  for stage, number in plan.flops.items():
    print(f"  {stage:10}{number:10.2e}")
  print(f"  at {plan.device.flops / 1e12:.1f} TFLOP/s each never below", end="")
  print(f" {plan.seconds:,.0f} s")


def main(_):
  try:
    config, device = _CONFIG.value, catalog.device(_DEVICE.value)
    checks.check_values(config)
    models = planner.model_shapes(config)
    plan = planner.make_plan(config, device, models)
    changes, better = planner.advise(config, device, models)
  except (ValueError, OSError) as error:
    command_line.fail(error)
  _print_memory(plan)
  _print_flops(plan)
  print(f"\n{planner.verdict(plan, changes, better)}")


if __name__ == "__main__":
  flags.mark_flags_as_required(["config", "device"])
  app.run(main, flags_parser=command_line.parse)
