"""Run every benchmark: ``python -m benchmarks --size toy`` checks that each still works, ``--size cpu`` measures."""

from __future__ import annotations

import argparse

from benchmarks import demo, detection, detection_speed, engine, kernels, kill, large, real_corpora

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--size", choices=["toy", "cpu"], default="toy")
arguments = parser.parse_args()
for module in (
    kill,
    demo,
    engine,
    kernels,
    large,
    real_corpora,
    detection,
    detection_speed,
):  # kill forks: no thread may run before it
    print(f"{module.__name__}: {(module.__doc__ or '').splitlines()[0]}")
    module.run(arguments.size)
