"""The embedded default: our own problems, corpus and a small pair of policies.

`operations.py` lists the building blocks, `compositions.py` makes problems and
programs of them, `handwritten.py` adds problems written by hand, `corpus.py`
turns all that into supervised examples. The shipped files lie beside:
`train.jsonl`, `heldout.jsonl`, `code_llm/`, `test_llm/`.
"""

import pathlib

DATA = pathlib.Path(__file__).parent
