"""LoRA in a whole run: one base, two adapters, and what is written of them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_runs import small_config

from codea1_jax import (
  assembly,
  checkpointing,
  checks,
  devices,
  jsonl,
  policy_export,
  problems,
  trainer,
)
from codea1_jax.models import convert, lora, peft, qwen


def lora_config(**changes):
  both = {"code.model": "shipped:both_llm", "test.model": "shipped:both_llm"}
  return small_config(**both | {"lora.rank": 4} | changes)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  """A workdir after two steps on one device."""
  workdir = tmp_path_factory.mktemp("lora")
  load, make = problems.load_problems, devices
  make_parallel = make.make_parallel
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(problems, "load_problems", lambda path: load(path)[:24])
    patch.setattr(
      make,
      "make_parallel",
      lambda kind, **mesh: make_parallel(kind, jax.devices()[:1], **mesh),
    )
    trainer.train(lora_config(), workdir)
    with assembly.open_run(lora_config(), workdir) as run:
      with checkpointing.Checkpoints(workdir, 2) as saved:
        state = saved.restore(run.initial_state(), run.parallel)
      yield workdir, run, state


def test_both_learn_beside_one_base(trained):
  workdir, run, state = trained
  assert run.code.frozen is run.test.frozen is run.code.reference.params
  rows = jsonl.read_jsonl(workdir / "metrics.jsonl")
  for role in ("code", "test"):
    assert rows[0][f"{role}/kl"] == pytest.approx(0, abs=1e-6)
    assert rows[1][f"{role}/kl"] > 0
    assert rows[0][f"{role}/sampler_gap"] < 1e-4
    assert rows[1][f"{role}/sampler_gap"] < 1e-4  # adapters act in both
    assert np.asarray(getattr(state, role).params["q_proj"]["b"]).any()
  a, b = (np.asarray(getattr(state, r).params["up_proj"]["b"])
          for r in ("code", "test"))  # fmt: skip
  assert not np.allclose(a, b)


def test_a_checkpoint_holds_adapters_only(trained):
  _, run, state = trained
  settings = assembly.adapters.settings(run.config)
  shapes = lora.adapter_shapes(run.code.policy.model_config, settings)
  sizes = [part[kind] for part in shapes.values() for kind in ("a", "b")]
  adapter = 4 * sum(map(math.prod, sizes))
  base = sum(leaf.nbytes for leaf in jax.tree.leaves(run.code.frozen))
  assert adapter < 0.1 * base
  held = sum(leaf.nbytes for leaf in jax.tree.leaves((state.code, state.test)))
  assert 6 * adapter <= held < 6 * adapter + 100  # two moments; counters


def test_exports_compute_what_the_run_computes(trained, tmp_path):
  _, run, state = trained
  policy_export.export_policy(run, state.test, "test", tmp_path / "merged")
  policy_export.export_policy(
    run, state.test, "test", tmp_path / "adapter", only_adapter=True
  )
  config, merged = convert.load_pretrained(tmp_path / "merged")
  _, adapters = peft.load_adapters(tmp_path / "adapter", config)
  jax.tree.map(
    lambda ours, theirs: np.testing.assert_array_equal(ours[0], theirs),
    state.test.params,
    adapters,
  )
  tokens, valid = jnp.arange(9)[None] * 7, jnp.ones((1, 9), bool)
  full = run.parallel["test"].fetch(run.test.full(state.test.params))
  np.testing.assert_allclose(
    qwen.hidden_states(merged, config, tokens, valid),
    qwen.hidden_states(full, config, tokens, valid),
    atol=1e-4,
  )
  start = lora_config(**{"test.adapter": str(tmp_path / "adapter")})
  again = assembly.adapters.start(start, "test", config)
  np.testing.assert_array_equal(again["q_proj"]["b"], adapters["q_proj"]["b"])
  start.lora.alpha = 7.0
  with pytest.raises(ValueError, match=r"alpha is 32.0, but config.lora.alpha"):
    assembly.adapters.start(start, "test", config)


@pytest.mark.parametrize(
  "changes, words",
  [
    ({"code.model": "shipped:code_llm"}, "must be the same base"),
    ({"lora.rank": 0, "code.adapter": "somewhere"}, "code.adapter needs"),
    ({"lora.rank": -1}, "lora.rank is -1"),
    ({"reference.dtype": "bfloat16"}, "reference is the base itself"),
    ({"reference.placement": "host"}, "reference is the base itself"),
  ],
)
def test_settings_that_do_not_go_together(changes, words):
  with pytest.raises(ValueError, match=words):
    checks.check_values(lora_config(**changes))
