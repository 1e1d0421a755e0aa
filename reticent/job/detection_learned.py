"""The learned tagger of a run, for code that uses it: its location, its key, and the
individuals whose notes taught it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent.core.artifact import write_private
from reticent.core.json_toml import read_json
from reticent.engine.detect.learned import LearnConfig, read_key, read_tagger
from reticent.engine.languages import KNOWN
from reticent.engine.noisy_threshold import read_or_draw_key
from reticent.job.config import Job
from reticent.job.run import Run

#: Folder of the run with its tagger, and the file with the key of its features.
LEARNED: Final = "learned"
KEY: Final = "learned.key"
REPORT: Final = "learned.json"
TAUGHT_OUT: Final = "{:,} documents are left out of what is measured: individuals of theirs taught the tagger"
TAUGHT: Final = "taught.parquet"


def learn_config_of(job: Job) -> LearnConfig | None:
    """Return the settings for learning the run's tagger; None where it has none, or the
    job gives the tagger as a file.
    """
    return LearnConfig.of(job.detect.of("learned")) if "learned" in job.detect.detectors else None


def keep_key(before: Path, folder: Path) -> None:
    """Copy the secret key that hashes the tagger's features from the previous run's folder, ``before``, to ``folder``,
    unless this has one. An update then hashes features as before.
    """
    if (before / KEY).exists() and not (folder / KEY).exists():
        write_private(folder / KEY, read_or_draw_key(before / KEY))


def options_of(job: Job) -> dict[str, dict[str, Any]]:
    """Return the options of each detector of a job: detector name -> option -> value. If the job trains a tagger, the
    paths of its files are among them.
    """
    options = dict(job.detect.options)
    if learn_config_of(job) is not None:
        folder = Path(job.out)
        options["learned"] = {"model": folder / LEARNED / "tagger.parquet", "key": folder / KEY}
    return options


def languages_of(job: Job) -> tuple[str, ...]:
    """Return the languages that the job's detectors cover: those of the rules and of its tagger."""
    options = options_of(job).get("learned")
    if options is None or not Path(options["model"]).exists():
        return KNOWN
    return (*KNOWN, *read_tagger(options["model"], read_key(options.get("key"))).header.languages)


def taught(run: Run, individual_ids: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Return for each individual id whether the run's tagger was trained on a document of that individual, bool (num
    ids,)."""
    path = run.folder / LEARNED / TAUGHT
    if learn_config_of(run.job) is None or not path.exists():
        return np.zeros(len(individual_ids), dtype=bool)
    ids = pq.read_table(path).column("individual_id").combine_chunks()
    return pc.is_in(individual_ids.cast(pa.string()), ids).to_numpy(zero_copy_only=False).astype(bool)


def read_learned(run: Run) -> dict[str, Any]:
    """Return the report on the run's learned tagger: its training sources and its cross-validated recall and
    precision."""
    report: dict[str, Any] = read_json(run.folder / LEARNED / REPORT)
    return report
