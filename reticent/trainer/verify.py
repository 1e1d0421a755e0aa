"""The ledger of a training on disk, and its verification: the targets of every epoch are drawn again without a model.

The targets of a run are a function of its tokens, its recipe and its seed. So the order of the windows, the masked
words and the dropped tokens can be drawn again from these. Verification needs no torch (except for DP-SGD's epsilon,
which Opacus computes). One processor core draws tens of millions of tokens per second.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.core.errors import ArtifactError
from reticent.core.json_toml import parse_json
from reticent.engine.store import TokenStore
from reticent.trainer.config import TrainConfig
from reticent.trainer.context import BatchContext, context_of
from reticent.trainer.labels import draw_targets, fingerprint_protection, with_drops
from reticent.trainer.ledger import CONTEXT_COUNTS, COUNTS, Ledger
from reticent.trainer.packing import packed_order
from reticent.trainer.privacy import Guarantee, epsilon_of
from reticent.trainer.recipes import Recipe
from reticent.trainer.windows import SpecialIds, cut_windows

if TYPE_CHECKING:  # a machine that only trains may lack the core
    from reticent.engine.public_words import ContextWords

FORMAT = "reticent.ledger/1"
#: Settings of a training that determine its targets.
DRAWN = ("window_length", "batch_size", "mask_share", "seed", "num_epochs")
#: Settings with which a training may end before its last epoch; in a ledger only if they were given.
ENDING = {"max_steps", "early_stopping_patience"}


def write_ledger(
    path: Path,
    ledger: Ledger,
    recipe: Recipe,
    config: TrainConfig,
    special: SpecialIds,
    **more: Any,
) -> None:
    """Write a training's private record: recipe, settings, totals, each epoch's counts of targets and protected tokens,
    and ``more`` (JSON values).
    """
    content = {
        "format": FORMAT,
        "recipe": recipe.to_dict(),
        "settings": config.of_one_training(),
        "special": {name: number for name, number in asdict(special).items() if name != "end" or number is not None},
        **ledger.state(),
        **more,
    }
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(content, file, indent=1)


def read_ledger(path: Path | str) -> dict[str, Any]:
    """Return the content of a ledger file; raise `ArtifactError` if it is of another version, unreadable or
    incomplete."""
    try:
        content = parse_json(Path(path).read_bytes())
        if content["format"] != FORMAT:
            raise ArtifactError(f"{path}: a ledger of another version; expected {FORMAT}")
        Ledger.from_states(content)
        SpecialIds(**content["special"])
        _ = [content["settings"][name] for name in DRAWN], content["recipe"]["name"]
        _ = content.get("ended", {"epoch": 0})["epoch"] + content.get("ended", {}).get("batches", 0)
        _ = [content[name] for name in COUNTS]
    except OSError as error:
        if error.errno is None:  # ours
            raise
        raise ArtifactError(f"{path}: cannot be read ({os.strerror(error.errno)})") from None
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ArtifactError(f"{path}: not a readable ledger of a training") from None
    return content


@dataclass(frozen=True, slots=True)
class Verdict:
    """The claims of a ledger that do not hold, as sentences; empty if all hold.

    ``counts`` are the counts that were drawn again. They are None for DP-SGD, whose secret samples cannot be drawn
    again: there the tokens, their protection, the recipe, the settings and the arithmetic of epsilon are compared, and
    the number of violations must be 0. ``flags`` says how far the flags were compared with the text, which this module
    does not read.
    """

    mismatches: list[str]
    counts: dict[str, int] | None
    flags: str = ""

    @property
    def holds(self) -> bool:
        """Whether every claim of the ledger was confirmed."""
        return not self.mismatches


def verify_ledger(
    content: Mapping[str, Any],
    tokens: TokenStore | Callable[[int], TokenStore],
    recipe: Recipe,
    *,
    settings: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
    context: ContextWords | None = None,
) -> Verdict:
    """Return which claims of a training's ledger are false, by drawing the prediction targets of every epoch again
    without a model.

    Parameters
    ----------
    content : mapping, from `read_ledger`
    tokens : TokenStore, or a function from an epoch to a TokenStore
        The training tokens of the run.
    recipe : Recipe
        The recipe of the run.
    settings : mapping, optional
        The expected settings of the training; those in `DRAWN` and ``end_of_text`` are compared, and without one of
        `ENDING` no end before the last epoch is believed.
    progress : callable, optional
        Called with the number of finished epochs.
    context : ContextWords, optional
        The public words, for a recipe that replaces indirect identifiers.
    """
    context = context_of(recipe, context)
    if not ENDING & (settings or content["settings"]).keys():
        content = {**content, "ended": {}}
    settings, compared = settings or {}, (*DRAWN, "end_of_text")
    wrong = [
        f"{what} {name}: the ledger says {said.get(name)!r}, the run {expected!r}"
        for what, said, wanted in (
            ("recipe's", content["recipe"], recipe.to_dict()),
            ("setting", content["settings"], {name: settings[name] for name in compared if name in settings}),
        )
        for name, expected in wanted.items()
        if said.get(name) != expected
    ]
    if content["recipe"].get("context_indirect", "keep") != recipe.context_indirect:
        wrong.append(f"recipe's context_indirect: the ledger has another than the run's {recipe.context_indirect!r}")
    if context is not None and content.get("context", {}).get("pool") != context.digest:
        wrong.append("context: the public words are not those of the training")
    rows = {row["epoch"]: row for row in content["epochs"]}
    num_epochs = content.get("ended", {}).get("epoch", content["settings"]["num_epochs"])
    if sorted(rows) != list(range(1, num_epochs + 1)):
        wrong.append(f"epochs: the ledger has {len(rows)} of the {num_epochs} that were trained")
    totals = Ledger.from_states(content).to_dict()
    wrong += [
        f"{name}: {content[name]:,} in all, {totals[name]:,} by the epochs"
        for name in totals
        if content.get(name) != totals[name]
    ]
    if content["violations"]:
        wrong.append(f"{content['violations']:,} protected tokens were targets")
    if content.get("read"):
        wrong.append(f"{content['read']:,} words that identify were read")
    if recipe.private:
        wrong += _guarantee_faults(content.get("privacy", {}))
    drawn = Ledger()
    for done, (epoch, protection) in enumerate(
        _redraw_epochs(content, tokens, recipe, sorted(rows), drawn, context), 1
    ):
        row = rows[epoch]
        again = row if recipe.private else drawn.state()["epochs"][-1]
        if row["protection"] != protection:
            wrong.append(f"epoch {epoch}: the tokens, their flags or what is protected are not those of the run")
        wrong += [
            f"epoch {epoch}: {name}: the ledger says {_show(row.get(name))}, drawn again it is {_show(again.get(name))}"
            for name in (*COUNTS, "digest", *CONTEXT_COUNTS, "inputs")
            if row.get(name) != again.get(name)
        ]
        if progress:
            progress(done)
    return Verdict(wrong, None if recipe.private else drawn.to_dict())


def _redraw_epochs(
    content: Mapping[str, Any],
    tokens: TokenStore | Callable[[int], TokenStore],
    recipe: Recipe,
    epochs: list[int],
    ledger: Ledger,
    context: ContextWords | None,
) -> Iterator[tuple[int, str]]:
    """Draw each epoch's prediction targets again, to check a training; count them in ``ledger`` and yield (epoch,
    fingerprint of its tokens and protection flags). For DP-SGD nothing is drawn or counted."""
    settings, special = content["settings"], SpecialIds(**content["special"])
    protection, windows = "", None
    for epoch in epochs:
        if windows is None or callable(tokens):
            store = tokens(epoch) if callable(tokens) else tokens
            store.check()
            protection = fingerprint_protection(store, recipe)
            windows = cut_windows(with_drops(store, recipe), settings["window_length"], special, with_ends=True)
        drawn = {"seed": settings["seed"], "epoch": epoch}
        order = windows.epoch_order(settings["batch_size"], **drawn)
        cut = content.get("ended", {}).get("batches") if epoch == epochs[-1] else None
        if cut is not None and settings.get("packing"):  # of a whole epoch any order has the same targets
            rows = packed_order(windows, settings["batch_size"], settings["window_length"], **drawn)
            order = [numbers for numbers, _ in rows]
        replace = BatchContext(context, windows, recipe, settings["seed"], epoch) if context is not None else None
        for numbers in order[:cut] if not recipe.private else ():
            batch = windows.gather(numbers)
            draw_targets(
                batch if replace is None else replace(batch, ledger),
                recipe,
                ledger,
                mask_share=settings["mask_share"],
                seed=settings["seed"],
                epoch=epoch,
            )
        yield epoch, protection


def _guarantee_faults(guarantee: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a ledger's DP-SGD guarantee, as sentences: it is compared with the steps taken and, if
    Opacus is installed, with their privacy cost computed anew."""

    try:
        wrong = []
        if guarantee["steps"] != guarantee["num_steps"]:
            wrong.append(f"privacy: {guarantee['steps']:,} steps were taken, {guarantee['num_steps']:,} were accounted")
        epsilon = math.inf if guarantee["epsilon"] == "infinite" else guarantee["epsilon"]
        if (epsilon is None) != bool(guarantee["unaccounted"]):
            wrong.append("privacy: there is an epsilon just where every step was accounted")
        promise = Guarantee(
            epsilon=epsilon,
            delta=guarantee["delta"],
            unit=guarantee["unit"],
            max_documents=guarantee["max_documents"],
            unaccounted=tuple(guarantee["unaccounted"]),
        )
        earlier = replace(promise, delta=float(f"{promise.delta:.2e}"))  # earlier versions rounded to nearest
        if guarantee["guarantee"] not in (str(promise), str(earlier)):
            wrong.append(
                f"privacy: the ledger says {guarantee['guarantee']!r}, by its own numbers it is {str(promise)!r}"
            )
        if epsilon is not None and find_spec("opacus") is not None:
            mechanism = (guarantee["sample_rate"], guarantee["noise_multiplier"], guarantee["num_steps"])
            vocabulary = tuple(guarantee["vocabulary"]) if "vocabulary" in guarantee else None
            again = epsilon_of(*mechanism, guarantee["delta"], guarantee["accountant"], vocabulary)
            if not math.isclose(again, epsilon, rel_tol=1e-6):
                wrong.append(f"privacy: epsilon: the ledger says {epsilon}, its steps and noise cost {again}")
    except (KeyError, TypeError, ValueError):
        return ["privacy: the ledger does not say what this private training cost"]
    return wrong


def _show(value: Any) -> str:
    """Return a value as text, integers with thousands separators."""
    return f"{value:,}" if isinstance(value, int) else str(value)
