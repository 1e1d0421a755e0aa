"""Run every benchmark: ``python -m benchmarks --size toy`` checks that each still works, ``--size cpu`` measures."""

from benchmarks.runner import main

main("benchmarks")
