"""The embedded default with one thing changed: baselines, ablations, variants.

  python -m experiments.train --config=configs/ablations.py:no_book \
    --workdir=runs/no_book_0 --config.seed=0

40 steps on 160 of the training problems: three epochs, as the paper ran. What a
question's first visit teaches the book is only used on its second, so that a
run of less than an epoch could not tell settings of the book apart.

Hardware: one CPU core, 3 to 5 minutes a run (`dropped` longer). The README's
table shows what came out; a name without a row there has not been run.

Ablations of the paper (Code-A1, arXiv 2603.15611), all with its rewards unless
named otherwise:
  paper                the embedded default
  corrected            adv counts new failures only: varies inside a group
  no_book              no Mistake Book, nothing is replayed
  black_box            the tester does not see the code
  no_topvar            the codes whose suites train are drawn at random
  alpha_0 ... alpha_1  weight of validity: 0, 0.3, 0.7, 1 (0.5 is the default)
Baselines:
  golden_tests         Code LLM alone, rewarded by each problem's own tests
  self_play            one policy in both roles, sees the code: may collude
  self_play_black_box  the same without seeing the code
  sft                  Test LLM alone, imitates golden asserts of faulty codes
Variants that the paper leaves open:
  composite            its simpler published reward
  all_suites           every code's suites train, in one larger minibatch
  anonymized           the tester sees code without names and comments
  curriculum           easier problems first, by the pass rate seen so far
  quality              trivial, duplicate and stale tests are invalid
  refreshed            2 of 8 replayed tests come from the archive of resolved
  dropped              groups of equal rewards replaced, up to 2 rounds
  dr_grpo              no division by the std, fixed horizon (2503.20783); as
                       published, not a mean of sequences: clipping sets the
                       gradient's size
  two_epochs           two passes over a step's samples: ratios leave 1
  gspo                 the same with one ratio a sequence (2507.18071)
  no_kl                no reference policy
"""

from ml_collections import config_dict

from configs import tiny

CHANGES = {
  "paper": {},
  "corrected": {"rewards.preset": "corrected"},
  "no_book": {"book.enabled": False},
  "black_box": {"prompts.test_visibility": "black_box"},
  "no_topvar": {"selection.kind": "random"},
  "alpha_0": {"rewards.alpha": 0.0},
  "alpha_0.3": {"rewards.alpha": 0.3},
  "alpha_0.7": {"rewards.alpha": 0.7},
  "alpha_1": {"rewards.alpha": 1.0},
  "golden_tests": {"method": "golden_tests"},
  "self_play": {"method": "self_play"},
  "self_play_black_box": {
    "method": "self_play",
    "prompts.test_visibility": "black_box",
  },
  "sft": {"method": "sft"},
  "composite": {"rewards.preset": "composite"},
  "all_suites": {"selection.kind": "all", "test.minibatch_size": 288},
  "anonymized": {"prompts.anonymize_code": True},
  "curriculum": {"curriculum.enabled": True},
  "quality": {"quality.enabled": True},
  "refreshed": {"book.refresh": 2, "book.max_archive": 16},
  "dropped": {"selection.drop_zero_variance": True, "selection.refill": 2},
  "dr_grpo": {
    "grpo.norm_by_std": False,
    "grpo.aggregation": "seq_mean_token_sum_norm",
  },
  "two_epochs": {"grpo.epochs": 2},
  "gspo": {
    "grpo.epochs": 2,
    "grpo.ratio": "sequence",
    "grpo.clip_eps_low": 3e-4,
    "grpo.clip_eps_high": 4e-4,
    "grpo.aggregation": "seq_mean_token_mean",
  },
  "no_kl": {"grpo.kl_estimator": "none"},
}


def get_config(arg: str = "paper") -> config_dict.ConfigDict:
  """The embedded default with the changes of one name of the list above."""
  if arg not in CHANGES:
    raise ValueError(
      f"configs/ablations.py:{arg}, expected one of {', '.join(CHANGES)}"
    )
  config = tiny.get_config()
  config.num_steps = 40
  config.max_train_problems = 160
  config.curriculum.end_step = 20
  config.evaluation.train_pass_rate = True
  config.update_from_flattened_dict(CHANGES[arg])
  config.lock()
  return config
