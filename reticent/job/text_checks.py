"""Checking all tokens of a run against their text, and the proof of that check for a machine without the text.

A check is an artefact of its own, ``text-check/MODEL/VARIANT``, bound to the tokens by the fingerprint of their flags:
so a machine that trains and has no text can say whether the flags it uses were checked. This needs no torch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from reticent.core.artifact import read_manifest, require_kind
from reticent.core.errors import ArtifactError
from reticent.engine.detect.spans import SpanReader
from reticent.engine.oracle.tokens import TextCheck
from reticent.engine.protect import Policy
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.engine.store import TokenStore, open_tokens
from reticent.job.artefact import Artefact, Step
from reticent.job.maker import build_step
from reticent.job.noise import noise_settings, protection_index
from reticent.job.run import Run
from reticent.job.variants import REWRITTEN

if TYPE_CHECKING:
    from reticent.engine.verify import CheckedText

#: Folders beside them that are no tokens of their own.
SHARED = ("ids", "gaps")
KIND, FILE = "text-check", "check.json"


def check_text(run: Run) -> dict[str, TextCheck | None]:
    """Check the protection flags of all tokens of a run's original text against its documents, unless that was done
    before; return the results by token store.

    Returns
    -------
    dict
        Name of each token artefact of the run -> the result of its check; None for text that was rewritten, whose
        characters are not those of the documents.

    Raises
    ------
    ArtifactError
        A token does not have the flags that follow from its text, or there are no tokens.
    """

    found: dict[str, TextCheck | None] = {}
    reader = _Reader(run)
    for model in run.job.model:
        folder = run.folder / "tokens" / model.name
        made = (path for path in folder.glob("*") if (path / "manifest.json").exists() and path.name not in SHARED)
        for path in sorted(made):
            require_kind(path, "tokens")
            name = f"tokens/{model.name}/{path.name}"
            original = _splits_and_policy(run, path.name)
            found[name] = reader.check(name, *original) if original else None
    if not found:
        raise ArtifactError(f"{run.folder}: no protected tokens to check; give protect a --model")
    return found


def _splits_and_policy(run: Run, variant: str) -> tuple[tuple[str, ...], Policy] | None:
    """Return the splits and the protection policy of a token store of original text; None for rewritten text."""
    if variant == "audit":
        return (MEMBERS, HELDOUT), run.policy
    policies = {run.job.tokens(name): run.job.protection(name) for model in run.job.model for name in model.recipes}
    policies = {name: policy for name, policy in policies.items() if not name.startswith(tuple(REWRITTEN))}
    policies["train"] = run.policy
    return ((MEMBERS,), policies[variant]) if variant in policies else None


class _Reader:
    """Makes the checks of a run; the text is read once, for the first check that needs it."""

    def __init__(self, run: Run):
        self._run = run
        self._text: CheckedText | None = None

    def check(self, name: str, splits: tuple[str, ...], policy: Policy) -> TextCheck:
        """Return whether the flags of the token store ``name`` follow from the text of its documents, with the counts:
        read from the run folder if this was checked before, else checked now.
        """
        run = self._run
        place = f"{KIND}/{name.removeprefix('tokens/')}"
        inputs = {
            "corpus": run.corpus.fingerprint(),
            "split": run.fingerprints.of("split"),
            "spans": run.fingerprints.of("spans"),
            "tokens": run.fingerprints.of(name),
        }
        noise = noise_settings(run, policy) if splits == (MEMBERS,) else {}
        config = {**policy.cache_key(), "surface": run.job.index.surface, **noise}

        def build(folder: Path, counts: dict[str, Any]) -> None:
            """Write the result of the check into ``folder``; `ArtifactError` where the tokens' flags do not follow from
            the text."""
            check = self._verify(name, splits, policy)
            if not check.holds:
                raise ArtifactError(f"{name}: {check.failure()}")
            (folder / FILE).write_text(json.dumps(check.to_dict(), indent=1))
            counts.update(documents=check.documents, tokens=check.tokens, violations=check.violations)

        build_step(run, Step.of(Artefact(place, KIND, config, inputs), build))
        return _read_check(run.folder / place / FILE)

    def _verify(self, name: str, splits: tuple[str, ...], policy: Policy) -> TextCheck:
        """Compare each protection flag of a token store with the flag that follows from the text; return the result."""
        from reticent.engine.verify import CheckedText, verify_tokens  # it compiles patterns of Unicode's properties

        run = self._run
        if self._text is None:
            with run.progress.task("read the text", None, "documents") as advance:
                self._text = CheckedText(run.corpus, run.individuals, splits=(MEMBERS, HELDOUT), progress=advance)
        with run.progress.task(f"verify {name}", None, "documents") as advance:
            return verify_tokens(
                open_tokens(run.folder / name),
                self._text,
                policy=policy,
                splits=splits,
                spans=SpanReader(run.folder / "spans"),
                surface=run.job.index.surface,
                other_supports=_replaced_supports(run, policy) if splits == (MEMBERS,) else None,
                progress=advance,
            )


def _replaced_supports(run: Run, policy: Policy) -> pa.RecordBatch | None:
    """Return the table (word, support) of the supports by which words are protected, if noise or a public word list
    changed these numbers of individuals, so that they cannot be counted from the text. None if they are plain counts.
    """
    if run.job.threshold.noise is None and policy.words == "counted":
        return None
    return protection_index(run, run.index(), policy.k, words=policy.words).words()


def text_check_of_flags(run: Run, name: str, store: TokenStore) -> tuple[str, bool]:
    """Return (sentence, may be used) on a store's protection flags: how far they were checked against the text, and
    False if the check found wrong ones or they have changed since.

    Without a text it goes by the kept check of all documents, or else by the sample that was checked when the tokens
    were made.
    """

    if _splits_and_policy(run, Path(name).name) is None:
        return "flags not checked against the text: that of these tokens was rewritten", True
    place = run.folder / KIND / name.removeprefix("tokens/")
    check = None
    if (place / FILE).exists():
        read_manifest(place)
        check = _read_check(place / FILE)
        if check.fingerprint != store.flags_fingerprint():
            return "flags: not those that were checked against the text; run protect --verify again", False
    elif "text_check" in (counts := read_manifest(run.folder / name).counts):
        check = TextCheck.from_dict(counts["text_check"])
    if check is None:
        return "flags never checked against the text; protect --verify does it where the text is", True
    said = (
        f"flags checked against the text of {check.documents:,} of {store.num_documents:,} documents: "
        f"{check.violations:,} violations"
    )
    return said, check.holds


def _read_check(path: Path) -> TextCheck:
    """Read the result of a check; `ArtifactError` where the file is not readable as one."""
    try:
        return TextCheck.from_dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError, ArtifactError) as error:
        raise ArtifactError(f"{path}: not a readable check of tokens ({type(error).__name__})") from None
