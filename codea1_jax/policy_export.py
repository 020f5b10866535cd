"""A trained policy as a directory that transformers, or PEFT, loads."""

import pathlib

from codea1_jax import adapters, assembly
from codea1_jax.assembly import Run
from codea1_jax.models import convert, lora, peft
from codea1_jax.train_state import PolicyState


def export_policy(
  run: Run,
  state: PolicyState,
  role: str,
  directory: str | pathlib.Path,
  *,
  only_adapter: bool = False,
  dtype: str = "float32",
) -> None:
  """Writes one role's trained policy.

  Args:
    run: an open run.
    state: of that role in that run, on its devices.
    role: "code" or "test"; the one policy of self-play is "code".
    directory: made if it does not exist.
    only_adapter: a PEFT directory instead of merged weights.
    dtype: of merged weights.

  Raises:
    ValueError: the run's method does not train this role, or no adapter.
  """
  trained = assembly.TRAINED[run.config.method]
  if role not in trained:
    raise ValueError(
      f"method {run.config.method} trains {' and '.join(trained)}, not {role}"
    )
  player = {"code": run.code, "test": run.test}[role]
  params = player.parallel.fetch(state.params)
  config, base = player.policy.model_config, player.policy.directory
  if player.frozen is None:
    if only_adapter:
      raise ValueError("config.lora.rank is 0: the run has no adapter")
  else:
    settings = adapters.settings(run.config)
    if only_adapter:
      peft.save_adapters(
        directory,
        config,
        settings,
        params,
        base_model=run.config[role].model.removeprefix("hub:"),
      )
      return
    frozen = player.parallel.fetch(player.frozen)
    params = lora.merge(frozen, config, params, settings)
  convert.save_pretrained(
    directory, config, params, dtype=dtype, tokenizer_from=base
  )
