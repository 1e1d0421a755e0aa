"""Run every study: ``python -m studies --size toy`` checks that each still works; ``--size cpu`` takes days."""

from benchmarks.runner import main

main("studies")
