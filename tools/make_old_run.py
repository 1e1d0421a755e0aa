"""Make the archive ``tests/job/old-run.tar.xz``: a run, its update and its signed dossier, as commit 5750ba4a wrote it.

It was made once, from the sources of that commit, and is not made again: what it is worth is its age. Another archive
beside it, of a later commit, is made from the sources of that commit by

    PYTHONPATH=CHECKOUT python tools/make_old_run.py tests/job/NAME.tar.xz

The hospital is generated, the models have a few thousand weights, and the key that signs was made for this archive
alone and signs nothing else. The job is run in a folder that is deleted at the end: whoever unpacks the archive has a
run folder that has moved.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

#: Where the job is run; it must not be there, and is not there afterwards.
PLACE = Path("/tmp/reticent-old-run")
#: Seconds since 1970 of every time in the archive.
TIME = 1_795_000_000

FOUNDATION = {"text": str(PLACE / "hospital/public"), "vocab_size": 300, "hidden_size": 8, "num_layers": 1}
FOUNDATION |= {"num_heads": 2, "num_epochs": 2, "batch_size": 16, "warmup_steps": 4}
JOB: dict[str, Any] = {
    "out": str(PLACE / "monday"),
    "seed": 1,
    "corpus": {
        "source": str(PLACE / "hospital/notes"),
        "spans": "spans",
        "household_id": "household_id",
        "label": "label",
    },
    "dedup": {"mode": "exact"},
    "split": {"heldout": 0.4},
    "detect": {"detectors": ["gold", "rules", "records"], "records": str(PLACE / "hospital/records.parquet")},
    "index": {"max_n": 2, "updatable": True},
    "protect": {"k": 2, "n": 2, "policy": "cover"},
    "model": [
        {
            "name": "gpt2",
            "objective": "clm",
            "recipes": ["clm", "clma", "ppclm-surrogate", "tagged"],
            "foundation": {"kind": "gpt2", **FOUNDATION},
        },
        {
            "name": "bert",
            "objective": "mlm",
            "recipes": ["ppmlm", "wider"],
            "foundation": {"kind": "bert", **FOUNDATION},
        },
    ],
    "recipes": {
        "tagged": {"base": "ppclm", "context": "tag", "never_target": ["indirect"]},
        "wider": {"base": "ppmlm", "k": 3, "n": 1, "policy": "all"},
    },
    "train": {
        "num_epochs": 2,
        "checkpoint_epochs": [2],
        "window_length": 32,
        "batch_size": 16,
        "learning_rate": 3e-3,
        "device": "cpu",
    },
    "audit": {
        "num_bootstrap": 100,
        "attacks": ["loss", "zlib"],
        "generation": {"num_prompts": 10, "num_tokens": 8, "prefix_tokens": 4},
        "inversion": {"num_decoys": 3, "per_individual": 1},
        "shadow": {"recipes": ["ppmlm"], "num_shadows": 4},
    },
    "extraction": {"prefix_tokens": [4], "suffix_tokens": 4, "num_passages": 20, "num_queries": [1, 10]},
    "gate": [{"measure": "membership_auc", "at_most": 0.9}],
    "verdict": {},
    "dossier": {"languages": ["en", "fr"], "pdf": "off", "institution": "A hospital that does not exist"},
}


def main(archive: Path) -> None:
    """Run the job, update it, sign its dossier, and pack the folder."""
    if PLACE.exists():
        raise SystemExit(f"{PLACE} is in the way")
    try:
        make()
        pack(archive)
    finally:
        shutil.rmtree(PLACE)
    print(f"{archive}: {archive.stat().st_size:,} bytes")


def make() -> None:
    """Make everything in `PLACE`."""
    hospital = PLACE / "hospital"
    PLACE.mkdir(mode=0o700)
    reticent(
        *("synth", hospital, "--individuals", 26, "--words-per-document", 25, "--documents-per-individual", 1.5),
        *("--public-documents", 60, "--language", "en", "--seed", 3),
    )
    keep_some_for_later(hospital)
    new_key(PLACE / "keys")
    (PLACE / "job.json").write_text(json.dumps(JOB, indent=1))
    reticent("run", PLACE / "job.json")
    reticent("dossier", JOB["out"], "--key", PLACE / "keys/institution")
    gone = hospital / "gone.txt"
    reticent("update", JOB["out"], "--add", hospital / "later", "--remove", gone, "--out", PLACE / "tuesday")
    reticent("run", PLACE / "tuesday", "--until", "protect")
    (PLACE / "job.json").unlink()  # each run folder has its own


def keep_some_for_later(hospital: Path) -> None:
    """Take the documents of every fifth household out of the first run, and name two individuals who withdraw, one of
    them a member.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(hospital / "documents")
    late = pc.is_in(table["household_id"], value_set=pa.array(table["household_id"].unique().to_pylist()[::5]))
    shutil.rmtree(hospital / "documents")
    for name, chosen in (("notes", pc.invert(late)), ("later", late)):
        (hospital / name).mkdir()
        pq.write_table(table.filter(chosen), hospital / name / f"{name}.parquet")
    stay = pq.read_table(hospital / "notes")["individual_id"].unique()
    (hospital / "gone.txt").write_text(f"{stay[0]}\n{stay[2]}\n")


def new_key(folder: Path) -> None:
    """Make a key, and the list of allowed signers with it."""
    folder.mkdir(mode=0o700)
    key = folder / "institution"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "old-run", "-f", str(key)], check=True)
    kind, public, _ = key.with_suffix(".pub").read_text().split()
    (folder / "signers").write_text(f'institution namespaces="reticent-dossier" {kind} {public}\n')


def reticent(*arguments: object) -> None:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(TIME), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "reticent", *map(str, arguments), "--quiet"]
    done = subprocess.run(command, env=environment, check=False).returncode
    if done not in (0, 3):  # 3: a gate failed, as it may
        raise SystemExit(f"{' '.join(command)} ended with {done}")


def pack(archive: Path) -> None:
    """Pack every file but locks and what a run remembers of inodes, without owners and times."""
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for path in sorted(PLACE.rglob("*")):
            name = path.relative_to(PLACE)
            if any(part.startswith(".") for part in name.parts):
                continue
            about = tarfile.TarInfo(name.as_posix())
            about.mtime = TIME
            if path.is_dir():
                about.type, about.mode = tarfile.DIRTYPE, 0o700
                tar.addfile(about)
            else:
                content = path.read_bytes()
                about.size, about.mode = len(content), 0o600
                tar.addfile(about, io.BytesIO(content))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
