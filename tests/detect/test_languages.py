"""Documents in languages that the rules do not know: told, warned of, refused, and no alarm on those that they know."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.core.artifact import read_manifest
from reticent.core.errors import PolicyError
from reticent.core.progress import Progress, shown_counts
from reticent.engine.corpus import Corpus
from reticent.engine.detect import spans_batch
from reticent.engine.languages import OtherLanguages, _count_by_patterns, _count_common_words
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run

#: Invented notes of 30 words and more, by language.
NOTES = {
    "de": "Der Patient klagt seit drei Tagen über Husten und Fieber. Die Lunge ist auskultatorisch frei, "
    "das Labor zeigt eine leichte Entzündung. Wir empfehlen eine Kontrolle in einer Woche und die "
    "Einnahme von Paracetamol bei Bedarf.",
    "en": "The patient was admitted with chest pain and shortness of breath for three days. No fever was "
    "noted on arrival. She is on metoprolol and aspirin, and has a history of hypertension with good "
    "control at home.",
    "es": "Paciente de mediana edad que acude por dolor torácico de tres días de evolución. No presenta "
    "fiebre ni tos. Se realiza electrocardiograma sin alteraciones y se pauta tratamiento con control "
    "en una semana por su médico.",
    "fr": "Le patient est hospitalisé pour une douleur thoracique depuis trois jours. Il n'a pas de fièvre "
    "et la radiographie est normale. Un traitement par aspirine est mis en place avec un contrôle "
    "dans une semaine.",
    "it": "La paziente lamenta dolore toracico da tre giorni e riferisce febbre con tosse. Il figlio l'ha "
    "accompagnata al pronto soccorso. Si consiglia terapia antibiotica per sette giorni e controllo "
    "dal medico di base della zona.",
    "no": "Pasienten er en mann som ble innlagt på grunn av brystsmerter. Han har tidligere hatt "
    "hjerteinfarkt og bruker medisin mot høyt blodtrykk. Ved undersøkelse finnes ingen tegn til "
    "hjertesvikt, og han ble skrevet ut etter dagen.",
    "sv": "Patienten är en kvinna som har sökt vård för hosta och feber sedan tre dagar. Vid undersökning "
    "av lungorna hörs inga biljud. Hon får inte antibiotika och ska höra av sig om det inte blir "
    "bättre till helgen.",
    "pl": "Pacjentka została przyjęta do szpitala z powodu bólu brzucha. W badaniu stwierdzono tkliwość w "
    "prawym dole biodrowym. Wykonano badania laboratoryjne oraz USG. Po leczeniu wypisana do domu w "
    "stanie dobrym z zaleceniem kontroli w poradni za tydzień.",
    "pt": "A paciente foi internada com dor torácica há três dias e nega febre. O exame não mostrou "
    "alterações e foi medicada com aspirina. Recebeu alta para o domicílio com consulta marcada em "
    "uma semana no centro de saúde.",
    "nl": "De patiënt is een man die met pijn op de borst werd opgenomen. Hij heeft geen koorts en het "
    "onderzoek van de longen is niet afwijkend. Er wordt een controle bij de huisarts over een week "
    "afgesproken met een nieuw recept.",
    "other": "Пациент поступил в клинику с жалобами на боли в груди. В анамнезе артериальная гипертензия. При "
    "осмотре состояние удовлетворительное, хрипов нет. Выписан домой с улучшением, рекомендовано "
    "наблюдение у кардиолога по месту жительства и приём препаратов ежедневно утром и вечером.",
}


@given(
    st.lists(
        st.one_of(
            st.text(st.sampled_from("tThe _-.9é\u0130\u212a\u2019\u00a0\x0b\n東かカกក က😀"), max_size=40),
            st.lists(st.sampled_from([*" ".join(NOTES.values()).split(), "_the", "no2", "東京"]), max_size=60).map(
                " ".join
            ),
        ),
        max_size=4,
    ),
    st.sampled_from([0, 5, 30, 1000]),
)
def test_words_are_counted_as_the_patterns_find_them(texts: list[str], num_characters: int) -> None:
    array = pa.array(texts, pa.large_string())
    for counted, wanted in zip(
        _count_common_words(array, num_characters), _count_by_patterns(array, num_characters), strict=True
    ):
        assert counted.tolist() == wanted.tolist()


def asked(*texts: str) -> OtherLanguages:
    languages = OtherLanguages()
    languages.add(pa.array(texts, pa.large_string()))
    return languages


@pytest.mark.parametrize("language", NOTES)
def test_language_of_a_note_is_told(language: str) -> None:
    found = asked(NOTES[language])
    assert {name: num for name, num in found.documents.items() if num} == {language: 1}
    assert found.counts() == {"long_documents": 1, "other_language": int(language not in ("de", "en", "es", "fr"))}
    assert shown_counts(found.counts()).startswith("documents of 30 words or more 1, of them in another language ")
    assert (found.warning() is None) == (language in ("de", "en", "es", "fr"))


def test_short_documents_are_not_asked_and_lists_are_asked_to_their_end() -> None:
    assert asked("Dati del paziente: tosse.", "", "123").counts() == {"long_documents": 0, "other_language": 0}
    drugs = ", ".join(f"metoprolol{number} tablet" for number in range(80))
    assert asked(f"{drugs}. {NOTES['en']}").unknown == {}
    assert asked("患者は四十五歳の男性で、胸の痛みを訴えて来院した。" * 3).unknown == {"other": 1}


def test_sentence_says_how_many_and_in_which_languages() -> None:
    warning = asked(NOTES["it"], NOTES["it"], NOTES["pl"], NOTES["en"]).warning()
    assert warning is not None
    assert warning.startswith("3 of 4 documents of 30 words or more")
    assert "(it 2, pl 1; they know de, en, es, fr)" in warning


class Pipeline:
    """What finds nothing, in the name of a pipeline of a language."""

    name = "spacy"
    columns: tuple[str, ...] = ()

    def __init__(self, language: str | None):
        if language is not None:
            self.language = language

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        return spans_batch([], [], [], [])


@pytest.mark.parametrize(
    ("language", "texts", "num"),
    [
        ("en", ("en", "en", "it"), None),
        ("en", ("it", "it", "en"), 1),
        ("en", ("it", "it", "no"), 0),
        ("fr", ("en", "es", "fr"), 1),
        ("nb", ("no", "no", "en"), None),
        ("nb", ("en", "en", "no"), 1),
        ("it", ("it", "nl"), None),
        ("el", ("other", "other", "en"), None),
        ("el", ("en", "de", "other"), 1),
        ("gl", ("pt", "pt", "de"), None),
        ("xx", ("it", "pl"), None),
        (None, ("it", "pl"), None),
    ],
)
def test_thorough_refuses_a_pipeline_of_another_language(
    language: str | None, texts: tuple[str, ...], num: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, num = texts * 8, None if num is None else 8 * num
    ids = [str(row) for row in range(len(texts))]
    table = pa.table({"doc_id": ids, "individual_id": ids, "text": [NOTES[text] for text in texts]})
    pq.write_table(table, tmp_path / "notes.parquet")
    monkeypatch.setattr("reticent.job.stages.detect.make_detectors", lambda *_, **__: [Pipeline(language)])
    values = {
        "out": str(tmp_path / "run"),
        "corpus": {"source": str(tmp_path / "notes.parquet")},
        "detect": {"preset": "thorough", "spacy": "blank:en", "propagate": False},
    }
    job = parse_job(values)
    if num is None:
        execute(Run(job, Progress(quiet=True)), "detect")
        return
    with pytest.raises(PolicyError, match=rf"is for {language}, and {num} of {len(texts)} documents of 30 words"):
        execute(Run(job, Progress(quiet=True)), "detect")
    values["detect"] = {"detectors": ["spacy"], "spacy": "blank:en"}  # who names a pipeline means it
    execute(Run(parse_job(values), Progress(quiet=True)), "detect")


@pytest.mark.parametrize(("detectors", "passes"), [(["rules"], 2), (["rules", "records"], 2)])
def test_languages_are_asked_in_the_pass_that_learns_common_words(
    detectors: list[str], passes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [str(row) for row in range(8)]
    pq.write_table(
        pa.table({"doc_id": ids, "individual_id": ids, "text": [NOTES["it"]] * 8}), tmp_path / "notes.parquet"
    )
    pq.write_table(pa.table({"individual_id": ids, "name": ["Zor"] * 8}), tmp_path / "records.parquet")
    read, batches = [], Corpus.batches
    monkeypatch.setattr(Corpus, "batches", lambda self, **of: read.append(of["columns"]) or batches(self, **of))
    values = {
        "out": str(tmp_path / "run"),
        "corpus": {"source": str(tmp_path / "notes.parquet")},
        "detect": {
            "detectors": detectors,
            "records": {"table": str(tmp_path / "records.parquet"), "fields": {"NAME": "name"}},
        },
    }
    if "records" not in detectors:
        values["detect"].pop("records")
    run = Run(parse_job(values), Progress(quiet=True))
    execute(run, "detect", alone=True)
    assert sum("text" in columns for columns in read) == passes
    assert read_manifest(run.folder / "spans").counts["other_language"] == 8
