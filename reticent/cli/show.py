"""Output of commands, as tables or JSON; it holds no document text and no identifier."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from reticent.audit.evidence.audit import AuditEvidence, publish_audit
from reticent.audit.evidence.classification import ClassificationEvidence
from reticent.audit.evidence.corpus import Copies, CorpusEvidence
from reticent.audit.evidence.detection import DetectedSpans, DetectionEvidence
from reticent.audit.evidence.json_form import from_json, to_json
from reticent.audit.evidence.sampled import FEW_INDIVIDUALS, SampledRecall
from reticent.audit.judgement.verdict import judge_risks, risk_lines, verdict_lines
from reticent.audit.near_copies import near_copies_lines
from reticent.audit.recipes import is_elsewhere
from reticent.audit.report.corpus_plots import write_corpus_plots
from reticent.audit.report.selectors import retention_rows
from reticent.audit.report.summary import _estimate_text as _shown_mean
from reticent.audit.report.summary import copies_line, copies_table, guarantee_lines, ledger_line, summary_table
from reticent.audit.stats.estimate import Estimate
from reticent.audit.texts import ENGLISH
from reticent.core.artifact import read_manifest, writing_to
from reticent.core.eta import clock_time, duration_text
from reticent.engine.detect.rules import list_rules
from reticent.ext.dp.budget import Spending, entry_to_json, totals
from reticent.job.run import Run
from reticent.trainer.privacy import show_delta, show_epsilon

if TYPE_CHECKING:
    from reticent.job.update import AffectedArtifacts


def print_counts(counts: dict[str, Any], folder: Path, as_json: bool) -> None:
    """Print the counts of one artefact on one line, or as JSON."""
    if as_json:
        print(json.dumps({"folder": str(folder), **counts}))
    else:
        named = ((key.removeprefix("num_").replace("_", " "), value) for key, value in counts.items())
        print(f"{folder}: " + ", ".join(f"{value:,} {name}" for name, value in named if isinstance(value, int)))


def print_export(counts: dict[str, int], where: str, as_json: bool) -> None:
    """Print the number of rows of each exported table."""
    if as_json:
        print(json.dumps({"where": where, "rows": counts}))
    else:
        print(f"{where}: " + ", ".join(f"{name} {count:,} rows" for name, count in counts.items()))


def print_part(name: str, counts: dict[str, int], as_json: bool) -> None:
    """Print how many models and scores one part of a run has made, how many were up to date, and how many other parts
    must make."""
    if as_json:
        print(json.dumps({"part": name, **counts}))
    else:
        print(
            f"part {name}: {counts['made']:,} made, {counts['up_to_date']:,} up to date, {counts['waiting']:,} waiting"
        )


def print_rules(as_json: bool) -> None:
    """Print the formats that each detection rule finds."""

    rules = [rule._asdict() for rule in list_rules()]
    if as_json:
        print(json.dumps(rules, indent=1))
        return

    Console().print(rules_table(rules))


def print_detection(found: DetectedSpans, as_json: bool) -> None:
    """Print the number of spans by detector and, if measured, precision and recall against annotations."""
    if as_json:
        print(json.dumps(to_json(found), indent=1))
        return

    console = Console()
    console.print(counts_table(found.spans))
    for table in evaluation_tables(found.evaluation) if found.evaluation else ():
        console.print(table)
    if found.folder:
        console.print(f"Spans: {found.folder}", soft_wrap=True, markup=False)


def print_copies(counts: dict[str, Any], as_json: bool) -> None:
    """Print how many documents repeat others, and how many words this makes look common, which weakens protection."""
    if as_json:
        print(json.dumps(counts))
        return

    copies = from_json(Copies, counts, "copies")
    Console().print(copies_table(copies))
    Console().print(copies_line(copies), soft_wrap=True)


def print_statistics(corpus: CorpusEvidence) -> None:
    """Print corpus statistics as tables; counts of few individuals are withheld."""

    for table in statistics_tables(corpus):
        Console().print(table)


def write_statistics(corpus: CorpusEvidence, content: str, out: Path) -> list[Path]:
    """Write stats.json and its figures into a folder (new or existing); return their paths."""

    with writing_to(out):
        out.mkdir(parents=True, exist_ok=True)
        (out / "stats.json").write_text(content + "\n", encoding="utf-8")
        return [out / "stats.json", *write_corpus_plots(corpus, out)]


def print_classification(results: list[ClassificationEvidence], as_json: bool) -> None:
    """Print macro and micro F1 for each model, one row for each checkpoint that a classifier starts from."""
    if as_json:
        print(json.dumps(to_json(results), indent=1))
        return

    for result in results:
        Console().print(classification_table(result))


def print_run(run: Run, as_json: bool) -> None:
    """Print the counts of every artefact of a run as JSON. Without ``as_json`` nothing is printed, since each stage has
    printed its line."""
    if as_json:
        print(json.dumps(_all_counts(run), indent=1))


def _all_counts(run: Run) -> dict[str, Any]:
    """Return the counts of every artefact of a run, by its path in the run folder."""
    manifests = sorted(run.folder.rglob("manifest.json"))
    return {str(m.parent.relative_to(run.folder)): read_manifest(m.parent).counts for m in manifests}


def print_update(run: Run, affected: AffectedArtifacts, as_json: bool) -> None:
    """Print how many n-grams of the members' index an update moved across the threshold k, and which models and
    dossiers it affects."""
    if as_json:
        print(json.dumps({**_all_counts(run), "touched": affected.to_dict()}, indent=1))
        return

    counts, k = read_manifest(run.folder / "index").counts, run.job.protect.k
    if "moved" not in counts:  # a rebuild that was up to date
        print(f"{run.folder}: up to date")
        return
    print(f"{run.folder}: {counts['recounted']:,} individuals counted again (identifying: used by fewer than {k})")
    for moved in counts["moved"]:
        print(
            "  n = {n}: {to_identifying:,} n-grams became identifying, {to_shared:,} ceased to be; {new:,} are new, "
            "{gone:,} are gone".format(**moved)
        )
    for line in affected.lines():
        print(line)


def print_summary(evidence: AuditEvidence, folder: Path, as_json: bool = False) -> None:
    """Print the measures of each recipe's last checkpoint, the counts of prediction targets, the verdicts, and the
    paths of report and dossier; with ``as_json``, the published evidence as JSON."""
    if as_json:
        print(json.dumps(to_json(publish_audit(evidence))))
        return

    console = Console()
    console.print(summary_table(evidence.models, elsewhere=is_elsewhere(evidence)))
    if line := ledger_line(evidence.models):
        console.print(line, soft_wrap=True)
    for line in guarantee_lines(evidence.models):
        console.print(line, soft_wrap=True, highlight=False)
    if evidence.verdict:
        for line in verdict_lines(evidence.verdict):
            console.print(f"Gate {line}", soft_wrap=True, markup=False)

    table = judge_risks(evidence)
    for line in risk_lines(table):
        console.print(f"Verdict: {line}", soft_wrap=True, markup=False, highlight=False)
    if table.rows:
        said = near_copies_lines(replace(evidence, risks=table), ENGLISH)
        for sentence in said:  # on unknown languages, and on near-copies
            console.print(f"Documents: {sentence}", soft_wrap=True, markup=False, highlight=False)
    console.print(f"Report: {folder / 'report' / 'report.html'}", soft_wrap=True, markup=False)
    console.print(f"Dossier: {folder / 'dossier' / 'dossier.html'}", soft_wrap=True, markup=False)


def print_status(found: dict[str, Any]) -> None:
    """Print the finished and open steps of a run, from `job_status`, as a table; all scorings of one training share a
    row."""

    rows: dict[str, list[dict[str, Any]]] = {}
    for artifact in found["artifacts"]:
        name = artifact["name"]
        if name.startswith("measures/"):
            folder, _, last = name.rpartition("/")
            seed = last.partition("epoch-")[0].rstrip("-")
            name = f"{folder}/{seed}".rstrip("/")
        rows.setdefault(name, []).append(artifact)
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    for title, justify in (("result", "left"), ("state", "left"), ("took", "right")):
        table.add_column(title, justify=justify)  # type: ignore[arg-type]
    for name, artifacts in rows.items():
        states = [a["state"] for a in artifacts]
        done = states.count("done")
        state = f"{done} of {len(states)} scored" if name.startswith("measures/") else states[0]
        took = [a["seconds"] for a in artifacts if a["state"] == "done" and a["seconds"] is not None]
        style = "green" if done == len(states) else "dim" if "out of date" not in states else "yellow"
        table.add_row(name, f"[{style}]{state}[/{style}]", duration_text(sum(took)) if took else "")
    console = Console()
    console.print(table)
    for artifact in found["artifacts"]:
        if (check := artifact.get("text_check")) is not None:
            of = "all" if check["whole"] else "a sample of"
            console.print(
                f"{artifact['name']}: {of} {check['documents']:,} documents checked against their text, "
                f"{check['violations']:,} violations",
                soft_wrap=True,
            )
    plan = found["plan"]
    if plan is None:
        console.print("Trainings and scorings are counted once there are tokens to train on.")
        return
    console.print(f"{plan['num_done']} of {plan['num_steps']} {plan['what']} done.")
    if plan["next"] is not None and plan["remaining_seconds"] is None:
        console.print(f"How long the rest takes is unknown until measured: {', '.join(plan['unmeasured'])}.")
    elif plan["next"] is not None:
        now = time.time()
        end = clock_time(now + plan["remaining_seconds"], now)
        console.print(
            f"The rest takes about {duration_text(plan['remaining_seconds'])}: started now, it ends at {end}."
        )


def print_budget(spendings: list[Spending], files: list[Path], as_json: bool) -> None:
    """Print the cost of each private run in these files, and the totals for each corpus and privacy unit."""

    place = ", ".join(map(str, files))
    if as_json:
        print(
            json.dumps(
                {"file": place, "runs": [entry_to_json(each) for each in spendings], "totals": totals(spendings)}
            )
        )
        return
    if not spendings:
        print(f"{place}: no private run is noted")
    for each in spendings:
        state = "" if each.settled else "; never ended, counts in full"
        if "includes" in each.about:
            state += f"; includes {each.about['includes'][0]}"
        print(f"{each.started}  {each.about.get('recipe', 'run')} {each.run}: {each.guarantee}{state}")
    for total in totals(spendings):
        shown = "no total"
        if total["epsilon"] is not None:
            shown = f"epsilon {show_epsilon(total['epsilon'])} at delta {show_delta(total['delta'])}"
        runs = f"{total['runs']} run{'s' * (total['runs'] != 1)}"
        of = f"corpus {total['corpus'][:12]}, {runs} per {total['unit']} together"
        print(f"{of}: {shown} ({total['bound']})")


# ----------------------------------------------------------------------------------------------------- detection table
#
# The tables of `reticent detect`: the spans of each detector, and how they compare with annotations.


def counts_table(spans: dict[str, dict[str, int]]) -> Table:
    """Return a table of span counts by category (rows) and detector (columns). Spans propagated from any detector
    ("propagated:NAME") are counted in one column."""
    columns: dict[str, Counter[str]] = {}
    for name, counts in spans.items():
        columns.setdefault(name.partition(":")[0], Counter()).update(counts)
    table = _numbers_table("category", *columns, title="Spans found")
    for name in sorted({category for counts in columns.values() for category in counts}):
        table.add_row(name, *(f"{counts[name]:,}" for counts in columns.values()))
    table.add_section()
    table.add_row("all", *(f"{counts.total():,}" for counts in columns.values()))
    return table


def evaluation_tables(found: DetectionEvidence) -> Iterator[Table]:
    """Yield the tables of a detection evaluation (`audit.detection.evaluate_detection`); they fit 80 columns."""
    yield _overall_table(found)
    yield _whole_table(found)
    yield _category_table(found)
    yield _detector_table(found)


def rules_table(rules: Sequence[Mapping[str, str]]) -> Table:
    """Return a table of the formats that each detection rule finds, one row a rule."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for head in rules[0] if rules else ():
        table.add_column(head, overflow="fold")
    for rule in rules:
        table.add_row(*map(str, rule.values()))
    return table


def _overall_table(found: DetectionEvidence) -> Table:
    """Return the table of precision, recall and F1 of all detectors together."""
    left_out = f"; {found.unmarked:,} without are left out" if found.unmarked else ""
    table = _numbers_table(
        "all detectors",
        *("precision", "recall", "F1"),
        title=f"{found.documents:,} documents of {found.individuals:,} individuals with gold spans{left_out}",
        caption="Behind each rate its 95 % interval, individuals resampled whole.",
    )
    for scores, what in ((found.union.overall, ""), (found.union.any_label, ", any label")):
        for name, match in (("strict", scores.strict), ("relaxed", scores.relaxed), ("words", scores.words)):
            table.add_row(name + what, *map(_format_estimate, (match.precision, match.recall, match.f1)))
    return table


def _whole_table(found: DetectionEvidence) -> Table:
    """Return the table of completeness of detection: shares of mentions, entities, documents and individuals whose
    identifiers were all found."""
    table = _numbers_table(
        "all found, under any label", "share", "of", title="Found whole", caption="entities: all their mentions."
    )
    union = found.union
    rows = [("mentions", union.covered["overall"])]
    for name, rate in union.entities.items():
        rows.append(("entities" if name == "overall" else f"{name} entities", rate))
    rows += [("documents", union.all_found.documents), ("individuals", union.all_found.individuals)]
    for what, rate in rows:
        table.add_row(what, _format_estimate(rate), f"{rate.of:,}")
    return table


def _category_table(found: DetectionEvidence) -> Table:
    """Return the table of precision and recall by category."""
    heads = ("gold", "strict\nP", "\nR", "relaxed\nP", "\nR", "words\nR", "whole", "part", "missed")
    table = _numbers_table(
        "category",
        *heads,
        title="By category",
        caption="whole: every word found, under any label; part: some word; missed: none.",
    )
    union = found.union
    for name, scores in union.categories.items():
        rates = [rate for match in (scores.strict, scores.relaxed) for rate in (match.precision, match.recall)]
        table.add_row(
            name,
            f"{found.mentions.get(name, 0):,}",
            *map(_format_value, [*rates, scores.words.recall]),
            _format_value(union.covered[name]),
            *(f"{counts.get(name, 0):,}" for counts in (found.partial, found.missed)),
        )
    return table


def _detector_table(found: DetectionEvidence) -> Table:
    """Return the table of precision and recall of each detector alone."""
    table = _numbers_table(
        "alone",
        *("relaxed\nP", "\nR", "any label\nP", "\nR", "mentions\ncovered", "only\nit"),
        title="By detector",
        caption="only it: mentions that are covered with it and not without it.",
    )
    for name, scores in found.alone.items():
        relaxed = (scores.overall.relaxed, scores.any_label.relaxed)
        rates = [rate for match in relaxed for rate in (match.precision, match.recall)]
        table.add_row(
            name, *map(_format_value, [*rates, scores.covered["overall"]]), f"{sum(found.only[name].values()):,}"
        )
    return table


def sampled_table(found: SampledRecall) -> Table:
    """Return a table of recall estimated from a sample, and of identifiers left in the corpus, by category."""
    table = _numbers_table(
        "category",
        *("marked", "recall", "95 %", "unprotected", "95 %"),
        title=f"Detection in {found.documents:,} of {found.corpus_documents:,} documents, weighted back to all",
    )
    for name, row in {"all": found.overall, **found.categories}.items():
        left = row.unprotected
        bounds = "-" if left.low is None or left.high is None else f"{left.low:,.0f}-{left.high:,.0f}"
        of = "-" if row.recall.low is None else f"{row.recall.low:.3f}-{row.recall.high:.3f}"
        count = "-" if left.value is None else f"{left.value:,.0f}"
        table.add_row(name, f"{row.marked:,}", _format_value(row.recall), of, count, bounds)
    return table


def sampled_lines(found: SampledRecall) -> Iterator[str]:
    """Yield sentences on identifiers missed in the corpus, estimates from few individuals, and annotator agreement."""
    left = found.overall.unprotected
    if left.value is not None and left.high is not None:
        yield (
            f"Identifiers that detection leaves in all documents: about {left.value:,.0f}, at most {left.high:,.0f} "
            "(each counted wherever it stands)."
        )
    if found.rows_over_few:
        names = ", ".join(f"{name}: {num}" for name, num in found.rows_over_few.items())
        yield (
            f"Warning: intervals over fewer than {FEW_INDIVIDUALS} individuals ({names}) may not hold if one outside "
            "of the sample has far more identifiers than any in it. A larger sample helps."
        )
    if found.all_reviewed:
        yield "Documents in which no mark was changed count as reviewed, as --all-reviewed says."
    if found.agreement is not None:
        own = found.agreement
        yield (
            f"Two annotators agree: equal spans {_format_estimate(own.exact)}, overlapping spans "
            f"{_format_estimate(own.partial)}, words beyond chance (kappa) {_format_estimate(own.kappa)}, "
            f"(alpha) {_format_estimate(own.alpha)}."
        )


def _numbers_table(first: str, *heads: str, title: str, caption: str | None = None) -> Table:
    """Return an empty table with a left-aligned first column for text and right-aligned columns for numbers; ``first``
    and ``heads`` are their headings."""
    table = Table(
        title=f"\n{title}",
        caption=caption,
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
        title_justify="left",
        caption_justify="left",
    )
    table.add_column(first, overflow="fold")  # a long label goes on in the next line: numbers are never cut
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _format_value(estimate: Estimate) -> str:
    """Return an estimate's value with three decimals; "-" where it has none."""
    return "-" if estimate.value is None else ENGLISH.number(estimate.value, 3)


def _format_estimate(estimate: Estimate) -> str:
    """Return an estimate's value and interval with three decimals."""
    return _format_value(estimate) + ("" if estimate.low is None else f" {estimate.low:.3f}-{estimate.high:.3f}")


# ---------------------------------------------------------------------------------------------------- statistics table
#
# The tables of `reticent stats`: the documents, the identifiers in them, and the words left to learn from.


def statistics_tables(corpus: CorpusEvidence) -> Iterator[Table]:
    """Yield the tables of published corpus statistics; a count of few individuals is a dash."""
    yield _documents_table(corpus)
    if corpus.identifiers_by_n:
        yield _ngrams_table(corpus)
    if retention_rows(corpus):
        yield _retention_table(corpus)
    if any(row.share.value is not None for row in corpus.unicity or ()):
        yield _unicity_table(corpus)


def _documents_table(corpus: CorpusEvidence) -> Table:
    """Return the table of numbers of documents and words, with the shares of words that identify individuals (few use
    them) and of words that are protected."""
    table = _plain_table(
        "documents of members", "", title=f"identifying: used by fewer than {corpus.k} {_unit_names(corpus)}"
    )
    sides = corpus.num_individuals
    table.add_row("individuals: members, held out", f"{_format_count(sides.members)}, {_format_count(sides.heldout)}")
    for name, number in (
        ("documents", corpus.num_documents),
        ("words", corpus.num_words),
        ("distinct words", corpus.num_distinct_words),
    ):
        table.add_row(name, f"{number:,}")
    table.add_row("distinct words that identify", _format_share(corpus.share_types_identifying))
    table.add_row("occurrences of these", _format_share(corpus.share_occurrences_identifying))
    if corpus.protected:
        table.add_row("words protected as direct identifiers", _format_share(corpus.protected.direct))
        table.add_row("words protected as indirect identifiers", _format_share(corpus.protected.indirect))
        table.add_row("words protected in all", _format_share(corpus.protected.both))
    return table


def _ngrams_table(corpus: CorpusEvidence) -> Table:
    """Return the table of n-grams, one row for each n: how many distinct ones identify individuals, how often they
    occur, and how many identify nobody."""
    table = _plain_table("n", "identifying", "minimal", "occurrences", "not identifying", title="Identifying n-grams")
    for row in corpus.identifiers_by_n or ():
        counts = (row.all.distinct, row.minimal.distinct, row.all.occurrences, row.kept.distinct)
        table.add_row(str(row.n), *map(_format_count, counts))
    return table


def _retention_table(corpus: CorpusEvidence) -> Table:
    """Return the table of the shares of words that remain prediction targets, by protection policy, n and k."""
    table = _plain_table("policy", "n", "k", "left by indirect protection", title="Words left to learn from")
    for row in retention_rows(corpus):
        table.add_row(row.policy, _format_count(row.n), _format_count(row.k), _format_share(row.retention))
    return table


def _unicity_table(corpus: CorpusEvidence) -> Table:
    """Return the table of unicity by m: the share of random sets of m common words, each drawn from the words of one
    individual (or household), that nobody else uses together."""
    heads = ("shared words", f"{_unit_names(corpus)} singled out", "95 % interval")
    table = _plain_table(*heads, title="Sets of words that many use")
    for row in corpus.unicity or ():
        if row.share.value is not None:
            ends = f"{_format_share(row.share.low)} to {_format_share(row.share.high)}"
            bound = {"below": "at most ", "above": "at least "}.get(row.share.bound or "", "")
            table.add_row(str(row.m), f"{bound}{_format_share(row.share.value)}", ends)
    return table


def _unit_names(corpus: CorpusEvidence) -> str:
    """Return "households" or "individuals", whichever the corpus statistics count as users of a word."""
    return "households" if corpus.unit == "household" else "individuals"


def _plain_table(*heads: str, title: str) -> Table:
    """Return an empty table with these column headings, the first column left-aligned, the others right-aligned."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, title=title, title_justify="left")
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left")
    return table


def _format_count(number: int | None) -> str:
    """Return a count with thousands separators; a dash for None."""
    return "–" if number is None else f"{number:,}"


def _format_share(share: float | None) -> str:
    """Return a share as a percentage; a dash for None."""
    return "–" if share is None else f"{ENGLISH.number(100 * share, 1, whole=100)} %"


# ------------------------------------------------------------------------------------------------ classification table
#
# The table of `reticent classify`: F1 on held-out individuals, the models beside the base model and the baselines.


def classification_table(result: ClassificationEvidence) -> Table:
    """Return the table of one model's classification results, F1 on held-out individuals; it fits 80 columns."""
    documents, individuals = result.documents, result.individuals
    left_out = [
        f"{documents[key]:,} {what}"
        for key, what in (
            ("unlabelled", "documents without a label"),
            ("without_text", "without text"),
            ("of_rare_classes", f"of {documents.get('rare_classes')} rare classes"),
            ("rare_categories", "categories of a single person"),
        )
        if documents.get(key)
    ]
    kind = "classes" if result.task == "class" else "categories of identifiers"
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 2, 0, 0),
        show_edge=False,
        title=f"{result.model}: {len(result.classes)} {kind}" if result.model else None,
        title_justify="left",
        caption=f"Trained on {documents['train']:,} documents of {individuals['train']:,} people, measured "
        f"on {documents['heldout']:,} of {individuals['heldout']:,} held out. In brackets: 95 % intervals over "
        "individuals."
        + (" Strict: kind, first and last token." if result.task == "tags" else "")
        + (f" Left out: {', '.join(left_out)}." if left_out else ""),
        caption_justify="left",
    )
    table.add_column("start", overflow="fold")  # a long name goes on in the next line: numbers are never cut
    for column in ("epochs", "macro F1", "micro F1"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in result.results:
        epoch = str(row.epoch) if row.epoch else "-"
        seed = "" if row.seed is None else f", seed {row.seed}"
        table.add_row(row.recipe + seed, epoch, _shown_mean(row.macro_f1), _shown_mean(row.micro_f1))
    return table
