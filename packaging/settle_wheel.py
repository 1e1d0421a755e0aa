"""Take out of a wheel what differs from build to build: ``python packaging/settle_wheel.py WHEEL``.

The bill of materials of the core has a random number, the time, and the folder of the sources, which nobody needs.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def settled(bill: bytes) -> bytes:
    """Return a bill of materials (CycloneDX) that is the same for the same sources and lock."""
    loaded = json.loads(bill)
    loaded.pop("serialNumber", None)
    loaded["metadata"].pop("timestamp", None)
    return json.dumps(loaded, indent=1).replace(ROOT.as_uri(), "file:///reticent").encode()


def settle(wheel: Path) -> None:
    """Write a wheel anew, with settled bills of materials and the record of the files as they are then."""
    with zipfile.ZipFile(wheel) as archive:
        files = [(info, archive.read(info)) for info in archive.infolist()]
    bills = {info.filename: settled(data) for info, data in files if ".dist-info/sboms/" in info.filename}
    rows = {}
    for name, data in bills.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows[name] = f"{name},sha256={digest},{len(data)}"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, data in files:
            if info.filename.endswith(".dist-info/RECORD"):
                lines = data.decode().splitlines()
                data = "".join(f"{rows.get(line.partition(',')[0], line)}\n" for line in lines).encode()
            archive.writestr(info, bills.get(info.filename, data))


if __name__ == "__main__":
    settle(Path(sys.argv[1]))
