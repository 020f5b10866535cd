"""Packaging of codea1_jax. `make train` and `make test` need nothing else."""

import pathlib

from setuptools import find_packages, setup

setup(
  name="codea1_jax",
  version="0.1.0",
  description=(
    "Code-A1 in JAX: a code model and a test model trained against each "
    "other with GRPO"
  ),
  long_description=pathlib.Path(__file__).with_name("README.md").read_text()
  if pathlib.Path(__file__).with_name("README.md").exists()
  else "",
  long_description_content_type="text/markdown",
  license="Apache-2.0",
  python_requires=">=3.11",
  packages=find_packages(include=["codea1_jax*", "configs", "experiments"]),
  package_data={
    "codea1_jax": ["report_template.html"],
    "codea1_jax.tiny": ["*.jsonl", "*/*.json", "*/*.safetensors"],
  },
  install_requires=[
    "absl-py>=2.1",
    "flax>=0.12",
    "jax>=0.10",
    "jinja2>=3.1",
    "ml-collections>=1.0",
    "numpy>=2.0",
    "optax>=0.2.5",
    "orbax-checkpoint>=0.11",
    "safetensors>=0.8",
    "tqdm>=4.66",
    "transformers>=5.0",
    "zstandard>=0.23",
  ],
  extras_require={
    "test": [
      "coverage>=7.6",
      "hypothesis>=6.100",
      "matplotlib>=3.9",
      "pytest>=8.0",
      "pytest-xdist>=3.6",
      "ruff>=0.11",
    ],
    "parity": ["peft>=0.17", "torch>=2.6"],
    "hub": ["huggingface-hub>=1.0", "pyarrow>=17"],
    "mutation": ["cosmic-ray>=8.4"],
    "plots": ["matplotlib>=3.9"],
    "tensorboard": ["tensorboardX>=2.6"],
    "wandb": ["wandb>=0.20"],
    "cuda12": ["jax[cuda12]>=0.10"],
    "cuda13": ["jax[cuda13]>=0.10"],
    "tpu": ["jax[tpu]>=0.10"],
  },
)
