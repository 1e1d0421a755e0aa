"""The ledger of a guarded training, verified: its targets are compared with the tokens of its dataset, made again.

A trainer of others orders, packs, cuts and repeats windows as it likes, so its targets cannot be drawn again as those
of `reticent train` are. The guard has noted them instead: a bit for each token that reached the loss as a label, and a
checksum of these tokens' numbers and ids.
"""

from __future__ import annotations

import base64
import operator
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.core.errors import ArtifactError, PolicyError
from reticent.core.json_toml import parse_json
from reticent.engine.kernels import mark_tokens
from reticent.engine.schema import IGNORE_INDEX
from reticent.engine.store import open_tokens
from reticent.ext.trainers.dataset import PERMITTED, PROTECTED, TOKEN_INDEX, dataset_of_run, windows_of
from reticent.ext.trainers.guard import COUNTS, FORMAT
from reticent.job.training_tokens import check_of_flags, verified_fingerprint
from reticent.trainer.verify import Verdict

if TYPE_CHECKING:
    import datasets

    from reticent.job.run import Run

#: Rows of a dataset that are read at a time.
_ROWS = 2048


def read_guarded_ledger(path: Path | str) -> dict[str, Any]:
    """Return the content of a guarded trainer's ledger file, the marks of its processes as uint8 arrays; raise
    `ArtifactError` if it cannot be read, is incomplete, or of a version that did not note targets."""
    try:
        content = parse_json(Path(path).read_bytes())
        if content.get("format") != FORMAT:
            raise ArtifactError(
                f"{path}: expected the ledger of a guarded trainer, {FORMAT}. One of `reticent train` is verified by "
                "`reticent train --verify LEDGER`, without RUN; one of an earlier version names no targets: train once "
                "more"
            )
        for process in content["processes"]:
            packed = zlib.decompress(base64.b64decode(process["marks"], validate=True))
            process["marks"] = np.frombuffer(packed, np.uint8)
            _ = int(process["checksum"], 16), operator.index(process["without_index"])
        counts = [row[name] for row in (content, *content["epochs"]) for name in (*COUNTS, "violations")]
        _ = [*map(operator.index, (*counts, content.get("first_step", 0)))], content.get("recipe", {}).get("name")
    except OSError as error:
        if error.errno is None:  # ours
            raise
        raise ArtifactError(f"{path}: cannot be read ({error.strerror})") from None
    except (AttributeError, KeyError, TypeError, ValueError, zlib.error):
        raise ArtifactError(f"{path}: not a readable ledger of a guarded trainer") from None
    return content


def verify_guarded(
    ledger: Path | str, dataset: datasets.Dataset, *, progress: Callable[[int], None] | None = None
) -> Verdict:
    """Return which claims of a guarded training's ledger are false, by comparing its targets with the dataset.

    Every token that was a target must stand in the dataset as one that may be a target, with the id that reached the
    loss.

    Parameters
    ----------
    ledger : path, written by a trainer of `guard_trainer`, or by `TargetGuard.write`
    dataset : from `protected_dataset`, `Run.dataset` or `chat_dataset`, made again and whole: before any selection
    progress : callable, optional
        Called with the number of rows that were compared.

    Returns
    -------
    Verdict
        Its ``counts`` are of distinct tokens: those of the dataset that may be targets and that must not be, those that
        were, and how many of these must not.

    Raises
    ------
    ArtifactError
        The ledger cannot be read.
    PolicyError
        The dataset is none of these.
    """
    content = read_guarded_ledger(ledger)
    wrong = _faults_of_claims(content)
    if (source := windows_of(dataset)) is not None:
        for name, wanted in (("recipe", source.recipe.to_dict()), ("protection", source.fingerprint)):
            if content.get(name, wanted) != wanted:
                wrong.append(f"{name}: not that of the dataset, or its tokens or flags are others")
    processes = content["processes"]
    every = np.zeros(max((len(process["marks"]) for process in processes), default=0), np.uint8)
    for process in processes:
        every[: len(process["marks"])] |= process["marks"]
    again = [np.zeros_like(process["marks"]) for process in processes]
    checksums = [0 for _ in processes]
    eligible = protected = violations = others = 0
    for start in range(0, len(dataset), _ROWS):
        rows = dataset[start : start + _ROWS]
        if not {PERMITTED, TOKEN_INDEX} <= set(rows):
            raise PolicyError("verify_guarded: expected a dataset of protected_dataset, Run.dataset or chat_dataset")
        permitted, index = (np.concatenate([*map(np.asarray, rows[name])]) for name in (PERMITTED, TOKEN_INDEX))
        eligible += int(np.count_nonzero(permitted >= 0))
        protected += int(np.count_nonzero(permitted == PROTECTED))
        targets = permitted[_are_marked(every, index)]
        violations += int(np.count_nonzero(targets == PROTECTED))
        others += int(np.count_nonzero(targets == IGNORE_INDEX))
        for number, process in enumerate(processes):
            own = _are_marked(process["marks"], index)
            checksums[number] += int(mark_tokens(again[number], index[own], permitted[own]))
        if progress:
            progress(min(start + _ROWS, len(dataset)))
    if violations:
        wrong.append(f"{violations:,} protected tokens were targets")
    if others:
        wrong.append(f"{others:,} tokens were targets that are neither free nor protected, such as special tokens")
    for number, process in enumerate(processes):
        who = f"process {number}: " if len(processes) > 1 else ""
        if not np.array_equal(again[number], process["marks"]):
            wrong.append(f"{who}some of its targets are no tokens of the dataset")
        elif checksums[number] & (2**64 - 1) != int(process["checksum"], 16):
            wrong.append(f"{who}its targets had other ids than the tokens of the dataset at their places")
    counts = (eligible, protected, int(np.bitwise_count(every).sum()), violations)
    return Verdict(wrong, dict(zip((*COUNTS, "violations"), counts, strict=True)))


def _are_marked(marks: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return whether the bit of each token index (int64, -1 for none) is set in ``marks`` (uint8), bool (N,)."""
    known = (index >= 0) & (index >> 3 < len(marks))
    inside = index[known]
    found = np.zeros(len(index), np.bool_)
    found[known] = marks[inside >> 3] >> (inside & 7).astype(np.uint8) & 1
    return found


def _faults_of_claims(content: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a ledger by its own numbers, as sentences."""
    wrong = [
        f"{name}: {content[name]:,} in all, {total:,} by the epochs"
        for name in (*COUNTS, "violations")
        if content[name] != (total := sum(row[name] for row in content["epochs"]))
    ]
    if content["violations"]:
        wrong.append(f"{content['violations']:,} protected tokens were targets")
    if content.get("first_step"):
        wrong.append(f"it begins after step {content['first_step']:,}: what was trained before is in another ledger")
    if without := sum(process["without_index"] for process in content["processes"]):
        wrong.append(f"{without:,} targets came without the column {TOKEN_INDEX!r}, and nothing says which they were")
    distinct = [int(np.bitwise_count(process["marks"]).sum()) for process in content["processes"]]
    if max(distinct, default=0) > content["targets"] or (content["targets"] and not any(distinct) and not without):
        wrong.append(f"targets: {content['targets']:,} by the counts, {sum(distinct):,} are noted")
    return wrong


def verify_guarded_run(
    run: Run, ledger: Path, *, progress: Callable[[int], None] | None = None
) -> tuple[Verdict, str, str]:
    """Verify the ledger of a guarded training on a `Run.dataset` against the run's tokens; return the verdict, which
    also says how far the flags were checked against the text, and the names of the model and the recipe.

    Raises
    ------
    ArtifactError
        The ledger names no recipe of the run, or no tokens of the run are those of its training.
    """
    content = read_guarded_ledger(ledger)
    recipe = content.get("recipe", {}).get("name")
    if recipe is None:
        raise ArtifactError(
            f"{ledger}: names no recipe, for its rows did not come straight from Run.dataset (an own loop, packed or "
            "listed rows, conversations): verify it by reticent.trainers.verify_guarded, with the dataset made again"
        )
    for model in run.job.model:
        if recipe in model.recipes:
            dataset = dataset_of_run(run, recipe, model.name)
            source = windows_of(dataset)
            assert source is not None
            if source.fingerprint == content.get("protection"):
                break
    else:
        raise ArtifactError(
            f"{ledger}: no tokens of {run.folder} are those of this training, by its recipe ({recipe}) and protection; "
            "of a dataset of your own, use reticent.trainers.verify_guarded"
        )
    verdict = verify_guarded(ledger, dataset, progress=progress)
    name = f"tokens/{model.name}/{run.job.tokens(recipe)}"
    flags, are_those = check_of_flags(run, name, source.recipe, open_tokens(run.folder / name), None)
    mismatches = verdict.mismatches if are_those else [flags, *verdict.mismatches]
    try:  # flags that were changed in between would be taken as they are
        verified_fingerprint(run.folder / name)
    except ArtifactError as error:
        mismatches = [str(error), *mismatches]
    return replace(verdict, mismatches=mismatches, flags=flags), model.name, recipe
