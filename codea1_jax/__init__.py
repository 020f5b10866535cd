"""Code-A1 in JAX: a code model and a test model trained against each other."""

__version__ = "0.1.0"
