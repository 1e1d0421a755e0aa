"""Jobs: checked before anything starts, run once, resumed where they stopped, same bytes for any number of threads."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.audits import filled
from fixtures.jobs import AGAIN, Recorder, Values, changed, content, make_hospital, run, values_of, write_tokenizer
from pydantic import BaseModel

import reticent
from reticent.audit.evidence.audit import AuditEvidence, ModelEvidence
from reticent.audit.evidence.json_form import to_json
from reticent.core.artifact import FORMATS, read_manifest, write_artifact
from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.engine.split import open_individuals
from reticent.engine.store import open_tokens
from reticent.job.artefact import Measurement
from reticent.job.config import Job, load_job, parse_job
from reticent.job.pipeline import STAGES, execute
from reticent.job.pipeline import report_again as write_again
from reticent.job.run import Run
from reticent.job.stages import index as index_stage
from reticent.job.stages.audit import corpus_section, gather_evidence
from reticent.trainer.recipes import RECIPES

ENGINE = ("split", "spans", "index", "index-joint")
TOKENS = ("tokens/toy/train", "tokens/toy/audit")
#: What the pass over the text makes: of words, and of the tokens of a model.
WORDS, WORD_SPANS, IDS, GAPS = TEXT = ("words", "word-spans", "tokens/toy/ids", "tokens/toy/gaps")


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_hospital(tmp_path_factory.mktemp("hospital"), 80)


@pytest.fixture(scope="module")
def finished(hospital: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run up to the protected tokens; tests work on copies of it."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    recorder = run(values_of(hospital, folder))
    assert tuple(recorder.made) == (*ENGINE, *TEXT, *TOKENS)
    assert not recorder.up_to_date
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


# -------------------------------------------------------------------------------------------------------- the job file

VALID: Values = {"out": "run", "corpus": {"source": "x.parquet"}}


def sections(model: type[BaseModel], where: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    yield where, model
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from sections(field.annotation, (*where, name))


def test_every_section_refuses_an_unknown_field() -> None:
    found = [where for where, _ in sections(Job)]
    assert len(found) == 12  # the job itself and its sections
    for where in found:
        values = json.loads(json.dumps(VALID))
        target = values
        for name in where:
            target = target.setdefault(name, {})
        target["colour"] = "red"
        with pytest.raises(
            PolicyError,
            match=rf"^job: {'.'.join((*where, 'colour'))}: unknown field \(known: [a-z_0-9, ]+\)$".replace(".", r"\."),
        ):
            parse_job(values)


def test_every_wrong_field_is_listed_at_once() -> None:
    values = {
        "seed": "x",
        "corpus": {"format": "xml"},
        "split": {"heldout": 0.7, "reference": 0.3},
        "detect": {"detectors": ["rules", "magic"]},
        "index": {"max_n": 9},
        "protect": {"k": 1, "policy": "most", "scopes": {"NAME": "world"}},
        "model": [{"name": "a b", "objective": "mlm", "recipes": []}],
        "train": {"num_epochs": 0, "mask_share": 1},
        "audit": {"num_bootstrap": 3},
    }
    with pytest.raises(PolicyError) as caught:
        parse_job(values, "hospital.toml")
    assert str(caught.value).startswith("hospital.toml: ")
    for field in (
        "out: is missing",
        "seed: ",
        "corpus.source: is missing",
        "corpus.format: ",
        "split: heldout and reference must leave a share for members",
        "detect.detectors.1: ",
        "index.max_n: ",
        "protect.k: ",
        "protect.policy: expected 'all', 'last', 'cover' or 'paper'",
        "protect.scopes.NAME: ",
        "model.0.name: ",
        "model.0.recipes: ",
        "train.num_epochs: ",
        "train.mask_share: ",
        "audit.num_bootstrap: ",
    ):
        assert field in str(caught.value)


MODEL = {"name": "a", "base": "b", "objective": "mlm", "recipes": ["mlm"]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"protect": {"n": 2}}, r"protect\.n = 2 needs index\.max_n >= 2, got 1"),
        ({"model": [MODEL, MODEL]}, "two models have the same name"),
        ({"detect": {"detectors": ["records"]}}, r"detector records needs detect\.records"),
        ({"detect": {"detectors": ["spacy"]}}, r"detector spacy needs detect\.spacy"),
        ({"detect": {"detectors": ["gold"]}}, r"detector gold needs corpus\.spans"),
        ({"detect": {"detectors": ["gazetteer"]}}, r"detector gazetteer needs detect\.gazetteer\.lists"),
        ({"detect": {"records": "r.parquet"}}, r'detect\.records is given, but "records" is not among'),
        ({"detect": {"spacy": "en_core_web_sm"}}, r'detect\.spacy is given, but "spacy" is not among'),
        ({"detect": {"lists": {"CITY": "c.txt"}}}, r'detect\.gazetteer is given, but "gazetteer" is not among'),
        ({"detect": {"rules": {"colour": "red"}}}, r"detector rules has no option 'colour' \(detect\.rules\.colour\)"),
        ({"detect": {"detectors": ["rules", "rules"]}}, "a detector is listed twice"),
        ({"detect": {"on_error": "skip"}}, r"detect\.on_error: expected 'stop' or 'quarantine'"),
        ({"seed": -1}, r"seed: expected greater than or equal to 0"),
        ({"memory_limit": "8Go"}, r'memory_limit: expected a size in bytes, such as "8GB" or "500MB"'),
        ({"memory_limit": "much"}, r'memory_limit: expected a size in bytes, such as "8GB" or "500MB"'),
        ({"model": [{**MODEL, "base": None}]}, "give either base or foundation"),
        ({"model": [{**MODEL, "foundation": {"kind": "bert", "text": "x"}}]}, "give either base or foundation"),
        (
            {"model": [{**MODEL, "recipes": ["mlm", "ppmlmm"]}]},
            r"model a: unknown recipe 'ppmlmm' \(did you mean ppmlm or .*\?\); expected one of clm",
        ),
        ({"model": [{**MODEL, "recipes": ["mlm", "mlm"]}]}, r"model\.0: a recipe is listed twice"),
        ({"model": [{**MODEL, "recipes": ["ppclm"]}]}, "model a: recipe ppclm is clm, the objective is mlm"),
        ({"model": [{**MODEL, "colour": "red"}]}, r"model\.0\.colour: unknown field"),
        ({"model": [{**MODEL, "foundation": {"size": 3}}]}, r"model\.0\.foundation\.size: unknown field"),
        ({"train": {"num_epochs": 10**12}}, r"train\.num_epochs: .*less than or equal to [\d,]+"),
        ({"train": {"batch_size": 10**12}}, r"train\.batch_size: .*less than or equal to [\d,]+"),
        ({"train": {"save_steps": 10**13}}, r"train: save_steps: expected at most [\d,]+"),
        ({"train": {"checkpoint_epochs": [10**12]}}, r"train: checkpoint_epochs.*at most [\d,]+"),
        ({"audit": {"num_bootstrap": 10**13}}, r"audit\.num_bootstrap: .*less than or equal to [\d,]+"),
        ({"audit": {"k": 10**15}}, r"audit: k: expected at most [\d,]+"),
        ({"dedup": {"passage_words": 10**12}}, r"dedup: passage_words: expected at most [\d,]+"),
        ({"canaries": {"num": 10**12}}, r"canaries: num: expected at most [\d,]+"),
        (
            {"model": {"name": "a"}},
            r"model: expected a table of \[\[model\]\] each: write \[\[model\]\], not \[model\]",
        ),
        ({"gate": {}}, r"gate: expected a table of \[\[gate\]\] each"),
        ({"detect": {"detectors": "rules"}}, r"detect\.detectors: expected a list, in brackets"),
        ({"split": 3}, r"split: expected a table, \[split\]"),
        ({"split": {"heldout": "a lot"}}, r"split\.heldout: expected a number"),
        ({"index": {"max_n": 1.5}}, r"index\.max_n: expected .*integer.*"),
        ({"index": {"max_n": "two"}}, r"index\.max_n: expected a whole number"),
        ({"out": 7}, "out: expected text, in quotes"),
        (
            {"audit": {"attacks": ["checkpoints"]}, "model": [{**MODEL, "train": {"num_epochs": 3}}]},
            r"audit\.attacks: checkpoints compares the checkpoints of a training, and a keeps one",
        ),
        (
            {"gate": [{"measure": "membership_auc", "at_most": 60}]},
            r"gate\.0: a membership AUC is at most 1, so 60 would pass",
        ),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(changes: Values, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        parse_job({**VALID, **changes})


def test_a_job_of_very_many_keys_is_refused_in_a_second(tmp_path: Path) -> None:
    for number, said in ((700_000, r"bytes of TOML: expected at most 1,048,576"), (90_000, "and 89,982 faults more")):
        file = tmp_path / "job.toml"
        file.write_text("".join(f"a{i}=1\n" for i in range(number)))
        with pytest.raises(PolicyError, match=said) as error:
            load_job(file)
        assert len(str(error.value)) < 2000


@pytest.mark.parametrize(
    ("train", "recipe", "module", "said"),
    [
        ({"dp": {"target_epsilon": 8.0}}, "dp-mlm", "opacus", r"recipe dp-mlm needs opacus.*reticent\[dp\]"),
        ({"lora": {"r": 4}}, "mlm", "peft", r"train\.lora needs peft.*reticent\[dp\]"),
        ({"report_to": ["tensorboard"]}, "mlm", "tensorboard", r"report_to needs tensorboard.*reticent\[track\]"),
    ],
)
def test_what_is_not_installed_is_found_out_before_anything_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train: Values, recipe: str, module: str, said: str
) -> None:
    model = {**MODEL, "recipes": [recipe]}
    job = parse_job({**VALID, "out": str(tmp_path / "run"), "model": [model], "train": train})
    monkeypatch.setattr("reticent.job.checks.find_spec", lambda name: None if name == module else True)
    with pytest.raises(PolicyError, match=said):
        execute(Run(job), "train")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"kind": "gpt2"}, r'model toy: foundation\.kind: the objective mlm needs "bert", got "gpt2"'),
        ({"hidden_size": 10, "num_heads": 3}, "hidden_size 10 is no multiple of num_heads 3"),
        ({"hidden_size": 0}, r"foundation\.hidden_size"),
        ({"num_heads": 0}, r"foundation\.num_heads"),
        ({"num_layers": 0}, r"foundation\.num_layers"),
        ({"learning_rate": -1.0}, r"foundation\.learning_rate"),
        ({"mask_share": 2.0}, r"foundation\.mask_share"),
        ({"text": "nowhere"}, r"model toy: foundation\.text: nowhere: no such file"),
        ({"vocabulary": "nowhere"}, r"model toy: foundation\.vocabulary: nowhere: no such file"),
    ],
)
def test_a_foundation_that_cannot_be_made_is_refused_before_anything_is_spent(
    tmp_path: Path, wrong: Values, said: str
) -> None:
    foundation = {"kind": "bert", "text": "reference", **wrong}
    model = {"name": "toy", "foundation": foundation, "objective": "mlm", "recipes": ["mlm"]}
    with pytest.raises((PolicyError, ArtifactError), match=said):
        execute(Run(parse_job({**VALID, "out": str(tmp_path / "run"), "model": [model]})), "train")
    assert not (tmp_path / "run").exists()


def test_a_dossier_that_cannot_be_made_is_refused_before_anything_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tokenizer(tmp_path / "base", ["the"])
    (tmp_path / "key").write_text("no key")
    model = {**MODEL, "base": str(tmp_path / "base")}

    def refused(dossier: Values, said: str) -> None:
        job = parse_job({**VALID, "out": str(tmp_path / "run"), "model": [model], "dossier": dossier})
        with pytest.raises((ArtifactError, PolicyError), match=said):
            execute(Run(job), "report")
        assert not (tmp_path / "run").exists()
        with pytest.raises(CorpusError):  # the documents are not there; the key is not asked for
            execute(Run(job), "audit")
        assert not (tmp_path / "run").exists()

    refused({"key": str(tmp_path / "nowhere")}, r"^dossier\.key: .*nowhere: no such file$")
    if shutil.which("ssh-keygen"):
        refused({"key": str(tmp_path / "key")}, "^ssh-keygen: ")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refused({"pdf": "on"}, r"^dossier\.pdf: WeasyPrint is not installed")


def test_half_a_noisy_threshold_is_refused(tmp_path: Path) -> None:
    job = parse_job({**VALID, "out": str(tmp_path / "run"), "model": [MODEL], "threshold": {"delta": 0.05}})
    with pytest.raises(PolicyError, match=r"threshold\.delta: has no effect without threshold\.epsilon"):
        execute(Run(job), "protect")


def test_every_recipe_can_stand_in_a_job() -> None:
    for name, recipe in RECIPES.items():
        train = {"dp": {"target_epsilon": 8.0}} if recipe.private else {}
        model = {**MODEL, "objective": recipe.objective, "recipes": [name], "train": train}
        words = {"protect": {"public_words": "generated"}, "threshold": {"epsilon": 1.0, "unit": "individual"}}
        job = parse_job({**VALID, "model": [model], **(words if recipe.words != "counted" else {})})
        assert job.model[0].recipes == (name,)


def test_a_job_file_is_toml_or_the_json_of_a_run_folder(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text('out = "run"\nseed = 7\n[corpus]\nsource = "x.parquet"\n[protect]\nk = 5\n')
    job = load_job(tmp_path / "job.toml")
    assert (job.seed, job.protect.k, job.corpus.source) == (7, 5, "x.parquet")
    (tmp_path / "job.json").write_text(job.model_dump_json())
    assert load_job(tmp_path / "job.json") == job


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.toml", b"out = \n", r"a\.toml: not valid TOML: .*line 1"),
        ("a.toml", b'out = "\xff"\n', r"a\.toml: not valid TOML: not UTF-8 \(byte 7\)"),
        (
            "a.toml",
            b"seed = 1\nseed = 2\n",
            r"a\.toml: not valid TOML: .*line 2.*; a name is given twice, .*has to go$",
        ),
        (
            "a.toml",
            b"[model]\n[[model]]\n",
            r"a\.toml: not valid TOML: .*line 2.*; a name is given twice, .*has to go$",
        ),
        (
            "a.toml",
            b'[detect]\nrecords = "a.csv"\n[detect.records]\nfields = {}\n',
            r"records = … is short for table = … in \[detect\.records\]: write it there$",
        ),
        (
            "a.toml",
            b'detect.spacy = "en"\n[detect.spacy]\nlabels = {}\n',
            r"spacy = … is short for pipeline = … in \[detect\.spacy\]: write it there$",
        ),
        ("a.json", b"{", r"a\.json: not valid JSON"),
        ("a.json", b"[1]", r"a\.json: expected a table$"),
        ("a.toml", None, r"a\.toml: cannot be read \(No such file or directory\)"),
        ("a.toml", b'out = "x"\n', r"a\.toml: corpus: is missing, and must be given$"),
        (
            "notes.parquet",
            b"PAR1",
            r"notes\.parquet: documents, and no job; `reticent index .*notes\.parquet --out RUN`",
        ),
        ("notes.csv.gz", b"PAR1", r"notes\.csv\.gz: documents, and no job"),
    ],
)
def test_a_file_that_is_no_job_is_refused_by_name(tmp_path: Path, name: str, data: bytes | None, message: str) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(PolicyError, match=message):
        load_job(tmp_path / name)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"num_epochs": 1}, (1,)),
        ({"num_epochs": 8}, (4, 8)),
        ({"num_epochs": 9}, (4, 8, 9)),
        ({"num_epochs": 64}, (4, 8, 16, 32, 64)),
        ({"num_epochs": 9, "checkpoint_epochs": []}, (9,)),
        ({"num_epochs": 9, "checkpoint_epochs": [3, 9, 12]}, (3, 9)),
    ],
)
def test_checkpoints_kept_are_those_asked_for_and_the_last(settings: Values, expected: tuple[int, ...]) -> None:
    assert parse_job({**VALID, "train": settings}).train.epochs_kept() == expected


def test_the_run_folder_keeps_the_whole_job_and_everything_in_it_is_private(hospital: Path, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    old = os.umask(0)
    try:
        run(values_of(hospital, folder))
    finally:
        os.umask(old)
    assert load_job(folder / "job.json") == parse_job(values_of(hospital, folder))
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (folder.parent, folder, *folder.rglob("*"))}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}


# --------------------------------------------------------------------------------------------------- run once, resumed


def test_a_finished_job_runs_nothing_again_and_touches_no_result(copy: Path, hospital: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*") if path.name not in AGAIN}
    recorder = run(values_of(hospital, copy))
    assert recorder.made == []
    assert tuple(recorder.up_to_date) == (*ENGINE, *TEXT, *TOKENS)
    after = {path: path.stat().st_mtime_ns for path in copy.rglob("*") if path.name not in AGAIN}
    assert after == before


@pytest.mark.parametrize("next_start", ["the same job", "another config", "a stage fails", "no stage starts"])
def test_a_start_wipes_what_a_killed_run_left_whatever_becomes_of_it(
    copy: Path, hospital: Path, next_start: str
) -> None:
    places = (".index.tmp-0123456789ab", "tokens/toy/.train.tmp-0123456789ab", "tokens/other/.train.tmp-0123456789ab")
    for place in places:
        (copy / place).mkdir(parents=True)
        (copy / place / "documents.parquet").write_text("a patient")
    values = values_of(hospital, copy)
    if next_start == "the same job":
        assert run(values).made == []
    elif next_start == "another config":
        run(changed(values, protect__k=4))
    elif next_start == "a stage fails":
        with pytest.raises(CorpusError):
            run(changed(values, corpus__source=str(hospital / "nothing")))
    else:
        with pytest.raises(PolicyError):
            run({**values, "model": []})
    assert [place for place in places if (copy / place).exists()] == []


def test_results_are_the_same_bytes_in_another_folder_with_any_number_of_threads(tmp_path: Path) -> None:
    hospital = make_hospital(tmp_path, 2000)
    counts = []
    for num_threads in (1, 2):
        values = values_of(hospital, tmp_path / str(num_threads))
        values["model"][0]["recipes"] = ["ppmlm", "mlma"]
        run(changed(values, num_threads=num_threads))
        counts.append(read_manifest(tmp_path / str(num_threads) / "split").counts["documents"])
    assert counts[0] == counts[1] > 4096  # more than a batch
    one, two = content(tmp_path / "1"), content(tmp_path / "2")
    assert {"tokens/toy/train-pseudonymised/ids.bin", "index/ngrams_2.parquet", "spans/spans.parquet"} < set(one)
    assert {name for name in one | two if one.get(name) != two.get(name)} == set()


def test_members_alone_shape_what_training_sees_and_the_audit_sees_both_sides(finished: Path) -> None:
    individuals = open_individuals(finished / "split")
    members, both = individuals.mask(MEMBERS), individuals.mask(MEMBERS, HELDOUT)
    for name, side in (("", members), ("-joint", both)):
        assert read_manifest(finished / f"index{name}").counts["individuals"] == len(set(individuals.units[side]))
    num_documents = individuals.table.column("num_documents").to_numpy()
    for name, side in (("train", members), ("audit", both)):
        tokens = open_tokens(finished / "tokens" / "toy" / name)
        assert set(tokens.individual) == set(np.flatnonzero(side))
        assert tokens.num_documents == num_documents[side].sum()


def test_statistics_say_what_the_tokens_were_protected_with(finished: Path, hospital: Path) -> None:
    counts = read_manifest(finished / "tokens" / "toy" / "train").counts
    found = to_json(corpus_section(Run(parse_job(values_of(hospital, finished)))))
    assert found["unit"] == "household"
    assert (found["num_documents"], found["num_words"]) == (counts["documents"], counts["words"])
    assert found["retention"] == {"cover": 1 - counts["protected"] / counts["words"]}
    for part, key in (("direct", "direct"), ("indirect", "indirect"), ("both", "protected")):
        assert found["protected"][part] == counts[key] / counts["words"]


@pytest.mark.parametrize("small_cell", [5, 75])
def test_labels_found_in_too_few_individuals_are_not_told_apart(
    finished: Path, hospital: Path, small_cell: int
) -> None:
    people: dict[str, set[str]] = {}
    for document in pq.read_table(hospital / "documents").to_pylist():
        for span in document["spans"]:
            people.setdefault(span["label"], set()).add(document["individual_id"])
    expected = {label: len(found) for label, found in people.items() if len(found) >= small_cell}
    assert 0 < len(expected) < len(people) or small_cell < 75
    job = parse_job(changed(values_of(hospital, finished), audit__small_cell=small_cell))
    rows = [row for row in corpus_section(Run(job)).detected or [] if row.detector == "gold"]
    assert {row.label: row.num_individuals for row in rows} == expected


@pytest.mark.parametrize(
    ("changes", "made"),
    [
        ({"num_threads": 1}, ()),
        ({"train__num_epochs": 3, "audit__num_bootstrap": 200}, ()),
        ({"protect__k": 2}, TOKENS),
        ({"protect__policy": "all"}, TOKENS),
        ({"protect__scopes": {"NAME": "occurrence"}}, TOKENS),
        ({"model__recipes": ["ppmlm", "mlma"]}, ("tokens/toy/train-pseudonymised",)),
        ({"model__name": "other"}, tuple(f"tokens/other/{n}" for n in ("ids", "gaps", "train", "audit"))),
        ({"detect__detectors": ["rules"], "detect__records": None}, ("spans", WORD_SPANS, GAPS, *TOKENS)),
        ({"index__max_n": 3}, ("index", "index-joint", WORDS, *TOKENS)),
        ({"index__surface": "casefold"}, ("index", "index-joint", WORDS, *TOKENS)),
        ({"split__heldout": 0.5}, ("split", "index", "index-joint", WORDS, *TOKENS)),
        ({"seed": 1}, ("split", "index", "index-joint", WORDS, *TOKENS)),
        ({"corpus__household_id": None}, (*ENGINE, *TEXT, *TOKENS)),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_changed_setting_runs_again_what_depends_on_it_and_nothing_else(
    copy: Path, hospital: Path, tmp_path: Path, changes: Values, made: tuple[str, ...]
) -> None:
    values = changed(values_of(hospital, copy), **changes)
    assert tuple(run(values).made) == made
    if made:  # and gives what a run from nothing gives
        fresh = tmp_path / "fresh"
        run({**values, "out": str(fresh)})
        found = content(copy)
        assert {name for name, data in content(fresh).items() if found.get(name) != data} == set()


def test_a_scope_that_says_nothing_of_any_span_is_warned_of_once(
    copy: Path, hospital: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(changed(values_of(hospital, copy), protect__scopes={"name": "individual", "datte": "corpus"}))
    assert capsys.readouterr().err.count("protect.scopes: no span has the label or category datte\n") == 1


@pytest.mark.parametrize(
    ("file", "made"),
    [
        ("documents/part-00000.parquet", (*ENGINE, *TEXT, *TOKENS)),
        ("records.parquet", ("spans", WORD_SPANS, GAPS, *TOKENS)),
        ("base/tokenizer.json", (IDS, GAPS, *TOKENS)),
    ],
)
def test_a_changed_input_runs_again_what_depends_on_it(
    copy: Path, hospital: Path, tmp_path: Path, file: str, made: tuple[str, ...]
) -> None:
    other = Path(shutil.copytree(hospital, tmp_path / "hospital"))
    assert run(values_of(other, copy)).made == []  # the same contents in another place
    if file.startswith("base"):
        shutil.rmtree(other / "base")
        write_tokenizer(other / "base", ["the", "was", "patient"])
    else:
        (tmp_path / "another").mkdir()
        shutil.copy(make_hospital(tmp_path / "another", 80, seed=5) / file, other / file)
    assert tuple(run(values_of(other, copy)).made) == made


def test_a_lost_file_is_made_again_and_what_depends_on_it_stays(copy: Path, hospital: Path) -> None:
    before = content(copy)
    (copy / "index" / "words.parquet").unlink()
    assert run(values_of(hospital, copy)).made == ["index"]
    assert content(copy) == before


@pytest.mark.parametrize("name", [*ENGINE, *TEXT, *TOKENS])
def test_a_file_changed_at_the_same_size_is_made_again_and_misleads_nobody(
    copy: Path, hospital: Path, name: str
) -> None:
    before = content(copy)
    file = next(path for path in sorted((copy / name).iterdir()) if path.suffix in (".parquet", ".bin", ".bits"))
    harmed = bytearray(file.read_bytes())
    harmed[len(harmed) // 2] ^= 1
    file.write_bytes(harmed)
    assert run(values_of(hospital, copy)).made == [name]
    assert content(copy) == before


#: Content of the artefacts of the engine. After a change here old ones must not count: raise their number in FORMATS.
HELD = {
    "split": (1, ["individuals.parquet: individual_id, individual, unit, split, num_documents"]),
    "spans": (4, ["spans.parquet: document, doc_id, start, end, label, detector, score"]),
    "index": (3, ["ngrams_2.parquet: left, right, support", "words.parquet: word, support, occurrences"]),
    "words": (2, ["word_ends.bin", "words.bin"]),
    "word-spans": (2, ["labels.json", "span_counts.bin", "span_ends.bin", "span_firsts.bin", "span_labels.bin"]),
    "token-ids": (
        1,
        [
            "begins.bits",
            "documents.parquet: doc_id, end",
            "exceptions.parquet: token, skipped, more",
            *("ids.bin", "outside.bits", "tokenizer.json"),
        ],
    ),
    "token-gaps": (1, ["gaps.bits"]),
    "tokens": (
        4,
        [
            *("direct.bits", "indirect.bits"),
            "ngram_starts.parquet: token, lengths",
            "view.parquet: document, individual",
        ],
    ),
}


def test_what_an_artefact_holds_changes_with_the_number_of_its_format_only(finished: Path) -> None:
    found: dict[str, tuple[int, list[str]]] = {}
    for name in ("split", "spans", "index", *TEXT, "tokens/toy/audit"):
        manifest = read_manifest(finished / name)
        columns = {
            ".parquet": lambda path: pq.read_schema(path).names,
            ".arrow": lambda path: pa.ipc.open_stream(path).schema.names,
            **dict.fromkeys((".json", ".bin", ".bits"), lambda path: []),
        }
        files = [finished / name / file for file in sorted(manifest.files)]
        lines = [": ".join(filter(None, (path.name, ", ".join(columns[path.suffix](path))))) for path in files]
        found[manifest.kind] = (FORMATS[manifest.kind], lines)
        assert manifest.kind_format == FORMATS[manifest.kind]
    assert found == HELD


def test_every_section_has_its_own_measures(copy: Path, hospital: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sections of one objective have the same recipes and epochs."""
    values = values_of(hospital, copy)
    values["model"].append({**values["model"][0], "name": "other"})
    run(values)
    asked = []

    def measured(_: Run, measurement: Measurement) -> ModelEvidence:
        asked.append(measurement.name)
        about = {"recipe": measurement.recipe, "objective": measurement.model.objective, "epoch": measurement.epoch}
        return filled(ModelEvidence, about)

    monkeypatch.setattr("reticent.job.stages.audit._read_measurement", measured)
    entries = gather_evidence(Run(parse_job(values))).models
    assert len(entries) == 6
    assert asked == [
        f"measures/{name}/{measurement}"
        for name in ("toy", "other")
        for measurement in ("base/epoch-0000", "ppmlm/epoch-0004", "ppmlm/epoch-0008")
    ]


@pytest.fixture
def reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder with an audit, and a report that is quickly written."""
    with write_artifact(tmp_path / "run" / "audit", kind="audit", config={}, inputs={}) as writer:
        (writer.path / "audit.json").write_text(json.dumps(to_json(filled(AuditEvidence, {}))))

    def write_quickly(folder: Path, audit: AuditEvidence, **_: object) -> None:
        (folder / "report.html").write_text(str(audit))

    monkeypatch.setattr("reticent.job.stages.audit.write_report", write_quickly)
    monkeypatch.setattr("reticent.ext.dossier.stage.dossier_steps", lambda run: iter(()))
    assert report_again(tmp_path / "run") == ["report"]
    assert report_again(tmp_path / "run") == []
    return tmp_path / "run"


def report_again(folder: Path) -> list[str]:
    recorder = Recorder()
    write_again(Run(parse_job({**VALID, "out": str(folder)}), recorder))
    return recorder.made


def test_a_page_of_another_version_of_the_code_is_written_again(
    reported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reticent, "__version__", "99.0")
    assert report_again(reported) == ["report"]
    assert report_again(reported) == []
    monkeypatch.setattr("reticent.job.stages.audit.page_digest", lambda: "of another template")
    assert report_again(reported) == ["report"]


def test_a_report_is_made_of_an_audit_of_this_version_that_is_as_it_was_written(
    reported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = reported / "audit" / "audit.json"
    written = audit.read_text()
    audit.write_text(written.replace(": ", " :", 1))
    with pytest.raises(ArtifactError, match=r"audit\.json: changed since it was written"):
        report_again(reported)
    audit.write_text(written)
    assert report_again(reported) == []
    monkeypatch.setitem(FORMATS, "audit", 99)
    monkeypatch.setattr("reticent.job.stages.audit.page_digest", lambda: "of another template")
    with pytest.raises(ArtifactError, match=r"another version of Reticent \(format 2 of audit, expected 99\)"):
        report_again(reported)


@pytest.mark.parametrize("failure", [KeyboardInterrupt, CorpusError])
def test_an_interrupted_job_goes_on_where_it_stopped_and_gives_the_same_bytes(
    finished: Path, hospital: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
) -> None:

    values, write_index, calls = values_of(hospital, tmp_path / "run"), index_stage.write_index, []

    def interrupted(built: Any, folder: Path) -> None:
        calls.append(folder)
        write_index(built, folder)
        if len(calls) == 2:  # the second index is written, its manifest is not
            raise failure

    with monkeypatch.context() as patch:
        patch.setattr(index_stage, "write_index", interrupted)
        with pytest.raises(failure):
            run(values)
    assert sorted(path.name for path in (tmp_path / "run").glob("[!.]*")) == ["index", "job.json", "spans", "split"]
    recorder = run(values)
    assert recorder.up_to_date == ["split", "spans", "index"]
    assert recorder.made == ["index-joint", *TEXT, *TOKENS]
    assert content(tmp_path / "run") == content(finished)


def test_a_job_stops_after_the_stage_asked_for(hospital: Path, tmp_path: Path) -> None:
    values = values_of(hospital, tmp_path / "run")
    assert STAGES[:5] == ("corpus", "dedup", "split", "detect", "index")
    assert run(values, "split").made == ["split"]
    assert run(values, "detect").made == ["spans"]
    assert run(values, "index").made == ["index", "index-joint"]


# ---------------------------------------------------------------------------------------------- the job a folder keeps


@pytest.mark.parametrize(
    "changes",
    [
        {"corpus__source": "BAD"},
        {"corpus__source": "nowhere.csv"},
        {"detect__records": "nowhere.parquet"},
        {"model__base": "nowhere"},
        {"audit__attacks": ["lost"]},
        {"model": [*({"name": name, "base": "BASE"} for name in "ab"), {"name": "c", "base": "nowhere"}]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_run_that_fails_at_its_start_leaves_the_settings_of_the_last_one(
    copy: Path, hospital: Path, tmp_path: Path, changes: Values
) -> None:
    (tmp_path / "bad.csv").write_text("doc_id,individual_id\n1,a\n")
    before = (copy / "job.json").read_bytes()
    values = changed(values_of(hospital, copy), protect__k=4, **{k: v for k, v in changes.items() if k != "model"})
    if "model" in changes:
        values["model"] = [{**model, "objective": "mlm", "recipes": ["ppmlm"]} for model in changes["model"]]
    text = json.dumps(values).replace("BAD", str(tmp_path / "bad.csv")).replace("BASE", str(hospital / "base"))
    with pytest.raises((ArtifactError, CorpusError, PolicyError)):
        run(json.loads(text), "report" if "audit__attacks" in changes else "protect")
    assert (copy / "job.json").read_bytes() == before


def test_settings_are_kept_from_the_first_result_on(
    copy: Path, hospital: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    old, values = load_job(copy / "job.json"), changed(values_of(hospital, copy), index__max_n=3)
    write_index = index_stage.write_index

    def interrupted(built: Any, folder: Path) -> None:
        assert load_job(copy / "job.json") == (old if "joint" not in folder.name else parse_job(values))
        if "joint" in folder.name:
            raise KeyboardInterrupt
        write_index(built, folder)

    monkeypatch.setattr(index_stage, "write_index", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(values)
    assert load_job(copy / "job.json") == parse_job(values)


def test_settings_that_change_no_result_so_far_are_kept_too(copy: Path, hospital: Path) -> None:
    values = changed(values_of(hospital, copy), train__num_epochs=3)
    assert run(values).made == []
    assert load_job(copy / "job.json").train.num_epochs == 3


def test_a_first_run_that_failed_can_be_repeated(hospital: Path, tmp_path: Path) -> None:
    values = values_of(hospital, tmp_path / "run")
    with pytest.raises(CorpusError):
        run(changed(values, corpus__text="nothing"), "index")
    assert [path.name for path in (tmp_path / "run").glob("[!.]*")] == ["job.json"]
    assert tuple(run(values, "index").made) == ENGINE
    assert load_job(tmp_path / "run" / "job.json") == parse_job(values)


def test_a_crash_while_the_settings_are_written_leaves_the_old_ones(
    copy: Path, hospital: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (copy / "job.json").read_bytes()
    values = changed(values_of(hospital, copy), protect__k=4)

    def die(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            run(values)
    assert (copy / "job.json").read_bytes() == before
    run(values)
    assert load_job(copy / "job.json") == parse_job(values)
    assert not (copy / "job.tmp").exists()


# ------------------------------------------------------------------------------------- records of other individuals


def write_records(hospital: Path, path: Path, ids: list[str], name: str = "Xylo") -> Values:
    pq.write_table(pa.table({"individual_id": ids, "first_name": [name] * len(ids)}), path)
    values = values_of(hospital, path.parent / "run")
    return changed(values, detect__records=str(path), detect__detectors=["rules", "records"])


def test_records_of_none_of_the_individuals_are_refused(hospital: Path, tmp_path: Path) -> None:
    values = write_records(hospital, tmp_path / "records.parquet", ["1", "2"])
    message = r"records\.parquet: column individual_id holds none of the 80 individuals .*column individual_id\)$"
    with pytest.raises(CorpusError, match=message):
        run(values, "detect")
    assert not (tmp_path / "run" / "spans").exists()


def test_records_of_unknown_fields_are_told(hospital: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = pq.read_table(hospital / "records.parquet").column("individual_id").to_pylist()
    values = write_records(hospital, tmp_path / "records.parquet", ids)
    table = pq.read_table(tmp_path / "records.parquet")
    pq.write_table(table.append_column("pat_last", pa.array(["Roy"] * len(table))), tmp_path / "records.parquet")
    run(values, "detect")
    assert f"warning: {tmp_path / 'records.parquet'}: pat_last: no field that is known" in capsys.readouterr().err


@pytest.mark.parametrize(("num_known", "num_without"), [(1, 79), (79, 1), (80, 0)])
def test_individuals_without_a_record_are_counted_and_told(
    hospital: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], num_known: int, num_without: int
) -> None:
    ids = pq.read_table(hospital / "records.parquet").column("individual_id").to_pylist()
    run(write_records(hospital, tmp_path / "records.parquet", [*ids[:num_known], ids[0]]), "detect")
    counts = read_manifest(tmp_path / "run" / "spans").counts
    assert counts.get("without_record", 0) == num_without
    said = f"warning: {num_without} of 80 individuals have no record in {tmp_path / 'records.parquet'}; their names"
    assert capsys.readouterr().err.startswith(said) == bool(num_without)


@pytest.mark.parametrize(("text", "is_warned"), [("患者は発熱 fever", True), ("fever " * 600 + "患", False)])
def test_text_of_scripts_without_spaces_is_counted_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, is_warned: bool
) -> None:
    names = [f"p{number}" for number in range(20)]
    rows = {"doc_id": names, "individual_id": names, "text": [text] * 20}
    pq.write_table(pa.table(rows), tmp_path / "notes.parquet")
    corpus = {"source": str(tmp_path / "notes.parquet")}
    run({"out": str(tmp_path / "run"), "corpus": corpus}, "index")
    counts = read_manifest(tmp_path / "run" / "index").counts
    assert counts["unspaced"] > 0
    assert ("single letters of scripts without spaces" in capsys.readouterr().err) == is_warned


# ------------------------------------------------------------------------------------------------------ refused places


@pytest.mark.parametrize(
    ("changes", "until", "message"),
    [
        ({}, "everything", "unknown stage 'everything'; one of corpus, dedup, split, detect"),
        ({"model": []}, "protect", "the job names no model"),
        ({"model": []}, "report", "the job names no model"),
        ({"audit__attacks": ["loss", "lost"]}, "report", "unknown attack 'lost'; expected some of loss"),
        ({"model__base": "nowhere"}, "protect", "nowhere: no such folder, and no such model in the local cache"),
        ({"train__device": "tpu"}, "protect", "device 'tpu': not on this machine"),
        ({"train__device": "cuda:99"}, "train", "device 'cuda:99': not on this machine"),
    ],
)
def test_what_cannot_end_well_does_not_begin(
    hospital: Path, tmp_path: Path, changes: Values, until: str, message: str
) -> None:
    values = values_of(hospital, tmp_path / "run")
    values = {**values, **changes} if "model" in changes else changed(values, **changes)
    with pytest.raises((ArtifactError, PolicyError), match=message):
        run(values, until)
    assert not (tmp_path / "run").exists()


def test_a_job_without_models_has_an_index(hospital: Path, tmp_path: Path) -> None:
    assert tuple(run({**values_of(hospital, tmp_path / "run"), "model": []}, "index").made) == ENGINE


def test_a_run_folder_that_is_somebody_elses_is_refused(hospital: Path, tmp_path: Path) -> None:
    values = values_of(hospital, tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("two years of work")
    with pytest.raises(ArtifactError, match="run: not empty and not a run folder; choose another --out"):
        run(values)
    assert content(tmp_path / "run") == {"thesis.txt": b"two years of work"}
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(ArtifactError, match=r"not a folder|Not a directory"):
            run({**values, "out": str(out)})
    assert (tmp_path / "file").read_text() == "mine"


def test_a_foreign_folder_in_the_place_of_a_stage_is_refused(copy: Path, hospital: Path) -> None:
    shutil.rmtree(copy / "spans")
    (copy / "spans").mkdir()
    (copy / "spans" / "thesis.txt").write_text("two years of work")
    with pytest.raises(ArtifactError, match="spans: exists and is not an artefact of ours"):
        run(values_of(hospital, copy))
    assert content(copy / "spans") == {"thesis.txt": b"two years of work"}


def test_an_empty_folder_and_one_that_was_left_before_the_first_job_file_are_taken(
    hospital: Path, tmp_path: Path
) -> None:
    for name in ("empty", "killed"):
        (tmp_path / name).mkdir()
    (tmp_path / "killed" / ".job.json.lock").touch()
    (tmp_path / "killed" / ".job.json.tmp-0123456789ab").write_text("{")
    for name in ("empty", "killed"):
        assert run(values_of(hospital, tmp_path / name), "split").made == ["split"]
        assert sorted(path.name for path in (tmp_path / name).glob("[!.]*")) == ["job.json", "split"]
        assert {path.name for path in (tmp_path / name).glob(".*")} == {
            ".job.json.lock",
            ".split.lock",
            ".timings.jsonl",
        }
