"""UnLeakedTestBench of a Test LLM (EVALUATION.md), by two readings.

rows -> rounds (a chat of five rounds a function) -> formats (an answer's test)
-> verdicts (runner, in the sandbox; probes; mutants) -> counts. evaluation.py
runs the stages, suite.py is a user's view of it all.
"""
