"""``thesis`` mode: the tables of seed 4 (4.1 to 4.9, A.1 to A.4) from published scores, a row a name and prompt.

The scores of each model are a CSV with a header and the columns pair, name, label (1: trained on), prompt, score, and
optionally side (``dev`` or ``test``; all ``dev`` where it is absent); they may have other names, and other columns are
ignored. Where there are no pairs, the tables of the list as a whole are made. A score is above 0 and at most 1, or
``ND`` where the model found no person: ND counts as 0 and so ranks lowest. As there, a pair that ties is lost, true and
false positives of a prompt are all pairs, and the dev tables are read before the strategy A3 is verified on the test
side.

Columns of the tables, with n pairs: accuracy = precision = recall = TP / n and FP rate = FP / n (4.1, 4.2); their
means over the prompts and the advantage, TP rate - FP rate (4.3); accuracies of A1 to A4 (4.4); average precision and
expected rank, (1 - accuracy) · n + 0.5 · n, of each prompt (4.5, 4.6); MAP, average precision of the mean score,
expected rank of the mean accuracy, and B3 (4.7); A3 and A4 on the test side (4.8); MAP, average precision and B3
there (4.9). Numbers have three decimals without trailing zeros, ranks none. Some ranks of [@nussbaumer2023] are
higher by 1, and one does not follow from its Table 4.2 (second row of 4.6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from reticent.core.errors import CorpusError, PolicyError, cause
from reticent.ext.tagger.attacks import (
    auc_of_scores,
    average_precision,
    coin_wins,
    expected_rank,
    majority_wins,
    maximum_wins,
    mean_wins,
    random_list_accuracy,
    wins,
)

COLUMNS = ("pair", "name", "label", "prompt", "score")
ND = "ND"
SIDES = ("dev", "test")
STRATEGIES = {
    "(A1) Majority Voting": majority_wins,
    "(A2) AVG Score": mean_wins,
    "(A3) MAX Score": maximum_wins,
}


@dataclass(frozen=True, slots=True)
class PublishedScores:
    """Published scores of one model: its prompts in file order, and for each side float64 (prompts, 2, pairs), ND as 0.

    Without pairs (``paired``) the names of either label are in the order of the file. ``num_left_out`` counts pairs.
    """

    prompts: tuple[str, ...]
    sides: Mapping[str, np.ndarray]
    paired: bool = True
    num_left_out: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """A table in its published form; all cells are text."""

    number: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        lines = [self.heads, tuple("---" for _ in self.heads), *self.rows]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"Table {self.number}: {self.title}\n\n{body}\n"


def read_scores(
    path: Path | str,
    *,
    columns: Mapping[str, str] | None = None,
    paired: bool = True,
    only_whole: bool = False,
) -> PublishedScores:
    """Read the published scores of one model from a CSV file: for each side (development, test), scores of pairs of
    names in every prompt.

    Parameters
    ----------
    columns : content of a column (pair, name, label, prompt, score, side) -> its name in the file, if that differs
    paired : bool
        False: the column pair is ignored; there must be as many names of label 1 as of label 0.
    only_whole : bool
        Leave out, and count, pairs that lack a name, a label or a prompt, or have one twice.

    Raises
    ------
    CorpusError
        The file is no such CSV, or a pair lacks a name, a label or a prompt, or has one twice.
    PolicyError
        ``columns`` has a key that is none of these.
    """
    table = _read_columns(path, columns or {}, paired)
    score = pl.col("score").str.strip_chars()
    table = table.with_row_index("row", offset=2).with_columns(
        nd=score == ND, value=pl.when(score == ND).then(0.0).otherwise(score.cast(pl.Float64, strict=False))
    )
    _require_valid(
        path, table, ~pl.col("nd") & ~((pl.col("value") > 0) & (pl.col("value") <= 1)), "score", f"0 to 1, or {ND}"
    )
    _require_valid(path, table, ~pl.col("label").is_in(["0", "1"]), "label", "0 or 1")
    _require_valid(path, table, ~pl.col("side").is_in(SIDES), "side", "dev or test")
    prompts = tuple(table["prompt"].unique(maintain_order=True).to_list())
    found, num_left_out = {}, 0
    for side in SIDES:
        rows = table.filter(pl.col("side") == side)
        if rows.is_empty():
            continue
        if not paired:
            rows = _number_pairs(path, side, rows)
        if only_whole:
            rows, num_broken = _whole_pairs(rows, len(prompts))
            num_left_out += num_broken
            if rows.is_empty():
                raise CorpusError(f"{path}: {side}: no pair has a score for both names in {len(prompts)} prompts")
        # A name has one row for each prompt; with missing or double rows, the number of rows is not that of the cells.
        names = rows.group_by("pair", "label").agg(pl.col("name").n_unique())
        pairs = rows["pair"].unique(maintain_order=True)
        cells = rows.select("pair", "label", "prompt").unique().height
        if not (cells == rows.height == 2 * len(pairs) * len(prompts)) or names["name"].max() != 1:
            raise CorpusError(
                f"{path}: {side}: expected one score for both names of {len(pairs)} pairs in {len(prompts)} prompts, "
                f"{2 * len(pairs) * len(prompts)} rows in all, got {rows.height}, {cells} of them distinct"
            )
        place = {
            "pair": pl.col("pair").replace_strict(pairs, np.arange(len(pairs)), return_dtype=pl.Int64),
            "prompt": pl.col("prompt").replace_strict(prompts, np.arange(len(prompts)), return_dtype=pl.Int64),
        }
        rows = rows.with_columns(**place).sort("prompt", pl.col("label") == "0", "pair")
        found[side] = rows["value"].to_numpy().reshape(len(prompts), 2, len(pairs))
    if "dev" not in found:
        raise CorpusError(f"{path}: no row of side dev")
    return PublishedScores(prompts, found, paired, num_left_out)


def _read_columns(path: Path | str, columns: Mapping[str, str], paired: bool) -> pl.DataFrame:
    """Return the known columns of a CSV file as text, under their standard names."""
    if unknown := sorted(set(columns) - {*COLUMNS, "side"}):
        raise PolicyError(f"columns: expected some of {', '.join(COLUMNS)}, side; got {unknown[0]}")
    try:
        table = pl.read_csv(path, infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise CorpusError(f"{path}: not a readable CSV ({cause(error)})") from None
    wanted = {name: columns.get(name, name) for name in (*COLUMNS, "side") if paired or name != "pair"}
    if "side" not in columns and "side" not in table.columns:
        del wanted["side"]
    for name, column in wanted.items():
        if column not in table.columns:
            called = column if column == name else f"{column} for the {name}"
            also = "" if "side" in wanted else " and perhaps side"
            raise CorpusError(
                f"{path}: no column {called}; expected {', '.join(wanted)}{also} (--columns says under which names)"
            )
    table = table.select(**{name: pl.col(column) for name, column in wanted.items()})
    return table if "side" in wanted else table.with_columns(side=pl.lit("dev"))


def _number_pairs(path: Path | str, side: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Number the names of each label (1: member, 0: held-out) in file order, and return the rows with this number in a
    column ``pair``: names of equal number form a pair. Raise `CorpusError` if the labels have different numbers of
    names.
    """
    names = rows.select("label", "name").unique(maintain_order=True)
    members = int((names["label"] == "1").sum())
    if 2 * members != names.height:
        raise CorpusError(
            f"{path}: {side}: expected as many names of label 1 as of label 0, got {members} and "
            f"{names.height - members}"
        )
    names = names.with_columns(pair=pl.int_range(pl.len()).over("label").cast(pl.String))
    return rows.join(names, on=["label", "name"], how="left", maintain_order="left", nulls_equal=True)


def _whole_pairs(rows: pl.DataFrame, num_prompts: int) -> tuple[pl.DataFrame, int]:
    """Return the rows of pairs whose two names are both scored once in every prompt, and the number of other pairs."""
    pairs = rows.group_by("pair").agg(
        rows=pl.len(),
        cells=pl.struct("label", "prompt").n_unique(),
        names=pl.struct("label", "name").n_unique(),
    )
    is_whole = (pl.col("rows") == 2 * num_prompts) & (pl.col("cells") == 2 * num_prompts) & (pl.col("names") == 2)
    whole = pairs.filter(is_whole)
    return rows.filter(pl.col("pair").is_in(whole["pair"].implode())), pairs.height - whole.height


def _require_valid(path: Path | str, table: pl.DataFrame, wrong: pl.Expr, column: str, expected: str) -> None:
    """Raise `CorpusError` if ``wrong``, a condition on the rows of a table, is true for any of them. The message names
    the first such line of the file, the column and what was ``expected`` in it.
    """
    rows = table.filter(wrong.fill_null(True))
    if not rows.is_empty():
        raise CorpusError(f"{path}:{rows['row'][0]}: column {column}: expected {expected}")


def thesis_tables(models: Mapping[str, PublishedScores], *, seed: int = 0) -> list[Table]:
    """Return the tables of the published thesis, computed from the scores of its models.

    ``seed`` draws the guesses of A4; the published draw is not known. B3 has the published seed.

    Raises
    ------
    CorpusError
        Models have different prompts, or one has a test side, or pairs, and another has none.
    """
    if len({scores.prompts for scores in models.values()}) > 1:
        raise CorpusError("thesis tables: the models have different prompts")
    if len({tuple(scores.sides) for scores in models.values()}) > 1:
        raise CorpusError("thesis tables: one model has a test side and another has none")
    if len({scores.paired for scores in models.values()}) > 1:
        raise CorpusError("thesis tables: one model has pairs and another has none")
    first = next(iter(models.values()))
    prompts, paired = first.prompts, first.paired
    dev = {name: scores.sides["dev"] for name, scores in models.items()}
    test = {name: scores.sides["test"] for name, scores in models.items() if "test" in scores.sides}
    many = len(models) > 2
    tables = []
    for number, name in enumerate(models if paired else ()):
        label = f"4.{number + 1}" if not many else f"4.1 ({name})"
        tables.append(_prompt_table(label, name, prompts, dev[name]))
    if paired:
        tables += [_advantage_table(dev), _strategy_table("4.4", dev, STRATEGIES, "dev", seed)]
    for number, name in enumerate(models):
        label = f"4.{number + 5}" if not many else f"4.5 ({name})"
        tables.append(_ranking_table(label, name, prompts, dev[name], ranks=paired))
    tables.append(_list_table("4.7", dev, "dev", ranks=paired))
    if test and paired:
        tables.append(_strategy_table("4.8", test, {"(A3) MAX Score": maximum_wins}, "test", seed))
    if test:
        tables.append(_list_table("4.9", test, "test", ranks=False))
    return tables + _appendix(prompts, dev, test)


def accuracies(scores: np.ndarray) -> np.ndarray:
    """Return for each prompt the share of pairs in which the member's name scores strictly higher than the other,
    float64 (prompts,)."""
    return wins(scores[:, 0], scores[:, 1], strict=True).mean(axis=1)


def _format_decimals(value: float | np.floating[Any]) -> str:
    """Return a number as text with at most three decimals."""
    return str(round(float(value), 3))


def _format_integer(value: float) -> str:
    """Return a number as text, rounded to an integer."""
    return str(round(float(value)))


def _prompt_table(number: str, model: str, prompts: Sequence[str], scores: np.ndarray) -> Table:
    """Return table ``number`` of the published thesis for a model: accuracy, hits and misses of each prompt, from the
    scores (prompts, 2, pairs).
    """
    num_pairs = scores.shape[-1]
    rows = []
    for prompt, accuracy in zip(prompts, accuracies(scores), strict=True):
        hits = round(accuracy * num_pairs)
        rate = _format_decimals(accuracy)
        misses = num_pairs - hits
        rows.append((prompt, rate, str(hits), str(misses), rate, rate, _format_decimals(misses / num_pairs)))
    heads = ("Input Prompt", "Accuracy", "TP", "FP", "Precision", "Recall", "FP-Rate")
    return Table(number, f"Results for {model}, dev", heads, tuple(rows))


def _advantage_table(models: Mapping[str, np.ndarray]) -> Table:
    """Return table 4.3 of the published thesis: mean accuracy and adversarial advantage of each model,
    from its scores.
    """
    rows = []
    for name, scores in models.items():
        mean = float(accuracies(scores).mean())
        rows.append((name, *[_format_decimals(mean)] * 4, _format_decimals(1 - mean), _format_decimals(2 * mean - 1)))
    heads = ("Model Size", "Accuracy", "Recall", "Precision", "TP-Rate", "FP-Rate", "Adversarial Advantage")
    return Table("4.3", "Mean over all prompts, dev", heads, tuple(rows))


def _strategy_table(
    number: str, models: Mapping[str, np.ndarray], strategies: Mapping[str, Any], side: str, seed: int
) -> Table:
    """Return table ``number`` of the published thesis: accuracy of each attack strategy on pairs of names, for each
    model (name -> its scores) on one ``side`` (development or test).
    """
    rows = [
        (name, *(_format_decimals(attack(scores, strict=True).mean()) for scores in models.values()))
        for name, attack in strategies.items()
    ]
    coin = _format_decimals(coin_wins(next(iter(models.values())).shape[-1], seed).mean())
    rows.append(("(A4) Dummy Classifier", *[coin] * len(models)))
    heads = ("Method", *(f"Accuracy: {name}" for name in models))
    return Table(number, f"Pair-wise strategies, {side}", heads, tuple(rows))


def _ranking_table(number: str, model: str, prompts: Sequence[str], scores: np.ndarray, *, ranks: bool) -> Table:
    """Return table ``number`` of the published thesis for a model: average precision of each prompt and, if ``ranks``,
    the expected rank of a member.
    """
    n = scores.shape[-1]
    rows = [
        (
            prompt,
            _format_decimals(average_precision(*own)),
            *([_format_integer(expected_rank(accuracy, n, n))] if ranks else []),
        )
        for prompt, own, accuracy in zip(prompts, scores, accuracies(scores), strict=True)
    ]
    heads = ("Input Prompt", "(B1) Avg. Precision", *(["(B2) Expected Rank"] if ranks else []))
    return Table(number, f"Rankings of {model}, dev", heads, tuple(rows))


def _list_table(number: str, models: Mapping[str, np.ndarray], side: str, *, ranks: bool) -> Table:
    """Return table ``number`` of the published thesis: average precision over all prompts (and expected rank of a
    member, if ``ranks``) of each model (name -> its scores) on one ``side`` (development or test).
    """
    rows = []
    for name, scores in models.items():
        n = scores.shape[-1]
        cells = [_format_decimals(np.mean([average_precision(*own) for own in scores]))]
        cells.append(_format_decimals(average_precision(*scores.mean(axis=0))))
        if ranks:
            cells.append(_format_integer(expected_rank(float(accuracies(scores).mean()), n, n)))
        rows.append((name, *cells))
    random = _format_decimals(random_list_accuracy(2 * next(iter(models.values())).shape[-1]))
    rows.append(("(B3) Dummy Classifier, accuracy", random, *[""] * (2 if ranks else 1)))
    heads = ("Model Size", "(B1) MAP", "(B1) AP", *(["(B2) Expected Rank"] if ranks else []))
    return Table(number, f"The list as a whole, {side}", heads, tuple(rows))


def _appendix(prompts: Sequence[str], dev: Mapping[str, np.ndarray], test: Mapping[str, np.ndarray]) -> list[Table]:
    """Return the appendix tables A.1 to A.4: held-out names ranked above a member, and average precision on the test
    side.
    """

    def format_higher_ranked(pair: np.ndarray) -> str:
        """Return as text how many held-out names on average rank above a member, from member and held-out scores (2,
        pairs).
        """
        return _format_integer((1 - auc_of_scores(*pair)) * pair.shape[-1])

    heads = ("Input Prompt", *(f"Tried Negatives: {name}" for name in dev))
    rows = tuple((prompt, *(format_higher_ranked(s[row]) for s in dev.values())) for row, prompt in enumerate(prompts))
    tables = [Table("A.1-A.2", "Held-out names that rank above a member, dev", heads, rows)]
    means = tuple((name, format_higher_ranked(scores.mean(axis=0))) for name, scores in dev.items())
    tables.append(Table("A.3", "The same of the mean score, dev", ("Model Size", "Tried Negatives"), means))
    if test:
        heads = ("Input Prompt", *(f"Avg. Precision: {name}" for name in test))
        rows = tuple(
            (prompt, *(_format_decimals(average_precision(*s[row])) for s in test.values()))
            for row, prompt in enumerate(prompts)
        )
        tables.append(Table("A.4", "Average precision, test", heads, rows))
    return tables
