"""Oracle of protection: a second implementation, plain, slow, and without the core.

Nothing here imports the compiled core. `words` is the word rule, `protection` the consequences of words, spans and a
policy, `tokens` compares stored tokens with it. :mod:`reticent.engine.verify` does so for a corpus.
"""
