"""The command line, run in this process: exit status only, what it prints goes where the test's output goes."""

from __future__ import annotations

import os

import pytest

from reticent.cli import main


def command(*arguments: object) -> object:
    """Return the exit status of ``reticent ARGUMENTS``."""
    umask = os.umask(0)
    os.umask(umask)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["reticent", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
    os.umask(umask)
    return end.value.code
