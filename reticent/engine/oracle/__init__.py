"""What protection should be, said a second time: plain, slow, and without the core.

Nothing here imports the compiled core. `words` is the word rule, `protection` what follows from words, spans and a
policy, `tokens` compares stored tokens with it. :mod:`reticent.engine.verify` does so for a corpus.
"""
