"""The page of the reproduction: for every row the published numbers, ours beside them, and the sentence.

`pages` yields ``docs/benchmarks/reproduction.md`` and its pictures from the evidence of the parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.record_io import ROOT, markdown, record_path
from studies.reproduction.rows import (
    CANNOT,
    NOT,
    REPRODUCED,
    SAME,
    Anchor,
    Measured,
    Row,
    Verdict,
    anchors_of,
    rule_hash,
    verdict,
    verdict_of_row,
)
from studies.reproduction.table import PARTS, ROWS, TITLES

Evidence = Mapping[str, Mapping[str, Any] | None]
WORDS = (REPRODUCED, SAME, NOT, CANNOT)
#: Lines of a table that is not folded.
MOST_OPEN = 9
QUESTION = "Do the results of the four sources come out?"
OPENING = f"""# {QUESTION}

{{answer}}

Nobody has published code or data of the first source; this is its first independent test, on other text and with
smaller models. A published number stands beside ours with the rule by which they are compared. *Reproduced*: ours is
within the tolerance of the published number, and on the published side of what it is against. *Same direction*: further
away, but on that side, and the interval of the difference holds no 0. *Not reproduced*: anything else that was
measured. *Cannot be*: nothing was measured, with the reason. A row has the weakest word of its numbers. The rules are
in [anchors.toml](../../studies/reproduction/anchors.toml), and their hash was written down before the run
({{hashes}}).
What an older record answers was not run again: there the rule is younger than the record. Intervals are of 95 %, over
n. A diamond in a picture is a published number.

"""


def verdicts_of(row: Row, evidence: Evidence) -> list[Verdict]:
    """The verdicts of a row's published numbers; on another text of those that are measured there."""
    found = evidence.get(row.measured_in(evidence))
    ours = row.ours(found) if found is not None else {}
    verdicts = [verdict(anchor, ours) for anchor in anchors_of(row).values()]
    return [each for each in verdicts if not row.text or each.word != CANNOT]


def sentence(row: Row, verdicts: list[Verdict], *, made: bool) -> str:
    """The sentence of a row, without what stands in the table below it."""
    word = verdict_of_row(row, verdicts)
    if word == CANNOT:
        empty = "its text has no number of it to compare"
        why = "none of its numbers could be measured" if anchors_of(row) else empty
        return f"**Cannot be**: {row.cannot or (why if made else 'not run at this size')}."
    counts = Counter(each.word for each in verdicts)
    shown = ", ".join(f"{counts[each]} {each}" for each in WORDS if counts[each])
    return f"**{word.capitalize()}**: of {len(verdicts)} published numbers, {shown}."


def pages(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Yield (name of a file below docs/benchmarks, text): the page, and a picture of each row that has one.

    Raises
    ------
    ValueError
        A rule was changed after the run whose evidence it judges.
    """
    for name, found in evidence.items():
        for source, rule in (found or {}).get("rule", {}).items():
            if rule != rule_hash(int(source)):
                raise ValueError(f"{name}: the rule of source {source} was changed after the run: run it again")
    texts, listed = [], []
    total, numbers = Counter[str](), Counter[str]()
    for source, (title, what, about) in TITLES.items():
        rows = [row for row in ROWS if row.source == source]
        texts.append(f"## {title}\n\n{what}. {about}".rstrip() + "\n\n")
        at = len(texts)
        counts: Counter[str] = Counter()
        for row in rows:
            part = row.measured_in(evidence)
            found, verdicts = evidence.get(part), verdicts_of(row, evidence)
            counts[verdict_of_row(row, verdicts)] += 1
            numbers.update(each.word for each in verdicts)
            picture = row.figure(found, anchors_of(row)) if row.figure and found is not None else ""
            if picture:
                yield f"reproduction/{row.slug}.svg", picture
            texts.append(_row_text(row, verdicts, part, found, bool(picture)))
        texts.insert(at, _not_out(rows, evidence))
        listed.append([title, len(rows), *(counts[word] for word in WORDS)])
        total += counts
    said = [
        f"{sum(of.values())} {what}: {', '.join(f'{of[word]} {word}' for word in WORDS)}"
        for what, of in (("figures, tables and sections", total), ("published numbers in them", numbers))
    ]
    answer = f"{said[0]}. {said[1]}."
    hashes = ", ".join(f"source {source} `{rule_hash(source)}`" for source in TITLES)
    summary = markdown(["source", "rows", *WORDS], listed)
    paths = [record_path(part.file) for part in PARTS if evidence.get(part.name) is not None]
    links = ", ".join(f"[{path.name}](../../{path.relative_to(ROOT)})" for path in paths if path.exists())
    opening = OPENING.format(answer=answer, hashes=hashes)
    cut = [part for part in PARTS if "cpu" in part.minutes and evidence.get(part.name) is None]
    left = ", ".join(f"`{part.name}` (about {part.minutes['cpu']:g} minutes)" for part in cut)
    done = f"Cut off, and to go on with `reticent reproduce --size cpu`: {left}." if left else "Size cpu is run whole."
    yield "reproduction.md", f"{opening}{summary}\nRecords: {links}.\n\n{done}\n\n{''.join(texts)}"


def _not_out(rows: list[Row], evidence: Evidence) -> str:
    """What does not come out, in a list: the published numbers that ours is not near, nor on their side of."""
    found = [(row, each) for row in rows for each in verdicts_of(row, evidence) if each.word == NOT]
    lines = [f"- {row.name}: {each.anchor.says}: {_published(each.anchor)}, ours {_mine(each)}." for row, each in found]
    return "What does not come out:\n\n" + "\n".join(lines) + "\n\n" if lines else ""


def _row_text(row: Row, verdicts: list[Verdict], name: str, found: Measured | None, pictured: bool) -> str:
    text = f"### {row.name}: {row.title}\n\n{sentence(row, verdicts, made=found is not None)}"
    if found is not None:
        (part,) = (part for part in PARTS if part.name == name)
        text += f" Ours: {row.how or part.name}. On: {part.on.format(**found)}."
    note = row.note
    if "{" in note:  # numbers of the evidence
        note = note.format(**found) if found is not None and "protected" in found else ""
    text += f" {note}" if note else ""
    text += "\n\n"
    if pictured:
        text += f"![{row.name}: {row.title}](reproduction/{row.slug}.svg)\n\n"
    if verdicts:
        heads = ["what", "published", "on", "ours", "n", "difference", "verdict"]
        table = markdown(heads, [_cells(each) for each in verdicts]) + "\n"
        few = len(verdicts) <= MOST_OPEN
        text += table if few else f'<details markdown="1">\n<summary>The numbers</summary>\n\n{table}</details>\n\n'
    return text


def _published(anchor: Anchor) -> str:
    if anchor.value is None:
        shown = f"{'above' if anchor.sign > 0 else 'below'} {_against(anchor)}"
    else:
        shown = f"{anchor.value:g} ± {anchor.tolerance:g}"
    return shown + (" (a target)" if anchor.kind == "target" else "")


def _against(anchor: Anchor) -> str:
    return f"`{anchor.against}`" if isinstance(anchor.against, str) else f"{anchor.against:g}"


def _mine(each: Verdict) -> str:
    return "-" if each.ours is None else _with_ends(each.ours["value"], each.ours.get("low"), each.ours.get("high"))


def _cells(each: Verdict) -> list[str]:
    anchor, ours = each.anchor, each.ours
    shown = "-" if each.difference is None else f"{_with_ends(*each.difference)} from {_against(anchor)}"
    n = "-" if ours is None or ours.get("n") is None else f"{ours['n']:,} {ours.get('unit', '')}".strip()
    says = f"`{anchor.key}`: {anchor.says}"
    return [says, _published(anchor), anchor.on, _mine(each), n, shown, each.word]


def _with_ends(value: float, low: float | None, high: float | None) -> str:
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 3
    shown = f"{value:,.{digits}f}"
    return shown if low is None or high is None else f"{shown} [{low:,.{digits}f}, {high:,.{digits}f}]"
