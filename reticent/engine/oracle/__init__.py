"""Oracle of protection: a second, plain and slow implementation in Python, independent of the Rust core.

Nothing here imports the compiled core. `words` is the word rule, `documents` reads words and `retokenizer` tokens of a
text. In numbers, `protection` has the consequences of words, spans and a policy, and `tokens` compares stored tokens
with them. :mod:`reticent.engine.verify` does so for a corpus.
"""
