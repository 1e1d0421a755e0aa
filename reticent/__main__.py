"""``python -m reticent``, and ``torchrun --nproc-per-node N -m reticent`` for training on several devices.

spark-submit is given the path of this file (``reticent spark script``), and starts it by that path.
"""

import sys
from pathlib import Path

if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
    del sys.path[0]  # started by its path: our modules would stand before those of others with the same name

from reticent.cli import main

if __name__ == "__main__":
    main()
