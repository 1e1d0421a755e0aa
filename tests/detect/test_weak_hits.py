"""Nothing spreads from one weak hit: words behind a titled name, headings, titles that are none; dates, ages, codes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reticent import _rust
from reticent.engine.corpus import open_corpus
from reticent.engine.detect import detect_spans, make_detectors
from reticent.engine.detect.common import counted_words, learn_common_words
from reticent.engine.detect.propagate import propagate


def labelled(text: str, *labels: str) -> set[str]:
    """The pieces that the rules of these labels find."""
    hits = pa.record_batch(_rust.scan_rules(pa.array([text], pa.large_string()), list(labels))).to_pylist()
    return {text[hit["start"] : hit["end"]] for hit in hits}


def spread(folder: Path, *documents: str) -> list[set[str]]:
    """What rules that know the words of the corpus find in documents of an individual each, and what spreads of it."""
    ids = [str(number) for number in range(len(documents))]
    table = {"doc_id": ids, "individual_id": ids, "text": pa.array(documents, pa.large_string())}
    pq.write_table(pa.table(table), folder / "documents.parquet")
    corpus, detectors = open_corpus(folder / "documents.parquet"), make_detectors(["rules", "shipped"], {})
    learn_common_words(corpus, detectors)
    detect_spans(corpus, detectors[:1], folder)
    propagate(corpus, folder / "spans.parquet", folder / "all.parquet", common=counted_words(corpus, detectors))
    found: list[set[str]] = [set() for _ in documents]
    for row in pq.read_table(folder / "all.parquet").to_pylist():
        found[row["document"]].add(documents[row["document"]][row["start"] : row["end"]])
    return found


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Mr. Sefton's Lasix was held.", {"Sefton"}),
        ("Mrs. Dunraven’s Parkinson’s is stable.", {"Dunraven"}),
        ("MR. SEFTON'S LASIX WAS HELD", {"SEFTON"}),
        ("Mr. Tolliver BP 120/80", {"Tolliver"}),
        ("Herr Tolmann Diabetes mellitus.", {"Tolmann"}),
        ("Dr. Tolworth Cardiology", {"Tolworth"}),
        ("Mr. Tollmer Denies pain", {"Tollmer"}),
        ("Mrs. O'Hara and Mr. Martin Weber", {"O'Hara", "Martin Weber"}),
        ("Mrs. Rose came.", {"Rose"}),
        # Headings.
        ("Patient Discharge Note\n\nPatient Name: Tor Morkel\n", {"Tor Morkel"}),
        ("Patient Progress Note\n", set()),
        ("Patient Care Plan\n", set()),
        ("Patient Portal Message\n", set()),
        ("Doctor Visit Summary\n", set()),
        # Titles that are none.
        ("MS Contin 15 mg twice daily", set()),
        ("14 Fr. Foley placed", set()),
        ("Mag. Citrate given", set()),
        ("Sr. Creatinine 1.2", set()),
        ("MR. Lumbar Spine", set()),
        ("Prim. Hyperparathyreoidismus", set()),
        # Particles.
        ("Mme de Villecourbe est vue.", {"de Villecourbe"}),
        ("Mme d'Estainville", {"d'Estainville"}),
        (
            "Dr. von Arnimsee, Frau von der Heydtburg, Herr zu Guttenwald",
            {"von Arnimsee", "von der Heydtburg", "zu Guttenwald"},
        ),
        (
            "Mr. van Houtenburg, Dr. de la Souzandra, Mr. bin Rashidoon",
            {"van Houtenburg", "de la Souzandra", "bin Rashidoon"},
        ),
        ("Dr. el-Masrizadeh, Mme Le Goffinec", {"el-Masrizadeh", "Le Goffinec"}),
        ("Dra. de Urgencias, Dr. de Guardia", set()),
        # Titles in other spellings.
        ("le docteur Vauquelin et madame Tréboul", {"Vauquelin", "Tréboul"}),
        ("DR HALVERSON, MME PLOUARET", {"HALVERSON", "PLOUARET"}),
        ("la doctora Zubizarreta", {"Zubizarreta"}),
        ("Nurse Harlowe, Judge Ardmoor", {"Harlowe", "Ardmoor"}),
        ("Me Vauquelard, Maître Corvaisier et mme Plouaret", {"Vauquelard", "Corvaisier", "Plouaret"}),
        ("Dipl.-Psych. Rieke Tönnshoff, Pfleger Kessenich", {"Rieke Tönnshoff", "Kessenich"}),
        ("Rev. Tolliver, Lady Dunraven, Dr A.Mariner", {"Tolliver", "Dunraven", "A.Mariner"}),
        ("Nom : de Kermadieu", {"de Kermadieu"}),
        # Scans, ends of lines, other scripts, exports.
        ("Dr. Vil1acampa and Mr. Tr0mlow; Dr. B12", {"Vil1acampa", "Tr0mlow"}),
        ("Mrs. Olivia Tess-\nmerling called", {"Olivia Tess-\nmerling"}),
        ("Dr. 田中花子 consulted.", {"田中花子"}),
        ("PID|1||004711^^^MRN||MEEKERS^HARLAN^J||1950|M", {"MEEKERS^HARLAN^J"}),
        ("OBX|1|CE|Sodium^Serum||140", set()),
    ],
)
def test_name_ends_where_it_ends(text: str, names: set[str]) -> None:
    assert labelled(text, "NAME") == names


def test_word_that_the_corpus_writes_small_is_no_second_name(tmp_path: Path) -> None:
    notes = [
        "Mrs. Tolbert Tylenol given. Tylenol held.",
        "She took tylenol and more tylenol, some tylenol again.",
        "Mr. Ronan Young came; the young man and a young boy left.",
        "Mr. Martin Chance has a good chance, a small chance.",
    ]
    found = spread(tmp_path, *notes)
    assert found[0] == {"Tolbert"}
    assert "Ronan Young" in found[2]
    assert "Martin Chance" in found[3]


def test_word_of_one_titled_hit_that_others_have_does_not_spread(tmp_path: Path) -> None:
    notes = [
        "Herr Tolmann Sarkoidose pulmonal. Sarkoidose gut eingestellt, sagt Tolmann.",
        "Die Sarkoidose ist stabil. Sarkoidose und Husten.",
        "Herr Jonas Wexler kam. Danach ging Wexler.",
        "Ein Gruß von Wexler an alle.",
    ]
    found = spread(tmp_path, *notes)
    assert "Sarkoidose" not in found[0] | found[1]
    assert "Tolmann" in found[0]
    assert "Wexler" in found[2]


DATES = [
    ("(6/18) remains afebrile. 6/19: extubated.", {"6/18", "6/19"}),
    ("Labs from 3/4: WBC 9.", {"3/4"}),
    ("Follow-up 11/03 at 9am.", {"11/03"}),
    ("cath 4/22 planned, s/p CABG 6/18", {"4/22", "6/18"}),
    ("Admitted 12/25, stable. d/c 3/4", {"12/25", "3/4"}),
    ("Analítica de 04/11: normal.", {"04/11"}),
    ("Admitted 3/4-3/9/2019.", {"3/4-3/9/2019"}),
    ("March 3-9, 2019", {"March 3-9, 2019"}),
    ("Holiday from March 3 to 9, 2019.", {"March 3 to 9, 2019"}),
    ("On leave 12-19 May 2020.", {"12-19 May 2020"}),
    ("On leave 12–19 May 2020.", {"12–19 May 2020"}),
    ("du 3 au 9 mars 2019", {"3 au 9 mars 2019"}),
    ("03.-09.04.2021", {"03.-09.04.2021"}),
    ("del 3 al 9 de marzo", {"3 al 9 de marzo"}),
    ("Treated 2003-2007.", {"2003-2007"}),
    ("Suivi de 2003 à 2007.", {"2003 à 2007"}),
    ("3/2019-5/2020", {"3/2019-5/2020"}),
    ("März bis Mai 2019", {"März bis Mai 2019"}),
    ("May 17, '24", {"May 17, '24"}),
    ("March 11. 1948", {"March 11. 1948"}),
    ("Q3 2020, Christmas 2018, oct1991", {"Q3 2020", "Christmas 2018", "oct1991"}),
    ("Seen in mid-June.", {"mid-June"}),
    ("Kontrolle Anfang Oktober 2020", {"Anfang Oktober", "Oktober 2020"}),
    ("discharged the 19th.", {"19th"}),
    ("O3/l4/2019, DOB 0l/02/195O, geb. am O3.04.1950", {"O3/l4/2019", "0l/02/195O", "O3.04.1950"}),
    ("geb. 03. 04. 1950", {"03. 04. 1950"}),
    # No dates.
    ("So/So/SoSo, dose 1.5. 12 h, lot IO/lI/SOlB", set()),
    ("Strength 4/5 left, 5/5 right, pain 7/10, BP 12/8, TA 13/8, GCS 3/15, MMSE 12/30", set()),
    ("20/40 OD, 20/25 OS, L4/5, HWK 5/6, Phase 3/4, page 2/14, 3/16 inch, titer 1/16", set()),
    ("Take 1-2 tablets every 4-6 hours, 3-4 weeks, 1-0-1, ratio 1/20, 2/3 fois par jour", set()),
    ("call 2003 or 2007, 120/80, rate 60-80, pages 12-19, levels 2-3", set()),
]


@pytest.mark.parametrize(("text", "dates"), DATES)
def test_dates_without_a_year_and_ranges_are_whole(text: str, dates: set[str]) -> None:
    assert labelled(text, "DATE") == dates


@pytest.mark.parametrize(
    ("text", "ages"),
    [
        ("His wife is 93. She turned 95, and died at 101.", {"93", "95", "101"}),
        ("93F with fall; 93/F; 97 y.o. female; 95yr old brother; 93y/o", {"93F", "93/F", "97 y.o.", "95yr", "93y/o"}),
        ("In her 90s, in her early nineties", {"90s", "early nineties"}),
        ("Der 94j. Pat., 93jährig, starb mit 96.", {"94j.", "93jährig", "96"}),
        ("falleció con 93, elle a 93ans", {"93", "93ans"}),
        # No ages.
        ("He is 93% better, T 99 F, sats in the 90s, HR is 95/min, died at 93 Elm Street", set()),
    ],
)
def test_ages_over_89_are_found(text: str, ages: set[str]) -> None:
    assert labelled(text, "AGE") == ages


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Né le 1 4 / 0 6 / 1 9 3 1, IPP 0 0 4 7 1 1 2 8.", {"1 4 / 0 6 / 1 9 3 1", "0 0 4 7 1 1 2 8"}),
        ("Scale 0 1 2 3 4 5 6 7 8 9, doses 1/2/1/2/1/2/1/2, Apgar 9 9 10, 1 1 1 1 1 1 1 1", set()),
        ("ICD-10: E1165, I2510", set()),
        ("Dx type 2 diabetes E1165", set()),
        ("Acute appendicitis (K3580) today", set()),
        ("SNOMED CT 44054006", set()),
        ("Specimen E1165 arrived", {"E1165"}),
        ("Roy (A12345)", {"A12345"}),
    ],
)
def test_digits_apart_are_ids_and_codes_of_diagnoses_are_none(text: str, ids: set[str]) -> None:
    assert labelled(text, "ID") == ids
