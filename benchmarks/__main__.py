"""Run every benchmark: ``python -m benchmarks --size toy`` checks that each still works, ``--size cpu`` measures."""

from __future__ import annotations

import argparse

from benchmarks import (
    canary_lab,
    classification,
    dedup,
    demo,
    detection,
    detection_speed,
    engine,
    escapes,
    experiment,
    foundation_models,
    guard,
    holes,
    holes_vocabulary,
    inversion,
    kernels,
    kill,
    large,
    probes,
    real_corpora,
    running_names,
    sampled_recall,
    scoring,
    scrub,
    tables_polars,
    taggers,
    tagging_speed,
    training,
)

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--size", choices=["toy", "cpu"], default="toy")
arguments = parser.parse_args()
# kill forks: no thread may run before it
MODULES = (
    kill,
    demo,
    engine,
    kernels,
    dedup,
    guard,
    scoring,
    inversion,
    holes,
    holes_vocabulary,
    scrub,
    escapes,
    detection,
    detection_speed,
    sampled_recall,
    running_names,
    large,
    real_corpora,
    classification,
    training,
    foundation_models,
    tables_polars,
    taggers,
    tagging_speed,
    probes,
    canary_lab,
    experiment,
)
for module in MODULES:
    print(f"{module.__name__}: {(module.__doc__ or '').splitlines()[0]}")
    module.run(arguments.size)
