"""The embedded default: a small real pair on the shipped problems.

  python -m experiments.train --config=configs/tiny.py --workdir=runs/tiny

Hardware: 2 CPU cores, below 4 GB. See the README for what was measured.
"""

from ml_collections import config_dict


def _optimizer(learning_rate: float) -> config_dict.ConfigDict:
  optimizer = config_dict.ConfigDict()
  optimizer.learning_rate = learning_rate
  optimizer.warmup_steps = 5
  optimizer.schedule = "constant"  # or cosine
  optimizer.weight_decay = 0.0
  optimizer.grad_clip = 1.0
  optimizer.b1 = 0.9
  optimizer.b2 = 0.99
  # Of Adam's two moments a parameter; bfloat16 halves what they take.
  optimizer.moment_dtype = "float32"
  return optimizer


def _policy(shipped: str, learning_rate: float) -> config_dict.ConfigDict:
  policy = config_dict.ConfigDict()
  policy.model = shipped  # shipped:NAME, a directory or hub:ORG/NAME
  policy.adapter = ""  # with LoRA: a PEFT directory to start from
  policy.max_prompt_tokens = 768
  policy.max_new_tokens = 128
  policy.minibatch_size = 128  # sequences an update
  policy.optimizer = _optimizer(learning_rate)
  return policy


def _add_model(config: config_dict.ConfigDict) -> None:
  """What is computed with, and what is trained."""
  # Above rank 0, adapters are trained beside one base that both policies and
  # the reference share: code.model and test.model must be one and the same.
  lora = config.lora = config_dict.ConfigDict()
  lora.rank = 0  # the reference of the KL term is the base alone
  lora.alpha = 32.0  # adapters add alpha / rank times their product
  lora.targets = (
    *("q_proj", "k_proj", "v_proj", "o_proj"),
    *("gate_proj", "up_proj", "down_proj"),
  )

  compute = config.compute = config_dict.ConfigDict()
  compute.dtype = "float32"  # of activations; bfloat16 on accelerators
  compute.param_dtype = "float32"
  compute.scan_layers = False  # True compiles one layer, for deep models
  compute.remat = "none"  # or full, dots, dots_no_batch: what is not kept

  # The policies as loaded, for the KL term. Under LoRA the base is the
  # reference and these fields stay as they are.
  reference = config.reference = config_dict.ConfigDict()
  reference.dtype = "same"  # as compute.param_dtype; or bfloat16
  reference.placement = "device"  # or host: copied to the devices to score


def _add_play(config: config_dict.ConfigDict) -> None:
  """What both policies write, and what it is worth."""
  rollout = config.rollout = config_dict.ConfigDict()
  rollout.questions = 12  # Q in a step
  rollout.codes = 6  # M of a question
  rollout.suites = 4  # N of a code
  rollout.tests = 4  # K of a suite
  rollout.temperature = 1.0
  rollout.max_rows = 256  # completions that a device decodes at a time
  # Samples that share a prompt's cache and begin together. With prompts much
  # longer than answers sharing pays, else 1 does: nothing waits for others.
  rollout.slot_samples = 4
  rollout.bucket = 32  # lengths are padded to multiples of it, or of more

  prompts = config.prompts = config_dict.ConfigDict()
  prompts.preset = "compact"  # or paper
  prompts.test_visibility = "white_box"  # or black_box
  prompts.anonymize_code = False  # True: the tester sees logic, no names

  rewards = config.rewards = config_dict.ConfigDict()
  rewards.preset = "paper"  # or corrected, composite
  rewards.alpha = 0.5  # weight of validity in the test reward

  # Rules that make a test invalid (quality.py): the answer is an argument,
  # another spelling of an earlier input, passed by every code in the last
  # `patience` steps that ran it (a question comes once an epoch).
  quality = config.quality = config_dict.ConfigDict()
  quality.enabled = False
  quality.rules = ("trivial", "duplicate", "stale")
  quality.patience = 2

  book = config.book = config_dict.ConfigDict()
  book.enabled = True
  book.replay = 8  # R: tests replayed to a question's codes
  # Or recent, or quality: drawn in proportion to it, which under the presets
  # paper and corrected is the same for all tests.
  book.sampler = "frequency"
  book.refresh = 0  # of them: drawn from the archive of resolved tests
  book.max_archive = 0  # resolved tests kept a question
  book.max_per_question = 64
  book.max_total = 100_000

  selection = config.selection = config_dict.ConfigDict()
  selection.kind = "topvar"  # or random, all: codes whose suites train
  selection.top_k = 1  # of a question, the Test LLM
  # Groups of equal rewards teach nothing: True keeps them out of the averages
  # (DAPO, arXiv 2503.14476), and up to `refill` further rounds of the missing
  # questions look for others.
  selection.drop_zero_variance = False
  selection.refill = 0

  # Easier problems first, by the pass rate seen so far (curriculum.py).
  curriculum = config.curriculum = config_dict.ConfigDict()
  curriculum.enabled = False
  curriculum.strength = 5.0  # how much likelier e.g. rate 1 is: exp(strength)
  curriculum.end_step = 40  # uniform from here on


def _add_learning(config: config_dict.ConfigDict) -> None:
  """The update."""
  grpo = config.grpo = config_dict.ConfigDict()
  grpo.clip_eps_low = 0.2
  grpo.clip_eps_high = 0.28
  grpo.dual_clip = 10.0
  grpo.kl_coef = 0.001
  grpo.kl_estimator = "k3"  # or k1, k2, none: no reference is held
  grpo.ratio = "token"  # or sequence (GSPO, arXiv 2507.18071)
  # Whose log-probs the ratio's denominator has: trainer scores all completions
  # before the first update; sampler saves that pass, and keeps what the sampler
  # drew with, the same but for rounding (metric sampler_gap).
  grpo.behavior = "trainer"
  grpo.importance_cap = 0.0  # above 0: truncated weights, trainer / sampler
  grpo.entropy_coef = 0.0
  grpo.aggregation = "token_mean"
  grpo.norm_by_std = True  # False: Dr. GRPO
  grpo.std = "sample"  # or population
  grpo.epochs = 1
  grpo.mask_cut = False  # True: completions cut by length do not train
  grpo.micro_batch_size = 8  # rows of a pass on a device
  # Tokens of a row that an update packs whole sequences into (packing.py);
  # 0: a row is one sequence, padded. The numbers are the same; a row of e.g.
  # 512 tokens replaces several, so micro_batch_size should be smaller.
  grpo.pack_length = 0
  # Most slots for completions behind a prompt that scoring and the update then
  # compute once for all of them (packing.py); 0: each computes its own. The
  # numbers are the same; a row is that much longer, so micro_batch_size should
  # be smaller.
  grpo.share_prompts = 0


def _add_upkeep(config: config_dict.ConfigDict) -> None:
  """Everything around the steps."""
  sandbox = config.sandbox = config_dict.ConfigDict()
  sandbox.workers = 0  # 0: one a core
  sandbox.call_cpu_s = 0.5
  sandbox.load_cpu_s = 1.0
  sandbox.memory_mb = 256
  sandbox.allow_weak_isolation = False

  evaluation = config.evaluation = config_dict.ConfigDict()
  evaluation.every = 40  # steps; also before and after
  evaluation.samples = 4  # codes a problem
  evaluation.temperature = 1.0  # of everything but greedy codes
  evaluation.top_p = 1.0
  # Suites a code that choose among a problem's sampled codes: the one that
  # passes most tests, answers as predicted, is the answer. 0: not evaluated.
  evaluation.collaboration = 0
  # Whether every step runs its own codes on golden tests too: for the curves
  # only, no reward sees it.
  evaluation.train_pass_rate = False
  evaluation.targets = 4  # faulty programs a problem, one suite each

  # Boards beside metrics.jsonl and eval.jsonl, which are always written.
  logging = config.logging = config_dict.ConfigDict()
  logging.tensorboard = False  # event files in WORKDIR/tensorboard
  logging.wandb = ""  # a project's name; WANDB_MODE=offline needs no network
  # TFLOP/s of one device, for mfu/*; 0: as known of its kind, of others none.
  logging.peak_tflops = 0.0

  # Means of either policy over so many steps, out of their bounds: a line on
  # stderr, or an end with a checkpoint and exit code 3. NaN always ends a run.
  guards = config.guards = config_dict.ConfigDict()
  guards.action = "warn"  # or stop, off
  guards.steps = 10
  guards.min_entropy = 0.005  # nats a token
  guards.min_validity = 0.05  # codes that load; tests that are valid
  guards.max_zero_variance = (
    0.95  # groups of equal rewards, which teach nothing
  )

  checkpoint = config.checkpoint = config_dict.ConfigDict()
  checkpoint.every = 20
  checkpoint.keep = 2  # the newest so many
  checkpoint.keep_every = 0  # above 0: those of its multiples too
  # The evaluation's metric whose best checkpoint is kept too, such as
  # eval/test/kill_rate; only evaluated steps count.
  checkpoint.best = ""


def get_config() -> config_dict.ConfigDict:
  """The run behind `make train`."""
  config = config_dict.ConfigDict()
  config.method = "code_a1"  # or golden_tests, self_play, sft
  config.seed = 0
  config.num_steps = 80
  # "pmap": every device holds both policies whole. "mesh": one program over
  # data x fsdp x tensor devices, which cut them; -1 is what is left.
  config.parallel = "pmap"
  mesh = config.mesh = config_dict.ConfigDict()
  mesh.data, mesh.fsdp, mesh.tensor = 1, -1, 1
  # "colocated": both policies on all devices, in turn. "split": a half each,
  # where they write and learn at the same time.
  config.placement = "colocated"
  config.train_problems = "shipped:train"  # or a problem file (JSONL)
  config.max_train_problems = 0  # above 0: so many of them, drawn by the seed
  config.heldout_problems = "shipped:heldout"

  # The Code LLM takes the smaller steps: it then leaves faulty codes for the
  # Test LLM to learn from for longer.
  config.code = _policy("shipped:code_llm", 3e-4)
  config.test = _policy("shipped:test_llm", 5e-4)

  config.self_play_model = "shipped:both_llm"  # method self_play only

  _add_model(config)
  _add_play(config)
  _add_learning(config)
  _add_upkeep(config)
  config.dump_every = 10  # steps between rollout dumps for the report
  # (first, count): a trace of these steps in WORKDIR/profile, for TensorBoard's
  # profile plugin or ui.perfetto.dev; count 0 for none.
  config.profile_steps = (0, 0)
  config.lock()
  return config
