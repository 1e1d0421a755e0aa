"""A panic of the core, which only a bug can cause, says where it happened and never what it was about."""

from __future__ import annotations

import subprocess
import sys

SECRET = "Zyxwvut"
#: Words of one text, read in another: their bounds lie outside it, and the standard message quotes what it holds.
PANICKING = f"""
import pyarrow as pa
from reticent import _rust
words = _rust.segment(pa.array(["somebody was seen at noon by nobody"]))
try:
    words.surfaces(pa.array(["{SECRET} left"]))
except BaseException as error:
    raise SystemExit(type(error).__name__)
"""


def test_a_panic_says_where_it_happened_and_quotes_nothing() -> None:
    result = subprocess.run([sys.executable, "-c", PANICKING], capture_output=True, text=True, check=False)
    place, caught = result.stderr.splitlines()
    assert caught == "PanicException"
    assert place.startswith("reticent: the core panicked at rust_ext/src/py/words.rs:")
    assert place.endswith("; its message is withheld")
    assert SECRET not in result.stdout + result.stderr
