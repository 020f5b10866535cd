"""A byte-level BPE tokenizer in Qwen's format, made from our own corpus."""

import json
import pathlib
from collections.abc import Iterable

# Qwen's way of cutting text before merges: contractions, words with the space
# before them, single digits, punctuation, line ends.
_SPLIT = (
  r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
  r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
_CHAT = (
  "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
  "{{ message['content'] }}<|im_end|>\n{% endfor %}"
  "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def train(
  texts: Iterable[str], vocab_size: int, directory: str | pathlib.Path
) -> None:
  """Writes tokenizer.json and its configs; the same texts, the same bytes.

  Args:
    texts: what to learn merges from.
    vocab_size: size with the 256 bytes and the three control tokens.
    directory: made if it does not exist.
  """
  from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
  )

  tokenizer = Tokenizer(models.BPE())
  tokenizer.normalizer = normalizers.NFC()
  tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [
      pre_tokenizers.Split(Regex(_SPLIT), "isolated"),
      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
  )
  tokenizer.decoder = decoders.ByteLevel()
  trainer = trainers.BpeTrainer(
    vocab_size=vocab_size,
    special_tokens=[END_OF_TEXT, START, END],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
  )
  tokenizer.train_from_iterator(texts, trainer)
  if tokenizer.get_vocab_size() != vocab_size:
    raise ValueError(
      f"the corpus yields {tokenizer.get_vocab_size()} tokens, not {vocab_size}"
    )
  directory = pathlib.Path(directory)
  directory.mkdir(parents=True, exist_ok=True)
  tokenizer.save(str(directory / "tokenizer.json"))
  config = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": END,
    "pad_token": END_OF_TEXT,
    "clean_up_tokenization_spaces": False,
    "chat_template": _CHAT,
  }
  (directory / "tokenizer_config.json").write_text(
    json.dumps(config, indent=2) + "\n"
  )
  ids = {
    "pad_token_id": tokenizer.token_to_id(END_OF_TEXT),
    "eos_token_id": [
      tokenizer.token_to_id(END),
      tokenizer.token_to_id(END_OF_TEXT),
    ],
  }
  (directory / "generation_config.json").write_text(
    json.dumps(ids, indent=2) + "\n"
  )
