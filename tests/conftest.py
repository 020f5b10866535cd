"""Runs before any test imports jax: eight virtual devices, strict ranks."""

import os
import tempfile

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Tests build the same functions again and again: compile each only once.
_CACHE = tempfile.TemporaryDirectory(prefix="codea1_jax_test_")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", _CACHE.name)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
