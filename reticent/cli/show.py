"""Output of commands: a table, or JSON. No text of a document, no identifier."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence
    from reticent.audit.evidence.classification import ClassificationEvidence
    from reticent.audit.evidence.corpus import CorpusEvidence
    from reticent.audit.evidence.detection import DetectedSpans
    from reticent.job.run import Run
    from reticent.job.update import AffectedArtifacts
    from reticent.trainer.budget import Spending

__all__ = [
    "print_budget",
    "print_classification",
    "print_copies",
    "print_counts",
    "print_detection",
    "print_export",
    "print_part",
    "print_rules",
    "print_run",
    "print_statistics",
    "print_status",
    "print_summary",
    "print_update",
    "write_statistics",
]


def print_counts(counts: dict[str, Any], folder: Path, as_json: bool) -> None:
    """Print the counts of one artefact in a line."""
    if as_json:
        print(json.dumps({"folder": str(folder), **counts}))
    else:
        named = ((key.removeprefix("num_").replace("_", " "), value) for key, value in counts.items())
        print(f"{folder}: " + ", ".join(f"{value:,} {name}" for name, value in named if isinstance(value, int)))


def print_export(counts: dict[str, int], where: str, as_json: bool) -> None:
    """Print the number of rows of each table."""
    if as_json:
        print(json.dumps({"where": where, "rows": counts}))
    else:
        print(f"{where}: " + ", ".join(f"{name} {count:,} rows" for name, count in counts.items()))


def print_part(name: str, counts: dict[str, int], as_json: bool) -> None:
    """Print how many models and scores a part made, had, and left to a second turn."""
    if as_json:
        print(json.dumps({"part": name, **counts}))
    else:
        print(
            f"part {name}: {counts['made']:,} made, {counts['up_to_date']:,} up to date, {counts['waiting']:,} waiting"
        )


def print_rules(as_json: bool) -> None:
    """Print the forms that each rule finds."""
    from reticent.engine.detect.rules import list_rules

    rules = [rule._asdict() for rule in list_rules()]
    if as_json:
        print(json.dumps(rules, indent=1))
        return
    from rich.console import Console

    from reticent.cli.detection_table import rules_table

    Console().print(rules_table(rules))


def print_detection(found: DetectedSpans, as_json: bool) -> None:
    """Print the spans of detectors and, where it was measured, how they compare with annotations."""
    if as_json:
        from reticent.audit.evidence.json_form import to_json

        print(json.dumps(to_json(found), indent=1))
        return
    from rich.console import Console

    from reticent.cli.detection_table import counts_table, evaluation_tables

    console = Console()
    console.print(counts_table(found.spans))
    for table in evaluation_tables(found.evaluation) if found.evaluation else ():
        console.print(table)
    if found.folder:
        console.print(f"Spans: {found.folder}", soft_wrap=True)


def print_copies(counts: dict[str, Any], as_json: bool) -> None:
    """Print which documents repeat others, and the effect on protection."""
    if as_json:
        print(json.dumps(counts))
        return
    from rich.console import Console

    from reticent.audit.evidence.corpus import Copies
    from reticent.audit.evidence.json_form import from_json
    from reticent.audit.report.summary import copies_line, copies_table

    copies = from_json(Copies, counts, "copies")
    Console().print(copies_table(copies))
    Console().print(copies_line(copies), soft_wrap=True)


def print_statistics(corpus: CorpusEvidence) -> None:
    """Print the statistics of documents as tables; counts of few individuals are left out of them."""
    from rich.console import Console

    from reticent.cli.statistics_table import statistics_tables

    for table in statistics_tables(corpus):
        Console().print(table)


def write_statistics(corpus: CorpusEvidence, content: str, out: Path) -> list[Path]:
    """Write stats.json and its figures into a folder, which may be there; returns their paths."""
    from reticent.audit.report.corpus_plots import write_corpus_plots
    from reticent.core.new_folder import writing_to

    with writing_to(out):
        out.mkdir(parents=True, exist_ok=True)
        (out / "stats.json").write_text(content + "\n", encoding="utf-8")
        return [out / "stats.json", *write_corpus_plots(corpus, out)]


def print_classification(results: list[ClassificationEvidence], as_json: bool) -> None:
    """Print macro and micro F1 of each start, for each model."""
    if as_json:
        from reticent.audit.evidence.json_form import to_json

        print(json.dumps(to_json(results), indent=1))
        return
    from rich.console import Console

    from reticent.cli.classification_table import classification_table

    for result in results:
        Console().print(classification_table(result))


def print_run(run: Run, as_json: bool) -> None:
    """Print the counts of every artefact of a run, as JSON only: each stage has printed its own line."""
    if as_json:
        print(json.dumps(_counts_of(run), indent=1))


def _counts_of(run: Run) -> dict[str, Any]:
    from reticent.core.artifact import read_manifest

    manifests = sorted(run.folder.rglob("manifest.json"))
    return {str(m.parent.relative_to(run.folder)): read_manifest(m.parent).counts for m in manifests}


def print_update(run: Run, touched: AffectedArtifacts, as_json: bool) -> None:
    """Print which n-grams of the members' index an update has moved over the line that k is, and what it touches."""
    if as_json:
        print(json.dumps({**_counts_of(run), "touched": touched.to_dict()}, indent=1))
        return
    from reticent.core.artifact import read_manifest

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
    for line in touched.lines():
        print(line)


def print_summary(evidence: AuditEvidence, folder: Path, as_json: bool = False) -> None:
    """Print the last checkpoint of each recipe, the ledger, and where report and dossier are; JSON is published."""
    if as_json:
        from reticent.audit.evidence.audit import publish_audit
        from reticent.audit.evidence.json_form import to_json

        print(json.dumps(to_json(publish_audit(evidence))))
        return
    from rich.console import Console

    from reticent.audit.report.summary import guarantee_lines, ledger_line, summary_table

    console = Console()
    console.print(summary_table(evidence.models))
    if line := ledger_line(evidence.models):
        console.print(line, soft_wrap=True)
    for line in guarantee_lines(evidence.models):
        console.print(line, soft_wrap=True, highlight=False)
    if evidence.verdict:
        from reticent.audit.verdict import verdict_lines

        for line in verdict_lines(evidence.verdict):
            console.print(f"Gate {line}", soft_wrap=True, markup=False)
    from reticent.audit.risk_verdict import judge_risks, risk_lines

    table = judge_risks(evidence)
    for line in risk_lines(table):
        console.print(f"Verdict: {line}", soft_wrap=True, markup=False, highlight=False)
    if table.rows:
        from dataclasses import replace

        from reticent.audit.language import Words
        from reticent.audit.near_copies import near_copies_lines

        said = near_copies_lines(replace(evidence, risks=table), Words("en"))
        console.print(f"Near-copies: {' '.join(said)}", soft_wrap=True, markup=False, highlight=False)
    console.print(f"Report: {folder / 'report' / 'report.html'}", soft_wrap=True)
    console.print(f"Dossier: {folder / 'dossier' / 'dossier.html'}", soft_wrap=True)


def print_status(found: dict[str, Any]) -> None:
    """Print the finished and the open steps of a run; the scorings of one training are one line."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from reticent.core.durations import clock_time, span_of

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
        table.add_row(name, f"[{style}]{state}[/{style}]", span_of(sum(took)) if took else "")
    console = Console()
    console.print(table)
    for artifact in found["artifacts"]:
        if (check := artifact.get("text_check")) is not None:
            of = "all" if check["whole"] else "a sample of"
            console.print(
                f"{artifact['name']}: {of} {check['documents']:,} documents held to their text, "
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
        console.print(f"The rest takes about {span_of(plan['remaining_seconds'])}: started now, it ends at {end}.")


def print_budget(spendings: list[Spending], files: list[Path], as_json: bool) -> None:
    """Print the cost of each private run of these files, and the totals for each corpus and unit."""
    from reticent.trainer.budget import to_plain, totals
    from reticent.trainer.privacy import show_delta, show_epsilon

    place = ", ".join(map(str, files))
    if as_json:
        print(json.dumps({"file": place, "runs": [to_plain(each) for each in spendings], "totals": totals(spendings)}))
        return
    if not spendings:
        print(f"{place}: no private run is noted")
    for each in spendings:
        state = "" if each.settled else "; never ended, counts in full"
        print(f"{each.started}  {each.about.get('recipe', 'run')} {each.run}: {each.guarantee}{state}")
    for total in totals(spendings):
        shown = "no total"
        if total["epsilon"] is not None:
            shown = f"epsilon {show_epsilon(total['epsilon'])} at delta {show_delta(total['delta'])}"
        runs = f"{total['runs']} run{'s' * (total['runs'] != 1)}"
        of = f"corpus {total['corpus'][:12]}, {runs} per {total['unit']} together"
        print(f"{of}: {shown} ({total['bound']})")
