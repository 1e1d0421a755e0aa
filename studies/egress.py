"""Is a model that nobody here trained judged rightly, from its files and a list of who it was trained on?

SmolLM2 is fine-tuned with transformers and peft alone (LoRA) on the first words of half of some reports of MTSamples,
where a report is an individual. Reports beyond these were never trained on: lists of them are wrong by construction,
so whatever is found over them is a false alarm. Each model scores each document once; every list is judged from these
scores by the code of a run.

* ``commands``: MiniLM and SmolLM2 as their packages have them, by ``reticent audit-model``, to a signed dossier.
* ``relabelled``: reports that nobody trained on, dealt to two sides again and again; and lists of them whose sides
  differ: those of some specialties, the longer ones, those whose first letters come first.
* ``outside``: the reports of which half were trained on, by the true list and by a shifted one, beside the adapter and
  a copy of eight bits.
* ``served``: the same model through a server on this machine.
* ``told``: a tiny model that read notes of made-up people, each of which states a diagnosis that goes with nothing
  else, is asked for these by what is known of a person; beside it one that read as many notes of others.

    python -m studies.egress [--size toy|cpu] [--work FOLDER] [--part NAME]
    python -m studies.egress --size billion --part commands        # time and memory at a billion weights: a GPU

Size cpu keeps what it made under ``--work``, and a second start goes on from there. The models are in the packages of
the dependency group ``models``; size toy makes its own.
"""

from __future__ import annotations

import argparse
import copy
import http.server
import json
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.attacks import first_words
from benchmarks.record_io import DATA, STUDIES, estimate_text, markdown, write_record
from reticent.audit.evidence.json_form import to_json
from reticent.audit.judgement.rows import BEYOND
from reticent.audit.judgement.verdict import judge_risks
from reticent.audit.leakage.words import SurfaceTable
from reticent.audit.membership.names import RUNGS
from reticent.audit.membership.validity import DISTINGUISHABLE, OTHER_WAY
from reticent.core.progress import Progress

SEED = 0
PARTS = ("commands", "outside", "served", "relabelled", "told")
ATTACKS = ("loss", "reference", "min_k", "zlib")
STATEMENT = "A list that this study made"
#: Estimates of a cell of the clinical ladder.
CELL = ("told", "placebo", "cue_only")
#: Less than the command asks by itself, so that a model of 135 million weights takes minutes.
QUICK = [
    word
    for each in (
        "audit.inversion.per_individual=1", "audit.inversion.num_decoys=4",
        "audit.generation.num_prompts=4", "extraction.num_passages=4",
    )
    for word in ("--set", each)
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of it all is done: reports of which half are trained on, and that nobody trains on; their words.

    ``layers`` are those of a model of random weights, 2,048 numbers wide, that the command judges in place of the
    packages' models: time and memory do not depend on the weights, and 20 layers have a billion of them.
    """

    own: int
    untouched: int
    words: int
    epochs: int
    small_epochs: int
    length: int
    batch: int = 6
    num_relabelled: int
    num_bootstrap: int = 100
    commanded: int = 120
    people: int
    taught: int = 40
    layers: int = 0


SIZES = {
    "toy": Size(
        own=40, untouched=40, words=16, epochs=8, small_epochs=8, length=128, num_relabelled=2, num_bootstrap=100,
        commanded=20, people=24, taught=1,
    ),
    "cpu": Size(own=120, untouched=600, words=20, epochs=4, small_epochs=3, length=96, num_relabelled=1000, people=480),
    "billion": Size(
        own=2, untouched=100, words=300, epochs=1, small_epochs=1, length=1024, num_relabelled=1, commanded=100,
        people=0, layers=20,
    ),
}  # fmt: skip


def read_reports(size: Size) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the reports of which half are trained on, and those that nobody trains on; no text is there twice."""
    lines = (DATA / "mtsamples" / "mtsamples.jsonl").read_text(encoding="utf-8").splitlines()
    reports = [json.loads(line) for line in lines]
    texts = first_words([report["text"] for report in reports], size.words)
    rows = {
        text: {"doc_id": f"report-{number:04d}", "individual_id": f"report-{number:04d}", "text": text,
               "specialty": report["specialties"][0]}
        for number, (text, report) in enumerate(zip(texts, reports, strict=True))
    }  # fmt: skip
    drawn = random.Random(SEED).sample(list(rows.values()), size.own + size.untouched)
    return drawn[: size.own], drawn[size.own :]


def fine_tune(base: Path, texts: list[str], size: Size, epochs: int, rate: float, folder: Path) -> None:
    """Train an adapter as anybody would, with transformers, peft and torch alone; write the adapter, and its merge with
    the base, under ``folder``."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    cut = PreTrainedTokenizerFast.from_pretrained(base)
    net: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    cut.save_pretrained(folder / "outside")
    torch.manual_seed(SEED)
    modules = ["c_attn"] if net.config.model_type == "gpt2" else "all-linear"
    net = get_peft_model(net, LoraConfig(r=16, lora_alpha=32, target_modules=modules, task_type="CAUSAL_LM"))
    teach(net, [cut(text)["input_ids"][: size.length] for text in texts], epochs, rate, size.batch)
    net.eval().save_pretrained(folder / "adapter")
    net.merge_and_unload().save_pretrained(folder / "outside")


def teach(net: Any, texts: list[list[int]], epochs: int, rate: float, batch: int) -> None:
    """Train what of a causal model can be trained on texts as ids of tokens, with torch alone."""
    import torch

    rows = [torch.tensor(text) for text in texts]
    order, steps = random.Random(SEED), torch.optim.AdamW(net.parameters(), lr=rate)
    losses: list[float] = []
    net.train()
    for _ in range(epochs):
        order.shuffle(rows)
        losses.append(0.0)
        for start in range(0, len(rows), batch):
            own = rows[start : start + batch]
            ids = torch.nn.utils.rnn.pad_sequence(own, batch_first=True)
            labels = torch.nn.utils.rnn.pad_sequence(own, batch_first=True, padding_value=-100)
            seen = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in own], batch_first=True)
            loss = net(input_ids=ids, attention_mask=seen, labels=labels).loss
            steps.zero_grad()
            loss.backward()
            steps.step()
            losses[-1] += float(loss.detach()) * len(own) / len(rows)
        print(f"epoch {len(losses)}: loss {losses[-1]:.3f}", flush=True)


class ScoredOnce:
    """Within it each model scores each list of documents once: a list of members changes no score.

    Two texts count as the same list where their tokens are.
    """

    def __init__(self) -> None:
        from reticent.audit.evaluate import Auditor

        self._auditor: Any = Auditor
        self._score, self.kept = Auditor._score, dict[Any, Any]()

    def __enter__(self) -> ScoredOnce:
        original, kept = self._score, self.kept

        def score(auditor: Any, entry: Any, store: Any, *args: Any, **more: Any) -> Any:
            key = (entry.path, sha256(store.input_ids.tobytes()).hexdigest(), *args[1:], *sorted(more.items()))
            if key not in kept:
                kept[key] = original(auditor, entry, store, *args, **more)
            auditor._num_drawn[entry.path] = 0
            return kept[key]

        self._auditor._score = score
        return self

    def __exit__(self, *_: object) -> None:
        self._auditor._score = self._score


def values_of(work: Path, name: str, rows: list[dict[str, Any]], members: list[str], size: Size, **subject: Any) -> Any:
    """Return the job that judges the model ``work/outside`` from reports and a list; writes both."""
    pq.write_table(pa.Table.from_pylist(rows), work / f"{name}.parquet")
    (work / f"{name}.txt").write_text("\n".join(sorted(members)))
    about = {"model": str(work / "outside"), "base": str(work / "base"), "objective": "clm", "statement": STATEMENT}
    return {
        "out": str(work / f"run-{name}"),
        "corpus": {"source": str(work / f"{name}.parquet")},
        "detect": {"detectors": ["rules"]},
        "subject": {**about, "members": str(work / f"{name}.txt"), **subject},
        "train": {"window_length": size.length, "device": "cpu"},
        "audit": {"num_bootstrap": size.num_bootstrap, "attacks": list(ATTACKS)},
    }


def judge(values: dict[str, Any]) -> Any:
    """Run a job to its evidence; returns the run."""
    from reticent.job.config.job import parse_job
    from reticent.job.pipeline import execute
    from reticent.job.run import Run

    run = Run(parse_job(values), Progress(quiet=True))
    execute(run, "audit")
    return run


class _SpelledOnce(SurfaceTable):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._found: dict[str, np.ndarray] = {}

    def surfaces(self, ids: np.ndarray, words: Any) -> np.ndarray:
        key = sha256(ids.tobytes() + words.starts.tobytes()).hexdigest()
        if key not in self._found:  # the last few: of the members of a list the words are others
            self._found = {**dict(list(self._found.items())[-8:]), key: super().surfaces(ids, words)}
        self._found[key] = self._found.pop(key)
        return self._found[key]


class Deals:
    """Other lists of members over the documents of a run, judged from what it scored."""

    def __init__(self, run: Any):
        from reticent.audit.evaluate import ModelEntry
        from reticent.engine.schema import HELDOUT, MEMBERS
        from reticent.engine.text_sizes import read_zlib_bytes
        from reticent.job.artefact import measurements_of
        from reticent.job.auditing import TEXT_SIZES, audited_tokens, read_categories

        self.run, self.store = run, audited_tokens(run, "subject", "audit")
        self.more: dict[str, Any] = {
            "categories": read_categories(run, (MEMBERS, HELDOUT)),
            "zlib_bytes": read_zlib_bytes(run.folder / TEXT_SIZES),
        }
        self.codes = np.unique(self.store.individual)
        self._tables: dict[Any, SurfaceTable] = {}
        measured = [each for each in measurements_of(run.job, run.job.model[0]) if each.recipe in ("base", "given")]
        self.entries = [
            ModelEntry(
                name=each.recipe, recipe=each.recipe, objective="clm", epoch=each.epoch, path=run.checkpoint_of(each),
                is_known=each.training is None,
            )
            for each in measured
        ]  # fmt: skip

    def _table(self, tokenizer: Any, spelling: Any = None) -> SurfaceTable:
        """One table for all lists: the words are the same, and are spelled once."""
        name = getattr(spelling, "__name__", None)
        if name not in self._tables:
            self._tables[name] = _SpelledOnce(tokenizer, spelling)
        return self._tables[name]

    def judged(self, members: np.ndarray) -> tuple[Any, Any]:
        """Return the verdict on the model, and its evidence, if the individuals of these codes were trained on."""
        from reticent.audit.evaluate import Auditor
        from reticent.audit.membership.validity import with_attack_verdicts

        is_member = np.isin(self.store.individual, members)
        own = self.store.select(np.flatnonzero(is_member))
        with patch("reticent.audit.evaluate.SurfaceTable", self._table):
            auditor = Auditor(own, self.store, is_member, self.run.job.audit, split_given=True, **self.more)
        found, base = [], None
        for entry in self.entries:
            measured, said = auditor.evaluate(entry, base)
            base = base or said
            found.append(replace(measured, model="subject"))
        models = with_attack_verdicts(found)
        audit = replace(self.run.evidence, models=models, extraction=None, earlier=None, verdict=None)
        return judge_risks(audit).rows[0], models[-1]

    def codes_of(self, names: Iterable[str]) -> np.ndarray:
        """Return the codes of individuals."""
        table = self.run.individuals.table
        known = dict(zip(table.column("individual_id").to_pylist(), range(table.num_rows), strict=True))
        return np.array([known[name] for name in names])


def relabelled(deals: Deals, num: int, kept: Path) -> dict[str, Any]:
    """Return how often a list is beyond, and an attack distinguishable, where nobody was trained on: the individuals of
    a run are dealt to two sides again and again. A second start goes on from ``kept``."""
    before: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {"num": 0, "counts": {}}
    outcomes: Counter[str] = Counter(before["counts"])
    for number in range(before["num"], num):
        dealt = np.random.default_rng([SEED, number]).permutation(deals.codes)[: len(deals.codes) // 2]
        row, model = deals.judged(dealt)
        outcomes[f"the verdict is {row.outcome}"] += 1
        outcomes.update(f"{each.risk} is beyond" for each in row.results if each.outcome == BEYOND)
        verdicts = {attack.verdict for attack in model.membership.values()}
        outcomes["an attack is distinguishable"] += bool(verdicts & {DISTINGUISHABLE, OTHER_WAY})
        outcomes["the two sides differ"] += model.sides_differ is not None
        if number % 20 == 19:
            kept.write_text(json.dumps({"num": number + 1, "counts": dict(outcomes)}))
    return {"num": num, "individuals": len(deals.codes), "counts": dict(outcomes)}


def halves(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return lists of about half of the individuals, whose sides differ: by name."""
    by_length = sorted(rows, key=lambda row: len(row["text"]))
    counts = Counter(row["specialty"] for row in rows)
    chosen, num = set[str](), 0
    for name, count in counts.most_common():
        if num < len(rows) // 3:
            chosen, num = chosen | {name}, num + count
    return {
        "length": [row["individual_id"] for row in by_length[len(rows) // 2 :]],
        "specialty": [row["individual_id"] for row in rows if row["specialty"] in chosen],
        "first letters": [row["individual_id"] for row in sorted(rows, key=lambda row: row["text"])[: len(rows) // 2]],
    }


def shifted(deals: Deals, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the verdict by each of the lists of `halves`."""
    found = []
    for name, members in halves(rows).items():
        row, model = deals.judged(deals.codes_of(members))
        found.append({"list": name, "members": len(members), "others": len(rows) - len(members), **said(row, model)})
    return found


def said(row: Any, model: Any) -> dict[str, Any]:
    """Return the verdict on a model, each risk, and the areas of its attacks."""
    return {
        "verdict": row.outcome,
        "risks": {each.risk: [each.outcome, each.reason] for each in row.results},
        "attacks": {
            name: {"verdict": one.verdict, "auc": to_json(one.auc)} for name, one in model.membership.items()
        },
    }  # fmt: skip


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the completions of a model on this machine, with log-probabilities; yields the address."""
    import torch

    from reticent.trainer.models import load_model

    net = load_model(folder, "clm")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            ids = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["prompt"]
            with torch.no_grad():
                logits = net(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
            own = [None, *logits[:-1][torch.arange(len(ids) - 1), ids[1:]].tolist(), 0.0]
            tops = [None, *({"x": value} for value in logits[:-1].amax(-1).tolist()), {"x": 0.0}]
            content = json.dumps({"choices": [{"text": "", "logprobs": {"token_logprobs": own, "top_logprobs": tops}}]})
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def device_memory() -> Iterator[list[int]]:
    """Yield a list of one number: the most MiB of the GPU's memory that were in use until now, 0 without a GPU."""
    import torch

    most, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            free, total = torch.cuda.mem_get_info()
            most[0] = max(most[0], (total - free) // 2**20)

    thread = threading.Thread(target=watch)
    if torch.cuda.is_available():
        thread.start()
    try:
        yield most
    finally:
        done.set()
        if thread.is_alive():
            thread.join()


def commands(work: Path, rows: list[dict[str, Any]], models: dict[str, Path]) -> list[dict[str, Any]]:
    """Judge each of these models by the command, as a stranger would, to a dossier that is signed."""
    found, folder = [], work / "commands"
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "notes.parquet")
    names = sorted(row["individual_id"] for row in rows)
    (folder / "members.txt").write_text("\n".join(random.Random(SEED).sample(names, len(names) // 2)))
    if not (folder / "key").exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")], check=True)
    (folder / "signers").write_text("study " + (folder / "key.pub").read_text())
    for name, model in models.items():
        words = ["audit-model", str(model), "--documents", "notes.parquet", "--members", "members.txt", "--out", name]
        words += ["--statement", STATEMENT, "--set", "dossier.key=key", "--set", "audit.num_bootstrap=200", "--quiet"]
        words += QUICK if name != "minilm" else []  # an encoder without a head is asked by its states alone
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command = [sys.executable, "-m", "reticent", *words]
        with device_memory() as most:
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - started
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        checked = [sys.executable, "-m", "reticent", "dossier", "verify", f"{name}/dossier", "--signers", "signers"]
        verified = subprocess.run(checked, cwd=folder, check=False, capture_output=True, text=True)
        report = json.loads((folder / name / "report" / "report.json").read_text())
        (row, *_) = report["risks"]["rows"]
        found.append(
            {
                "model": name,
                "command": " ".join(["reticent", *words[:1], "MODEL", *words[2:]]),
                "reports": len(rows),
                "verdict": row["outcome"],
                "verified": verified.returncode == 0,
                "cpu_seconds": round(used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime, 1),
                "peak_mib": used.ru_maxrss // 1024,
                "seconds": round(seconds, 1),
                "device_mib": most[0],
            }
        )
    return found


def outside(work: Path, rows: list[dict[str, Any]], members: list[str], size: Size) -> dict[str, Any]:
    """Judge the model by the true list, beside its adapter and a copy of eight bits, and by lists that are shifted."""
    copies = {"adapter": str(work / "adapter"), "int8": "int8"}
    run = judge(values_of(work, "outside", rows, members, size, also=copies))
    models = {model.recipe: model for model in run.evidence.models}
    table = {row.recipe: row for row in judge_risks(run.evidence).rows}
    beside = {
        name: {
            "verdict": table[name].outcome,
            "over_source": {attack: to_json(one.over_source) for attack, one in models[name].membership.items()},
        }
        for name in copies
    }
    own = {"true": said(table["given"], models["given"]), "copies": beside}
    return {**own, "shifted": shifted(Deals(run), rows)}


def through_a_server(work: Path, rows: list[dict[str, Any]], members: list[str], size: Size) -> dict[str, Any]:
    """Judge the model behind a server on this machine; every third report."""
    own = rows[::3]
    with served(work / "outside") as url:
        chosen = sorted(set(members) & {row["individual_id"] for row in own})
        run = judge(values_of(work, "served", own, chosen, size, endpoint=url, model="partner"))
    (row,), model = judge_risks(run.evidence).rows, run.evidence.models[-1]
    return {"reports": len(own), **said(row, model)}


def told(work: Path, size: Size) -> dict[str, Any]:
    """Ask a tiny GPT-2 for the diagnoses of members whose notes it read, by what is known of a person (the clinical
    ladder), and one that read as many notes of others; a diagnosis goes with nothing else of a note."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    from reticent.audit.config import DiagnosesConfig
    from reticent.engine.corpus import open_corpus
    from reticent.engine.split import given_sides
    from reticent.ext.ladder.measure import ladder, score_ladder
    from reticent.ext.ladder.questions import make_questions
    from reticent.trainer.models import special_ids

    work.mkdir(exist_ok=True)
    names, drawn = ("gout", "lupus", "gall", "mumps"), random.Random(SEED)
    rows = []
    for number in range(3 * size.people // 2):  # the last third of them are others whose notes are read
        turn = number // 2 if number < size.people else drawn.randrange(12)
        has, other = names[turn % 4], names[(turn + 1 + turn // 4 % 3) % 4]  # the other stands in the record alone
        text = f"Patient x{number} came to us in the night and went home well. Diagnosis: {has}"
        rows.append({"doc_id": f"d{number:05d}", "individual_id": f"p{number:05d}", "text": text,
                     "ill": f"{has}; {other}"})  # fmt: skip
    words = dict.fromkeys(word for row in rows for word in [*row["text"].split(), *names])
    plain = Tokenizer(WordLevel({word: number for number, word in enumerate(["<s>", "?", *words])}, unk_token="?"))
    plain.pre_tokenizer = WhitespaceSplit()
    cut: Any = PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="<s>", eos_token="<s>", unk_token="?")
    texts, asked = [cut(f"<s> {row['text']}")["input_ids"] for row in rows], rows[: size.people]
    pq.write_table(pa.Table.from_pylist(asked), work / "notes.parquet")
    sensitive = [f'[[diagnosis]]\nname = "{name}"\nsensitive = {str(at < 2).lower()}' for at, name in enumerate(names)]
    (work / "terms.toml").write_text("\n".join(sensitive))
    corpus = open_corpus(work / "notes.parquet")
    individuals = given_sides(corpus, np.arange(len(asked)) % 2 == 0, "individual")
    config = DiagnosesConfig(terms=str(work / "terms.toml"), column="ill", num_individuals=len(asked))
    questions = make_questions(corpus, individuals, config, k=2, ids="stop", seed=SEED)
    shape: Any = {"n_positions": 32, "n_embd": 32, "n_layer": 1, "n_head": 2, "initializer_range": 0.2}
    shape |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    torch.manual_seed(SEED)
    base = GPT2LMHeadModel(GPT2Config(vocab_size=len(cut), bos_token_id=0, eos_token_id=0, **shape))
    models = {"base": base, "members": copy.deepcopy(base), "others": copy.deepcopy(base)}
    teach(models["members"], texts[: size.people : 2], size.taught, 1e-2, 64)
    teach(models["others"], texts[size.people :], size.taught, 1e-2, 64)
    scored = {
        name: score_ladder(
            model.eval(), cut, special_ids(cut, "clm"), questions, config.prompt, causal=True, ends=False
        )
        for name, model in models.items()
    }  # fmt: skip
    found = {name: ladder(questions, scored[name], scored["base"], seed=SEED) for name in ("members", "others")}
    return {"people": len(asked), **{name: to_json(one) for name, one in found.items()}}


def tables(record: Mapping[str, Any]) -> str:
    """Return the tables of the page."""
    dealt, found = record["relabelled"], []
    rows = [(name, count, f"{count / dealt['num']:.1%}") for name, count in sorted(dealt["counts"].items())]
    found.append(markdown([f"of {dealt['num']:,} lists dealt at random", "lists", "share"], rows))
    lists = [("nobody was trained on", row) for row in dealt["shifted"]]
    if own := record.get("outside"):
        lists += [("half were trained on", row) for row in ({"list": "the true one", **own["true"]}, *own["shifted"])]
    found.append(
        markdown(
            ["of people of whom", "list", "verdict", *ATTACKS],
            [
                (who, row["list"], row["verdict"], *(estimate_text(row["attacks"][name]["auc"], 2) for name in ATTACKS))
                for who, row in lists
            ],
        )
    )
    if own:
        copies = [
            (name, one["verdict"], *(estimate_text(one["over_source"][attack], 3) for attack in ATTACKS))
            for name, one in own["copies"].items()
        ]
        found.append(markdown(["copy; 0.5 and its area less that of the model itself", "verdict", *ATTACKS], copies))
    if asked := record.get("told"):
        cells = [
            (f"{who}, {kind}", RUNGS[rung], *(estimate_text(cell.get(of), 2) for of in CELL), cell.get("fewest", ""))
            for model, who in (("members", "members' notes"), ("others", "notes of others"))
            for kind in ("sensitive", "other")
            for rung, cell in asked[model][kind].items()
        ]
        heads = ["model that read; diagnoses", "an adversary knows", "told", "placebo", "by the cue alone"]
        found.append(markdown([*heads, "people of the smallest group"], cells))
    if asked := record.get("commands"):
        columns = {
            "model": "by the command, model", "reports": "reports", "verdict": "verdict",
            "verified": "signature verified", "cpu_seconds": "CPU seconds", "peak_mib": "MiB at the peak",
            "seconds": "seconds", "device_mib": "MiB of the GPU",
        }  # fmt: skip
        shown = {name: head for name, head in columns.items() if all(name in row for row in asked["models"])}
        found.append(markdown(list(shown.values()), [[row[name] for name in shown] for row in asked["models"]]))
    if behind := record.get("served"):
        areas = ", ".join(f"{name} {estimate_text(one['auc'], 2)}" for name, one in behind["attacks"].items())
        found.append(f"Through a server on this machine, {behind['reports']} reports: {behind['verdict']}; {areas}.\n")
    return "\n".join(found)


def run(size: str, work: Path | None = None, parts: Sequence[str] = PARTS) -> None:
    """Make the models, judge them, and keep the record."""
    if not (DATA / "mtsamples").is_dir():
        print("skipped: MTSamples is not there (RETICENT_DATA)")
        return
    from fixtures.models import toy_model, toy_tokenizer

    from reticent.trainer.foundation import new_model
    from reticent.trainer.given import write_given
    from studies.foundation_models import package_folder

    of, found = SIZES[size], dict[str, Any]()
    packages = {name: package_folder(name) for name in ("minilm", "smollm2")}
    if size == "cpu" and None in packages.values():
        print("skipped: the packages of the group models are not installed")
        return
    with tempfile.TemporaryDirectory() as scratch:
        work = work or Path(scratch)
        work.mkdir(exist_ok=True)
        own, untouched = read_reports(of)
        names = sorted(row["individual_id"] for row in own)
        members = random.Random(SEED).sample(names, len(names) // 2)
        texts = [row["text"] for row in own if row["individual_id"] in set(members)]
        if not (small := work / "small").exists() and not of.layers:
            toy_model("gpt2", hidden_size=48, max_length=of.length).save_pretrained(small / "base")
            (small / "base" / "tokenizer.json").write_text(toy_tokenizer("gpt2"))
            fine_tune(small / "base", texts, of, of.small_epochs, 2e-2, small)
        large = small if size == "toy" else work / "smollm2"
        if not large.exists() and {"outside", "served"} & set(parts):
            write_given(str(packages["smollm2"]), None, "clm", large / "base")
            fine_tune(large / "base", texts, of, of.epochs, 1e-3, large)
        models = {name: path for name, path in packages.items() if path} if size == "cpu" else {"toy": small / "base"}
        if of.layers:
            models = {"random": work / "random"}
            large_shape = {"hidden_size": 2048, "num_layers": of.layers, "num_heads": 16, "max_length": of.length}
            new_model("gpt2", toy_tokenizer("gpt2"), **large_shape).save_pretrained(models["random"])
            (models["random"] / "tokenizer.json").write_text(toy_tokenizer("gpt2"))
        with ScoredOnce():
            for part in parts:
                if (kept := work / f"{part}.json").exists():
                    found[part] = json.loads(kept.read_text())
                    continue
                started = time.process_time()
                if part == "commands":
                    found[part] = {"models": commands(work, untouched[: of.commanded], models)}
                elif part == "outside":
                    found[part] = outside(large, own, members, of)
                elif part == "told":
                    found[part] = told(work / "told", of)
                elif part == "served":
                    found[part] = through_a_server(large, own, members, of)
                else:
                    half = random.Random(SEED).sample([row["individual_id"] for row in untouched], of.untouched // 2)
                    deals = Deals(judge(values_of(small, part, untouched, half, of)))
                    of_lists = {"shifted": shifted(deals, untouched)}
                    found[part] = of_lists | relabelled(deals, of.num_relabelled, work / "dealt.json")
                found[part]["cpu_seconds"] = round(time.process_time() - started, 1)
                kept.write_text(json.dumps(found[part], indent=1))
                print(f"{part}: {found[part]['cpu_seconds']} CPU seconds", flush=True)
    command = f"python -m studies.egress --size {size}"
    about = {"seed": SEED, "command": command, "settings": vars_of(of)}
    write_record("egress" if size == "cpu" else f"egress-{size}", {**about, **found}, size, STUDIES)


def vars_of(size: Size) -> dict[str, Any]:
    """Return the settings of a size."""
    return {name: getattr(size, name) for name in Size.__dataclass_fields__}


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--size", choices=list(SIZES), default="toy")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--part", action="append", choices=PARTS)
    options = parser.parse_args()
    run(options.size, options.work, options.part or PARTS)


if __name__ == "__main__":
    main()
