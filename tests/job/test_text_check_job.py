"""Tokens of a run are held to their text: a sample where they are made, all where that is asked for."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fixtures.command import command
from fixtures.jobs import changed, make_hospital, run, values_of
from fixtures.models import toy_model, toy_tokenizer

from reticent import _rust
from reticent.core.artifact import locked, read_manifest
from reticent.core.errors import ArtifactError, CorpusError
from reticent.engine import sampled_text
from reticent.engine.corpus import Corpus
from reticent.engine.oracle import retokenizer
from reticent.engine.protect import Policy
from reticent.engine.sampled_text import SampledText, open_sampled_text
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.engine.store import TokenStore, open_tokens
from reticent.engine.verify import TextCheck
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.status import job_status
from reticent.job.text_checks import FILE, check_text, text_check_of_flags
from reticent.job.training_tokens import verify_training

pytestmark = pytest.mark.usefixtures("one_thread", "without_figures")

TRAIN, AUDIT = "tokens/toy/train", "tokens/toy/audit"
SIDES = (MEMBERS, HELDOUT)


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_hospital(tmp_path_factory.mktemp("hospital"), 60)


@pytest.fixture(scope="module")
def finished(hospital: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    values = changed(values_of(hospital, folder), model__recipes=["ppmlm", "mlma"])
    run(values)
    return folder


@pytest.fixture
def mine(finished: Path, hospital: Path, tmp_path: Path) -> Run:
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    return Run(parse_job(changed(values_of(hospital, folder), model__recipes=["ppmlm", "mlma"])))


def without_gaps(*arguments: Any, **options: Any) -> Any:
    """What a span holds between its words is not protected."""
    begins, outside, _, *others = arguments
    return planes(begins, outside, None, *others, **options)


planes = _rust.planes


def test_protect_holds_a_sample_to_its_text_and_counts_it(mine: Run) -> None:
    for name in (TRAIN, AUDIT):
        check = TextCheck.from_dict(read_manifest(mine.folder / name).counts["text_check"])
        assert check.holds
        assert not check.whole
        assert check.documents > 50
        assert check.direct_characters > 1000
        assert check.indirect_characters > 100
    assert "text_check" not in read_manifest(mine.folder / "tokens/toy/train-pseudonymised").counts
    found = {row["name"]: row.get("text_check") for row in job_status(mine)["artifacts"]}
    assert found[TRAIN]["violations"] == 0
    assert not found[TRAIN]["whole"]
    assert found["tokens/toy/train-pseudonymised"] is found["index"] is None


def test_tokens_with_a_violation_do_not_become_an_artefact(
    hospital: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_rust, "planes", without_gaps)
    values = values_of(hospital, tmp_path / "run")
    with pytest.raises(ArtifactError, match=r"tokens: of [\d,]+ documents .* [1-9][\d,]* tokens of direct and 0 of"):
        run(values)
    assert not (tmp_path / "run" / TRAIN).exists()
    monkeypatch.undo()
    assert TRAIN in run(values).made


def test_all_tokens_are_held_to_their_text_and_what_was_rewritten_is_said_not_to_be(mine: Run) -> None:
    found = check_text(mine)
    assert list(found) == [AUDIT, TRAIN, "tokens/toy/train-pseudonymised"]
    assert found.pop("tokens/toy/train-pseudonymised") is None
    for name, check in found.items():
        assert check is not None
        store = open_tokens(mine.folder / name)
        assert check.holds
        assert check.whole
        assert check.unexplained == 0
        assert (check.documents, check.tokens) == (store.num_documents, store.num_tokens)
        assert check.fingerprint == store.flags_fingerprint()
    states = {row["name"]: row for row in job_status(mine)["artifacts"]}
    assert states[TRAIN]["text_check"]["whole"]
    made = (mine.folder / "text-check" / "toy" / "train" / FILE).stat().st_mtime_ns
    assert check_text(Run(mine.job)) == {**found, "tokens/toy/train-pseudonymised": None}
    assert (mine.folder / "text-check" / "toy" / "train" / FILE).stat().st_mtime_ns == made  # not done twice


def test_a_violation_that_the_sample_does_not_see_fails_the_command(
    hospital: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def blind(self: SampledText, *_: Any) -> TextCheck:
        return TextCheck(**{**dict.fromkeys(TextCheck.__dataclass_fields__, 0), "found_in": (), "whole": False})

    monkeypatch.setattr(_rust, "planes", without_gaps)
    monkeypatch.setattr(SampledText, "check", blind)
    folder = tmp_path / "run"
    run(values_of(hospital, folder))
    assert command("protect", folder, "--quiet") == 0
    capfd.readouterr()
    assert command("protect", folder, "--verify", "--quiet") == 1
    assert "tokens of direct and 0 of indirect identifiers could be targets" in capfd.readouterr().err
    assert not list((folder / "text-check").rglob("check.json"))


def test_protect_verify_prints_what_it_found(mine: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("protect", mine.folder, "--verify", "--quiet") == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"{TRAIN}: ") and line.endswith("0 violations, 0 mismatches") for line in lines)
    assert any(line.startswith("tokens/toy/train-pseudonymised: not checked") for line in lines)
    command("protect", mine.folder, "--verify", "--quiet", "--json")
    found = json.loads(capsys.readouterr().out)
    assert found[TRAIN]["direct_violations"] == found[TRAIN]["indirect_violations"] == 0
    command("status", mine.folder)
    assert f"{TRAIN}: all " in capsys.readouterr().out


def test_flags_say_how_far_they_were_checked(mine: Run) -> None:
    store = open_tokens(mine.folder / TRAIN)
    said, holds = text_check_of_flags(mine, TRAIN, store)
    assert said.endswith(f"of {store.num_documents:,} documents: 0 violations")
    assert holds
    check_text(mine)
    said, holds = text_check_of_flags(mine, TRAIN, store)
    number = f"{store.num_documents:,}"
    assert said == f"flags checked against the text of {number} of {number} documents: 0 violations"
    flags = store.flags.copy()
    flags[0] ^= 1
    said, holds = text_check_of_flags(mine, TRAIN, store.with_columns(flags=flags))
    assert "not those that were checked" in said
    assert not holds
    said, holds = text_check_of_flags(mine, "tokens/toy/train-pseudonymised", store)
    assert "rewritten" in said
    assert holds


def test_a_ledger_says_whether_its_flags_were_checked_and_fails_on_others(hospital: Path, tmp_path: Path) -> None:
    from reticent.trainer.export import write_model
    from reticent.trainer.models import load_tokenizer
    from reticent.trainer.recipes import get_recipe

    base, folder = tmp_path / "bert", tmp_path / "run"
    write_model(toy_model("bert"), load_tokenizer(toy_tokenizer("bert")), base, recipe=get_recipe("mlm"), epoch=0)
    values = changed(values_of(hospital, folder), model__base=str(base), model__recipes=["ppmlm", "mlm"])
    values["train"] = {"num_epochs": 1, "checkpoint_epochs": [1], "window_length": 32, "batch_size": 8}
    mine = Run(parse_job(values))
    execute(mine, "train")
    ledger = folder / "models" / "toy" / "ppmlm" / "ledger.json"
    check_text(mine)
    verdict = verify_training(mine, "toy", "ppmlm", ledger)
    assert verdict.holds
    assert verdict.flags.startswith("flags checked against the text of ")
    plain = verify_training(mine, "toy", "mlm", folder / "models" / "toy" / "mlm" / "ledger.json")
    assert plain.flags == "the recipe protects nothing by flags"
    shutil.rmtree(folder / "text-check" / "toy" / "train")
    shutil.copytree(folder / "text-check" / "toy" / "audit", folder / "text-check" / "toy" / "train")
    verdict = verify_training(mine, "toy", "ppmlm", ledger)
    assert any("not those that were checked" in line for line in verdict.mismatches)


def kept(folder: Path) -> list[Path]:
    return sorted((folder / "text-samples").rglob("sample.arrow"))


def checks(folder: Path) -> list[dict[str, Any]]:
    return [read_manifest(folder / name).counts["text_check"] for name in (TRAIN, AUDIT)]


def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on no text and no tokenizer is read."""

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("read again")

    monkeypatch.setattr(Corpus, "for_each_batch", refused)
    monkeypatch.setattr(Corpus, "batches", refused)
    monkeypatch.setattr(retokenizer, "Retokenizer", refused)


def test_another_protection_is_held_to_the_sample_as_it_was_kept(
    hospital: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = values_of(hospital, tmp_path / "run")
    run(values)
    files = {path: path.stat().st_mtime_ns for path in kept(tmp_path / "run")}
    assert [path.parent.name for path in files] == ["index", "index-joint"]
    for protection in ({"k": 5}, {"k": 40}, {"k": 2, "n": 2, "policy": "cover"}, {"k": 4, "n": 1}):
        another = {f"protect__{name}": value for name, value in protection.items()}
        with monkeypatch.context() as patch:
            unread(patch)
            run(changed(values, **another))
        fresh = tmp_path / "-".join(map(str, protection.values()))
        run(changed(values, out=str(fresh), **another))
        assert checks(tmp_path / "run") == checks(fresh)
    assert {path: path.stat().st_mtime_ns for path in kept(tmp_path / "run")} == files


def test_a_violation_is_found_by_a_kept_sample(hospital: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = values_of(hospital, tmp_path / "run")
    run(values)
    found = []
    check = SampledText.check

    def recorded(self: SampledText, store: TokenStore, *arguments: Any) -> TextCheck:
        checked = check(self, store, *arguments)
        if "train" in str(store.path):  # the other view is made at the same time
            found.append(checked)
        return checked

    monkeypatch.setattr(SampledText, "check", recorded)
    monkeypatch.setattr(_rust, "planes", without_gaps)
    with pytest.raises(ArtifactError, match=r"tokens: of [\d,]+ documents .* [1-9][\d,]* tokens of direct and 0 of"):
        run(changed(values, protect__k=5))
    assert len(found) == 2  # of the kept one, and then of the text
    assert found[0] == found[1]
    assert found[0].direct_violations > 0


def test_a_sample_is_that_of_its_documents_spans_index_and_tokenizer(mine: Run) -> None:
    for path, index, splits in zip(kept(mine.folder), ("index", "index-joint"), (SIDES[:1], SIDES), strict=True):
        manifest = read_manifest(path.parent)
        made_of = {"split": "split", "spans": "spans", "index": index, "ids": "tokens/toy/ids"}
        expected = {name: mine.fingerprints.of(place) for name, place in made_of.items()}
        assert manifest.inputs == {**mine.corpus_input(), **expected}
        versions = {name: version(name) for name in ("reticent", "pyarrow", "regex", "tokenizers")}
        settings = {"n": 2, "seed": mine.job.seed, "splits": [*splits], "size": [200, 200_000], "versions": versions}
        assert manifest.config == settings


@pytest.mark.parametrize("name", ["corpus", "split", "spans", "index", "ids", "seed", "splits", "size", "versions"])
def test_a_sample_of_anything_else_is_read_from_the_text_again(hospital: Path, mine: Run, name: str) -> None:
    path = kept(mine.folder)[0].parent / "manifest.json"
    before = json.loads(path.read_text())
    other = json.loads(path.read_text())
    part = "inputs" if name in other["inputs"] else "config"
    other[part][name] = "0" * 64
    path.write_text(json.dumps(other))
    changes = {"model__recipes": ["ppmlm", "mlma"], "protect__k": 5}
    run(changed(values_of(hospital, mine.folder), **changes))
    after = json.loads(path.read_text())
    assert (after["inputs"], after["config"]) == (before["inputs"], before["config"])


def test_a_longer_ngram_has_the_sample_read_again(hospital: Path, tmp_path: Path) -> None:
    values = changed(values_of(hospital, tmp_path / "run"), protect__n=1)
    run(values)
    short = open_sampled_text(kept(tmp_path / "run")[0].parent)
    run(changed(values, protect__n=2))
    run(changed(values, out=str(tmp_path / "fresh"), protect__n=2))
    assert checks(tmp_path / "run") == checks(tmp_path / "fresh")
    with pytest.raises(ArtifactError, match="n-grams of up to 1 words, not 2"):
        short.check(open_tokens(tmp_path / "run" / TRAIN), Policy(n=2))


def test_tokens_that_a_cached_sample_refuses_are_held_to_the_text(
    hospital: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = values_of(hospital, tmp_path / "run")
    run(values)
    right = open_sampled_text(kept(tmp_path / "run")[0].parent)
    wrong = replace(right, read=right.read._replace(tokens=right.read.tokens._replace(ids=right.read.tokens.ids + 1)))
    monkeypatch.setattr(sampled_text, "open_sampled_text", lambda folder: wrong)
    run(changed(values, protect__k=5))
    assert all(check["mismatches"] == 0 for check in checks(tmp_path / "run"))


def test_no_sample_of_text_that_changed_meanwhile_is_kept(
    hospital: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = Path(shutil.copytree(hospital / "documents", tmp_path / "documents"))
    values = changed(values_of(hospital, tmp_path / "run"), corpus__source=str(documents))
    run(values)
    shutil.rmtree(tmp_path / "run/text-samples")
    write = SampledText.write

    def meanwhile(self: SampledText, folder: Path) -> None:
        write(self, folder)
        part = sorted(documents.rglob("*.parquet"))[0]
        pq.write_table(pq.read_table(part).slice(1), part)

    monkeypatch.setattr(SampledText, "write", meanwhile)
    with pytest.raises(CorpusError, match="changed"):
        run(changed(values, protect__k=5))
    assert kept(tmp_path / "run") == []


def test_no_sample_holds_documents_that_were_withdrawn(hospital: Path, tmp_path: Path) -> None:
    values = values_of(hospital, tmp_path / "run")
    run(values)

    def people() -> set[str]:
        table = pq.read_table(hospital / "documents")
        owners = dict(zip(*(table.column(name).to_pylist() for name in ("doc_id", "individual_id")), strict=True))
        samples = [open_sampled_text(path.parent) for path in kept(tmp_path / "run")]
        return {owners[document] for sample in samples for document in sample.read.doc_ids.to_pylist()}

    person = min(people())
    withdrawn = tmp_path / "withdrawn.txt"
    withdrawn.write_text(person + "\n")
    run(changed(values, corpus={**values["corpus"], "withdrawn": [str(withdrawn)]}))
    assert person not in people()


def test_a_view_does_without_a_sample_that_another_process_writes(hospital: Path, tmp_path: Path) -> None:
    values = values_of(hospital, tmp_path / "run")
    folder = tmp_path / "run/text-samples/toy"
    run(values, "index")
    with locked(folder / "index"), locked(folder / "index-joint"):
        run(values)
    assert kept(tmp_path / "run") == []
    assert all(check["documents"] > 50 for check in checks(tmp_path / "run"))


@pytest.mark.parametrize("damage", ["bytes", "manifest", "all"])
def test_a_sample_that_cannot_be_read_is_read_from_the_text_again(hospital: Path, tmp_path: Path, damage: str) -> None:
    values = values_of(hospital, tmp_path / "run")
    run(values)
    whole = [path.read_bytes() for path in kept(tmp_path / "run")]
    for path in kept(tmp_path / "run"):
        if damage == "bytes":
            path.write_bytes(path.read_bytes()[:-9])
        elif damage == "manifest":
            (path.parent / "manifest.json").write_text("{}")
        else:
            shutil.rmtree(path.parent)
    run(changed(values, protect__k=5))
    assert [path.read_bytes() for path in kept(tmp_path / "run")] == whole


def test_samples_of_other_documents_or_other_draws_are_not_taken(hospital: Path, tmp_path: Path) -> None:
    values = values_of(hospital, tmp_path / "run")
    run(values)
    before = kept(tmp_path / "run")[0].read_bytes()
    run(changed(values, split__heldout=0.2))
    assert kept(tmp_path / "run")[0].read_bytes() != before
    run(changed(values, protect__k=2, threshold__epsilon=2.0, protect__n=1))
    noisy = kept(tmp_path / "run")[0].read_bytes()
    run(changed(values, protect__k=3, threshold__epsilon=2.0, protect__n=1))
    assert kept(tmp_path / "run")[0].read_bytes() != noisy  # supports are drawn for each k
