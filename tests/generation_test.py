"""Continuous batching gives every sample what it would draw alone."""

import dataclasses

import jax
import numpy as np
import pytest
from sampling_test import CONFIG, PAD, STEPS, params, prompts_of, run  # noqa: F401

from codea1_jax import generation, sampling
from codea1_jax.devices import make_parallel
from codea1_jax.generation import SamplingConfig, make_generate

PROMPTS, SAMPLES = 10, 3
STOPS = (7, 9, 11, 13)


@pytest.fixture(scope="module")
def alone(params):  # noqa: F811
  """Every sample by the one loop that holds them all."""
  tokens, valid = prompts_of(PROMPTS)
  valid[4] = False  # a filler
  output = run(params, tokens, valid, range(PROMPTS * SAMPLES), SAMPLES)
  shape = (PROMPTS, SAMPLES, STEPS)
  return tokens, valid, jax.tree.map(lambda x: x.reshape(shape), output)


def generate(
  params,  # noqa: F811
  tokens,
  valid,
  devices=1,
  limit=STEPS,
  stops=STOPS,
  **changed,
):
  settings = {
    "num_samples": SAMPLES,
    "max_new_tokens": STEPS,
    "max_rows": 64,
  } | changed
  parallel = make_parallel("pmap", jax.local_devices()[:devices])
  rows = (len(tokens), settings["num_samples"])
  keys = sampling.row_keys(jax.random.key(5), np.arange(np.prod(rows)))
  keys = np.asarray(jax.random.key_data(keys))
  keys = keys.reshape(*rows, *keys.shape[1:])
  make = make_generate(
    CONFIG, SamplingConfig(**settings), parallel, eos_ids=stops, pad_id=PAD
  )
  limit = np.broadcast_to(limit, rows)
  return make(parallel.place(params), tokens, valid, keys, limit)


@pytest.mark.parametrize(
  "setting",
  [
    {},
    {"max_rows": 4},
    {"max_rows": 4, "slot_samples": 2},
    {"max_rows": 3, "devices": 2},
    {"max_rows": 16, "devices": 4, "slot_samples": 2},
  ],
  ids=lambda s: ", ".join(f"{k} {v}" for k, v in s.items()) or "all at once",
)
def test_a_sample_does_not_depend_on_the_batch(params, alone, setting):  # noqa: F811
  tokens, valid, want = alone
  got = generate(params, tokens, valid, **setting)
  np.testing.assert_array_equal(got.tokens, want.tokens)
  np.testing.assert_array_equal(got.mask, want.mask)
  np.testing.assert_allclose(got.log_probs, want.log_probs, atol=1e-5)
  lengths = want.mask.sum(-1)
  assert len(set(lengths.ravel())) > 4 and not lengths[4].any()


def test_limits_of_single_samples(params, alone):  # noqa: F811
  tokens, valid, want = alone
  limit = np.arange(PROMPTS * SAMPLES).reshape(PROMPTS, SAMPLES) % (STEPS + 3)
  got = generate(params, tokens, valid, limit=limit, max_rows=5)
  lengths = np.minimum(want.mask.sum(-1), limit)
  np.testing.assert_array_equal(got.mask.sum(-1), lengths)
  np.testing.assert_array_equal(got.tokens[got.mask], want.tokens[got.mask])


def record(monkeypatch):
  """Counts of slots at every call of the decode loop, and its steps."""
  calls = []
  compiled = generation._compile

  def watch(*args):
    device = compiled(*args)

    def advance(weights, slots, *rest):
      before, slots_of = int(slots.clock[0]), slots.ended.shape[1]
      slots, ended = device.advance(weights, slots, *rest)
      calls.append((slots_of, int(slots.clock[0]) - before))
      return slots, ended

    return dataclasses.replace(device, advance=advance)

  monkeypatch.setattr(generation, "_compile", watch)
  return calls


def test_waiting_samples_take_the_place_of_ended_ones(
  params,  # noqa: F811
  alone,
  monkeypatch,
):
  calls = record(monkeypatch)
  tokens, valid, want = alone
  generate(params, tokens, valid, max_rows=4)
  drawn, steps = want.mask.sum(), sum(n for _, n in calls)
  # In batches of four that wait for their longest it would be the second.
  lengths = want.mask.sum(-1)[valid.any(1)].reshape(-1)
  in_turn = sum(lengths[i : i + 4].max() for i in range(0, len(lengths), 4))
  assert drawn / 4 <= steps < 0.85 * in_turn


def test_a_batch_shrinks_with_what_is_left(params, alone, monkeypatch):  # noqa: F811
  monkeypatch.setattr(generation, "_SMALLEST", 2)
  calls = record(monkeypatch)
  tokens, valid, _ = alone
  stops = tuple(range(0, 60, 4))  # most samples are short
  rows = range(PROMPTS * SAMPLES)
  want = run(params, tokens, valid, rows, SAMPLES, eos_ids=stops)
  got = generate(params, tokens, valid, stops=stops)
  got = got.tokens.reshape(want.tokens.shape)
  np.testing.assert_array_equal(got, want.tokens)
  assert [n for n, _ in calls][:3] == [30, 15, 8]
  work = sum(slots * steps for slots, steps in calls)
  assert work < 0.7 * 30 * want.mask.any(0).sum()


def test_no_prompts_give_no_samples(params):  # noqa: F811
  tokens, valid = prompts_of(PROMPTS)
  got = generate(params, tokens[:0], valid[:0])
  assert got.tokens.shape == (0, SAMPLES, STEPS)


def test_a_negative_temperature_is_named():
  with pytest.raises(ValueError, match="temperature must not be below 0: -1"):
    SamplingConfig(num_samples=1, max_new_tokens=1, temperature=-1)


@pytest.mark.parametrize("field", generation._SIZES)
def test_sizes_below_one_are_named(field):
  sizes = {"num_samples": 2, "max_new_tokens": 2} | {field: 0}
  with pytest.raises(ValueError, match=f"{field} must be at least 1: 0"):
    SamplingConfig(**sizes)
