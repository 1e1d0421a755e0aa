"""What protection should be, said a second time: plain, slow, and without the core.

Nothing here imports the compiled core or reads what it wrote. `words` is the word rule, `protection` what follows from
words, spans and a policy. :mod:`reticent.engine.verify` holds stored tokens to them, and the core's tests do.
"""
