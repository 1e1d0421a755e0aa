"""``python -m reticent``, and ``torchrun --nproc-per-node N -m reticent`` for training on several devices."""

from reticent.cli import main

if __name__ == "__main__":
    main()
