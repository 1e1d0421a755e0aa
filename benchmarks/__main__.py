"""Run every benchmark: ``python -m benchmarks --size toy`` checks that each still works, ``--size cpu`` measures."""

from __future__ import annotations

import argparse

from benchmarks import dedup, demo, engine, guard, kernels, kill, large, real_corpora, scrub

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--size", choices=["toy", "cpu"], default="toy")
arguments = parser.parse_args()
MODULES = (kill, demo, engine, kernels, dedup, guard, scrub, large, real_corpora)  # kill forks: no thread may run before it
for module in MODULES:
    print(f"{module.__name__}: {(module.__doc__ or '').splitlines()[0]}")
    module.run(arguments.size)
