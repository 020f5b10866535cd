"""Makes the shipped small policies, one role a run.

  python -m experiments.sft --config=configs/tiny_sft.py:code --out=DIR/code_llm
  python -m experiments.sft --config=configs/tiny_sft.py:test --out=DIR/test_llm
  python -m experiments.sft --config=configs/tiny_sft.py:both --out=DIR/both_llm

`both` is the one policy that self-play starts from. The shipped Test LLM went
on from its first run (`init_from`): the README has the command. Part of the
corpus is faulty, so that there is room to learn.
Hardware: 2 CPU cores, about 10 to 25 minutes a role.
"""

from ml_collections import config_dict

ROLES = ("code", "test", "both")


def get_config(arg: str = "code") -> config_dict.ConfigDict:
  """The supervised run of one role: `code`, `test` or `both`."""
  if arg not in ROLES:
    raise ValueError(f"tiny_sft config: role {arg!r} is not one of {ROLES}")
  config = config_dict.ConfigDict()
  config.role = arg
  config.init_from = ""  # a model directory to start from; else from scratch
  config.seed = 0
  # Share of corpus answers that are wrong on purpose.
  config.fault_share = config_dict.ConfigDict(
    {"code": 0.5 if arg == "code" else 0.42, "test": 0.15}
  )
  config.num_tests = 4  # K: asserts of a test example
  config.num_steps = {"code": 2000, "test": 3200, "both": 3000}[arg]
  config.batch_size = 32
  config.micro_batch_size = 4
  config.bucket = 32

  model = config.model = config_dict.ConfigDict()
  model.vocab_size = 1024
  model.hidden_size = 128
  model.intermediate_size = 352
  model.num_layers = 4
  model.num_heads = 4
  model.num_kv_heads = 2
  model.head_dim = 32
  model.rope_theta = 10_000.0

  optimizer = config.optimizer = config_dict.ConfigDict()
  optimizer.learning_rate = 3e-3
  optimizer.warmup_steps = 100
  optimizer.weight_decay = 0.05
  optimizer.grad_clip = 1.0
  optimizer.b2 = 0.98
  config.lock()
  return config
