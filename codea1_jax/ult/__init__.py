"""UnLeakedTestBench of a Test LLM (EVALUATION.md), by two readings."""
