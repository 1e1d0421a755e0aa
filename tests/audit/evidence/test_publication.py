"""Publication is closed by default: what has no rule does not leave, and every field has one."""

from __future__ import annotations

import fnmatch
import importlib
import json
import pkgutil
import tomllib
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from fixtures.audits import published, write

from reticent.audit import evidence
from reticent.audit.evidence.audit import AuditEvidence, ModelEvidence, publish_audit
from reticent.audit.evidence.classification import ClassificationEvidence
from reticent.audit.evidence.corpus import CorpusEvidence
from reticent.audit.evidence.detection import DetectedSpans
from reticent.audit.evidence.json_form import from_json, optional, to_json
from reticent.audit.evidence.probe import ProbeEvidence
from reticent.audit.evidence.rules import COUNT, CURVE, PRIVATE, TOGETHER, Settings, publish, rules_of
from reticent.audit.evidence.tagger import TaggerEvidence
from reticent.audit.stats.estimate import Estimate, Spread
from reticent.audit.stats.intervals import clopper_pearson, ratio_estimate
from reticent.core.errors import ArtifactError
from reticent.core.section import PUBLISHED, WITHHELD, Section, names_a_seed, shared_fields
from reticent.engine.config import ThresholdConfig
from reticent.job.config import Job, load_job, parse_job
from reticent.job.stages.audit import all_settings

CELL = 5
#: Stand in `filled` evidence where few individuals are counted or measured: neither may leave.
FEW, MEASURED = 3, 0.43753


def evidence_classes() -> list[type]:
    found: dict[str, type] = {"Estimate": Estimate, "Spread": Spread}
    for module in pkgutil.iter_modules(evidence.__path__):
        for name, value in vars(importlib.import_module(f"{evidence.__name__}.{module.name}")).items():
            if is_dataclass(value) and isinstance(value, type) and not hasattr(value, "published"):
                found[name] = value
    assert len(found) > 50
    return list(found.values())


def filled(hint: Any, rule: Any = None) -> Any:
    """Evidence with every field filled: small counts, and estimates over few."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return filled(arguments[0], arguments[1])
    if origin in (Union, types.UnionType):
        return filled(next(a for a in arguments if a is not type(None)), rule)
    if origin is Literal:
        return arguments[0]
    if origin in (dict, Mapping):
        key = "both" if get_origin(arguments[0]) is Literal else "loss"
        return {key: filled(arguments[1], rule)} if origin is dict else {}
    if origin in (list, tuple):
        return origin([filled(arguments[0], rule)])
    if is_dataclass(hint):
        values = {name: filled(part) for name, part in get_type_hints(hint, include_extras=True).items()}
        if isinstance(hint, type) and issubclass(hint, Estimate):
            values |= {"value": MEASURED, "low": MEASURED, "high": MEASURED, "n": FEW, "bound": None, "seeds": None}
        return hint(**values)
    of_individuals = rule in (COUNT, TOGETHER, PRIVATE)
    return {int: FEW if of_individuals else 70, float: MEASURED if rule in (TOGETHER, CURVE) else 0.25,
            str: "loss", bool: True}[hint]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Forgotten:
    counted: Annotated[int | None, COUNT]
    forgotten: int | None


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from leaves(part)
    else:
        yield value


@pytest.mark.parametrize("cls", evidence_classes(), ids=lambda cls: cls.__name__)
def test_every_field_of_every_evidence_class_has_a_rule(cls: type) -> None:
    rules = rules_of(cls)
    assert rules
    assert [name for name, rule in rules.items() if rule is None] == []


def test_a_field_without_a_rule_does_not_leave() -> None:
    assert rules_of(_Forgotten) == {"counted": COUNT, "forgotten": None}
    assert publish(_Forgotten(counted=9, forgotten=9), CELL) == _Forgotten(counted=9, forgotten=None)


@pytest.mark.parametrize("rule", [TOGETHER, PRIVATE])
def test_fields_that_only_their_class_may_close_leave_nothing_by_themselves(rule: Any) -> None:
    assert rule.published(40, CELL) is None
    assert CURVE.published({"x": [1.0, 2.0]}, CELL) == {"x": []}


WHOLE = (AuditEvidence, CorpusEvidence, ProbeEvidence, ModelEvidence, TaggerEvidence, DetectedSpans,
         ClassificationEvidence)  # fmt: skip


@pytest.mark.parametrize("cls", WHOLE, ids=lambda cls: cls.__name__)
def test_no_count_and_no_estimate_of_few_leaves_whatever_its_field(cls: type) -> None:
    found = filled(cls)
    shown = to_json(publish(found, CELL))
    inside, outside = list(leaves(to_json(found))), list(leaves(shown))
    assert inside.count(FEW) > 3
    assert MEASURED in inside
    assert FEW not in outside
    assert MEASURED not in outside
    assert 0.25 in outside or 70 in outside, "what is of no few individuals does leave"
    if cls not in (TaggerEvidence, DetectedSpans):  # nothing reads these again
        assert to_json(from_json(cls, shown, "report")) == shown


@pytest.mark.parametrize(("n", "leaves_it"), [(0, True), (1, False), (CELL - 1, False), (CELL, True), (CELL + 1, True)])
def test_the_small_cell_is_open_from_its_own_number_on(n: int, leaves_it: bool) -> None:
    assert COUNT.published(n, CELL) == (n if leaves_it else None)
    shown = publish(Estimate(value=0.5, low=0.4, high=0.6, n=n), CELL)
    assert (shown.value, shown.low, shown.high, shown.n) == ((0.5, 0.4, 0.6, n) if leaves_it else (None,) * 4)


@pytest.mark.parametrize(
    ("count", "value", "bound"),
    [(0, 0.0, None), (1, 0.05, "below"), (4, 0.05, "below"), (5, 0.05, None), (50, 0.5, None),
     (95, 0.95, None), (96, 0.95, "above"), (99, 0.95, "above"), (100, 1.0, None)],
)  # fmt: skip
def test_a_share_of_few_at_either_end_is_the_bound_that_the_small_cell_gives(
    count: int, value: float, bound: str | None
) -> None:
    shown = Estimate(value=count / 100, low=0.0, high=1.0, n=100).as_share(100, CELL)
    assert (shown.value, shown.bound) == (pytest.approx(value), bound)


# ------------------------------------------------------------------ what no rule knows


def test_the_ends_of_a_bound_do_not_count_what_it_hides() -> None:
    """Four identifiers of one individual make a wider interval than one does: it would tell them apart."""
    sizes = np.full(30, 10.0)
    shown = set()
    for leaked in (1, 2, 3, 4):
        rate = ratio_estimate(np.where(np.arange(30) == 0, leaked, 0), sizes)
        assert rate.high is not None
        assert rate.low is not None
        privacy = replace(rate, value=1 - leaked / 300, low=1 - rate.high, high=1 - rate.low)
        bound = privacy.bounded(1 - CELL / 300, "above", 300)
        assert bound.low is not None
        assert bound.low <= clopper_pearson(300 - CELL, 300)[0]
        shown.add(bound)
    assert len(shown) == 1


def test_an_unknown_measure_over_two_individuals_is_refused_by_its_name(tiny_audit: dict[str, Any]) -> None:
    """It passed untouched before."""
    tiny_audit["models"][0]["new_attack"] = {"rate": 0.5, "people": 2, "names": ["a", "b"]}
    with pytest.raises(ArtifactError, match=r"audit.models\[0\]: 'new_attack' is no field"):
        published(tiny_audit)


@pytest.mark.parametrize(
    "path", [("corpus",), ("models", 0, "membership", "loss"), ("models", 0, "privacy", "both", "types"), ()]
)
def test_an_unknown_key_is_refused_however_deep_it_lies(
    tiny_audit: dict[str, Any], tmp_path: Path, path: tuple[Any, ...]
) -> None:
    part: Any = tiny_audit
    for key in path:
        part = part[key]
    part["surprise"] = 2
    with pytest.raises(ArtifactError, match="'surprise' is no field"):
        write(tmp_path, tiny_audit)
    assert not list(tmp_path.iterdir())


def test_a_value_of_another_type_is_refused_and_not_quoted(tiny_audit: dict[str, Any]) -> None:
    tiny_audit["models"][0]["privacy"]["both"]["num_leaked"] = "Jane Doe"
    with pytest.raises(ArtifactError, match=r"num_leaked: expected int, got str") as error:
        published(tiny_audit)
    assert "Jane" not in str(error.value)


@pytest.mark.usefixtures("without_figures")
def test_an_unknown_setting_is_left_out_and_counted(tiny_audit: dict[str, Any], tmp_path: Path) -> None:
    tiny_audit["settings"] |= {"train": {"learning_rate": 0.002, "patients": 2}, "ward": {"name": "B 3"}}
    page = write(tmp_path, tiny_audit).read_text()
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["settings"]["train"] == {"learning_rate": 0.002}
    assert "ward" not in report["settings"]
    assert report["num_settings_withheld"] == 3, "the seed, the patients and the ward"
    assert "files: 3." in page
    assert "num_settings_withheld" not in published({**tiny_audit, "settings": {"dedup": {"mode": "off"}}})


def test_the_seed_of_a_probe_does_not_leave() -> None:
    """The sides of a probe can be drawn again from it."""
    section = {
        "format": "reticent.probe/1", "subjects": {"num": 40, "types": ["ssn"]}, "not_asked": [], "source": "gpt2",
        "settings": {"seed": 77, "beam_sizes": [3], "soft_prompt": {"prompt": {"seed": 77, "num_tokens": 20}}},
        "models": [],
    }  # fmt: skip
    shown = publish(from_json(ProbeEvidence, section), CELL)
    assert shown.settings == {"beam_sizes": [3], "soft_prompt": {"prompt": {"num_tokens": 20}}}
    few = from_json(ProbeEvidence, {**section, "subjects": {"num": 4, "types": ["ssn"]}})
    assert publish(few, CELL).subjects.num is None


def test_patterns_of_a_detector_may_hold_names_and_are_not_shown() -> None:
    options = {"pipeline": "fr_core_news_md", "patterns": [{"label": "NAME", "pattern": "Jane Doe"}], "batch_size": 8}
    shown = {"detect": {"spacy": {"pipeline": "fr_core_news_md", "batch_size": 8}}}
    assert Job.published({"detect": {"spacy": options}}) == (shown, 1)


def leaves_of_settings(section: type[Section], name: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and fields of the settings that a section of the job has in a file."""
    for key, field in section.model_fields.items():
        if key in shared_fields(section):
            continue
        inner = list(sections_in(field.annotation))
        if not inner:
            yield f"{name}{key}", field
        for part in inner:
            yield from leaves_of_settings(part, f"{name}{key}.")


def sections_in(annotation: Any) -> list[type[Section]]:
    """The sections that an annotation names, however deep."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [section for inner in get_args(annotation) for section in sections_in(inner)]


#: Free text that a report shows; whatever else is text is withheld and counted.
SHOWN_TEXT = {
    *(
        "corpus.delimiter",
        "corpus.quote",
        "corpus.encoding",
        "corpus.format",
        "corpus.time_zone",
        "detect.detectors",
        "protect.public_words",
        "protect.scopes",
    ),
    *("surrogates.pool", "surrogates.names", "surrogates.language", "model.name", "model.base", "model.recipes"),
    *("model.foundation.text", "model.foundation.vocabulary", "recipes.base", "audit.attacks", "audit.shadow.recipes"),
    *("audit.shadow.attacks", "probe.targets", "probe.given", "probe.language", "gate.measure", "gate.recipes"),
    *("gate.attack", "subject.statement", "subject.model", "subject.base", "subject.also", "subject.allow_sending"),
    *(f"{of}{name}" for of in ("", "model.") for name in ("train.device", "train.lora.target_modules")),
    *(f"{of}train.dp.budget_file" for of in ("", "model.")),
    *("classify.from_recipes", "tag.from_recipes"),
}


def test_every_setting_of_a_job_that_is_text_is_withheld_but_for_those_that_are_marked() -> None:
    marked = {name for name, field in leaves_of_settings(Job) if PUBLISHED in field.metadata}
    assert marked == SHOWN_TEXT
    private = {"out", "corpus.source", "corpus.query", "corpus.individual_id", "classify.label", "dossier.key"}
    assert private < {name for name, field in leaves_of_settings(Job) if PUBLISHED not in field.metadata}


def dumped(**sections: Any) -> dict[str, Any]:
    values = {"out": "run", "corpus": {"source": "notes.csv", "individual_id": "person"}, **sections}
    found: dict[str, Any] = parse_job(values).model_dump(mode="json")
    return found


def test_every_section_of_a_job_is_shown_or_counted() -> None:
    """The sections of the threshold, of surrogates and of classification were once forgotten."""
    sections = {"threshold": {"epsilon": 1.0}, "classify": {"label": "ward", "num_epochs": 3}, "probe": {}}
    shown, _ = Job.published(dumped(**sections))
    assert shown["threshold"] == {"epsilon": 1.0, "unit": "word", "delta": None, "max_words": 200}
    assert shown["surrogates"] == {"pool": "generated", "names": "realistic", "language": "auto"}
    assert shown["classify"]["num_epochs"] == 3
    assert "label" not in shown["classify"]
    assert set(dumped(**sections)) - set(shown) == {"out", "seed"}


def test_a_run_without_text_of_its_own_has_few_settings_withheld() -> None:
    """The folder, the source, the names of its three columns, and the seed."""
    shown, withheld = Job.published(dumped())
    assert (withheld, sorted(shown["corpus"])) == (6, sorted(set(shown["corpus"]) - {"source", "text", "doc_id"}))
    assert "person" not in str(shown)


@pytest.mark.parametrize(
    ("annotation", "value", "leaves_it"),
    [(int, 7, True), (Literal["a", "b"], "a", True), (float | None, 0.5, True), (tuple[int, ...], (1,), True),
     (str, "ward 3", False), (dict[str, int], {"ward": 1}, False), (Annotated[str, PUBLISHED], "cpu", True),
     (Annotated[int, WITHHELD], 7, False)],
)  # fmt: skip
def test_a_new_field_of_any_section_is_published_or_counted_by_its_type_and_mark(
    annotation: Any, value: Any, leaves_it: bool
) -> None:
    """Nothing but the field says so."""

    class Noisy(ThresholdConfig):
        added: annotation = value

    class Run(Job):
        threshold: Noisy = Noisy()  # type: ignore[assignment]

    dump = Run(out="run", corpus={"source": "notes.csv"}).model_dump(mode="python")
    shown, withheld = Run.published(dump)
    before = Job.published({**dump, "threshold": ThresholdConfig().model_dump()})[1]
    assert (shown["threshold"].get("added"), withheld - before) == ((value, 0) if leaves_it else (None, 1))


def test_no_seed_is_published_whatever_its_section() -> None:
    seeds = {name for name, _ in leaves_of_settings(Job) if names_a_seed(name.rpartition(".")[2])}
    assert {"seed", "canaries.seed", "train.seeds"} <= seeds
    assert not seeds & SHOWN_TEXT
    shown, _ = Job.published({"train": {"seeds": [1, 2], "num_epochs": 3}, "seed": 7})
    assert shown == {"train": {"num_epochs": 3}}


# -------------------------------------------------------------------- the form in JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    n: Annotated[int | None, COUNT]
    left_out: Annotated[int | None, COUNT] = optional()
    null: Annotated[int | None, COUNT] = None


@pytest.mark.parametrize(
    ("row", "form"),
    [
        (_Row(n=None), {"n": None, "null": None}),
        (_Row(n=1, left_out=2), {"n": 1, "left_out": 2, "null": None}),
        (_Row(n=1, null=3), {"n": 1, "null": 3}),
    ],
)
def test_what_was_not_measured_is_left_out_or_null(row: _Row, form: dict[str, Any]) -> None:
    assert to_json(row) == form
    assert from_json(_Row, form) == row


@pytest.mark.parametrize(
    ("value", "message"),
    [({}, "n is missing"), ([], "expected an object, got list"), ({"n": True}, "expected int, got bool"),
     ({"n": 1.5}, "expected int, got float"), ({"n": 1, "m": 2}, "'m' is no field")],
)  # fmt: skip
def test_the_reader_is_strict(value: Any, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        from_json(_Row, value)


def test_an_audit_reads_and_writes_as_it_was(tiny_audit: dict[str, Any]) -> None:
    written = to_json(from_json(AuditEvidence, tiny_audit))
    assert from_json(AuditEvidence, written) == from_json(AuditEvidence, tiny_audit)
    kept = [sorted(str(v) for v in leaves(form) if v is not None) for form in (tiny_audit, written)]
    assert kept[0] == kept[1]


def test_publishing_twice_is_publishing_once(tiny_audit: dict[str, Any]) -> None:
    once = publish_audit(from_json(AuditEvidence, tiny_audit))
    assert publish_audit(once) == once


# ------------------------------------------------------------ what changed since 5750ba4a

HERE = Path(__file__).parent


def paths_of(value: Any, name: str = "settings") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict | list) and value:
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths_of(part, f"{name}.{key}")
    else:
        yield name, value


def test_the_settings_that_were_published_before_are_and_the_others_stand_on_the_list() -> None:
    job = load_job(HERE / "whole_job.toml")
    shown = dict(paths_of(Settings(Job).published(all_settings(job), CELL)))
    before = dict(paths_of(json.loads((HERE / "settings_at_5750ba4a.json").read_text())))
    lists = tomllib.loads((HERE / "changed_paths.toml").read_text())
    before = {path: value for path, value in before.items() if path not in {*lists["removed"], *lists["changed"]}}
    assert {path: shown.get(path) for path in before} == before
    assert len(before) > 150
    listed = [*lists["added"], *lists["changed"]]
    added = {path for path in set(shown) - set(before) if not any(fnmatch.fnmatch(path, each) for each in listed)}
    assert added == set()
    assert not [value for value in shown.values() if "dupont" in str(value) or "Jane" in str(value)]


def test_no_number_of_an_attack_is_on_the_list_of_changed_paths() -> None:
    lists = tomllib.loads((HERE / "changed_paths.toml").read_text())
    named = [path for table in ("added", "changed", "removed") for path in lists[table]]
    assert all(reason for table in lists.values() for reason in table.values())
    attacks = ("membership", "best_attack", "by_kind", "threshold.", "blind", "excess", "privacy.", "extraction")
    of_attacks = [path for path in named if not path.startswith("settings.") and any(part in path for part in attacks)]
    assert of_attacks == []
