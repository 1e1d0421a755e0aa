"""Look at the newest symbols of glibc that a wheel's libraries need: ``python packaging/check_wheel.py WHEEL [2.28]``.

Exit 1 where they are newer than the version given, or where the name of the wheel promises an older one.
"""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

Version = tuple[int, int]


def newest_glibc(library: bytes) -> Version | None:
    """Return the newest version of glibc's symbols that stands in a library; None where it needs none."""
    found = {(int(major), int(minor)) for major, minor in re.findall(rb"\0GLIBC_(\d+)\.(\d+)", library)}
    return max(found, default=None)


def check_wheel(wheel: Path, at_most: Version) -> list[str]:
    """Return what is wrong with a wheel: a sentence each."""
    wrong = []
    promised = [tuple(map(int, found)) for found in re.findall(r"manylinux_(\d+)_(\d+)", wheel.name)]
    if not promised:
        wrong.append(f"{wheel.name}: its name promises no manylinux")
    if any(version > at_most for version in promised):
        wrong.append(f"{wheel.name}: promises less than {at_most[0]}.{at_most[1]}")
    with zipfile.ZipFile(wheel) as archive:
        libraries = [name for name in archive.namelist() if name.endswith(".so")]
        if not libraries:
            wrong.append(f"{wheel.name}: holds no library")
        for name in libraries:
            newest = newest_glibc(archive.read(name))
            print(f"{wheel.name} {name}: glibc {'none' if newest is None else '{}.{}'.format(*newest)}")
            if newest is not None and newest > at_most:
                wrong.append(f"{name}: needs glibc {newest[0]}.{newest[1]}")
    return wrong


def main(arguments: list[str]) -> int:
    """Return the exit status."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    major, _, minor = (arguments[1] if len(arguments) > 1 else "2.28").partition(".")
    wrong = check_wheel(Path(arguments[0]), (int(major), int(minor)))
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
