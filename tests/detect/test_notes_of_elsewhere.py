"""Forms of notes that no corpus here has: tables by their head, columns, scans, cut short names."""

from __future__ import annotations

import pyarrow as pa
import pytest

from reticent import _rust


def labelled(text: str) -> set[tuple[str, str]]:
    """Label and piece of all that is found."""
    hits = pa.record_batch(_rust.scan_rules(pa.array([text], pa.large_string()), None)).to_pylist()
    return {(hit["label"], text[hit["start"] : hit["end"]]) for hit in hits}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Zimmer | Name | Geb.-Datum | Fallnr. | Kost\n301 | Gerstner, Luzie | 03.05.1931 | 8004411 | Breikost\n",
            {("NAME", "Gerstner, Luzie"), ("DATE", "03.05.1931"), ("MRN", "8004411"), ("DEPARTMENT", "301")},
        ),
        (
            "PatientID\tLastName\tFirstName\tAge\n10044\tFerreira\tLuciana\t36\n10045\tAguilar\tTomas\t67\n",
            {("MRN", n) for n in ("10044", "10045")}
            | {("NAME", n) for n in ("Ferreira", "Luciana", "Aguilar", "Tomas")}
            | {("AGE", n) for n in ("36", "67")},
        ),
        # Names and values side by side are no head.
        ("| Name | Roy | Age | 45 |\n| x | y | z | w |", {("NAME", "Roy"), ("AGE", "45")}),
        # Columns end the name of a field, and begin one.
        ("Sex: F    Age: 29    Roy", {("AGE", "29")}),
        ("Origen: x y  Médico: LACASA\n", {("NAME", "LACASA")}),
        ("2. PATIENT'S NAME | Nakamura, Joy\n", {("NAME", "Nakamura, Joy")}),
        ("Age/Sex: 58/M", {("AGE", "58")}),
        # Scans.
        ("Vornarne: Erwin     geb. am: 1O/06/1949", {("NAME", "Erwin"), ("DATE", "1O/06/1949")}),
        # People.
        ("Ärztl. Leitung: Dr. N. Siegmund\n", {("NAME", "N. Siegmund")}),
        ("seen by Dr Th. Roussel today", {("NAME", "Th. Roussel")}),
        ("seen by Pastor Holloway", {("NAME", "Holloway")}),
        # Numbers.
        ("Tochter 0177 5550122 ist", {("PHONE", "0177 5550122")}),
        ("call 270/555-0138 before", {("PHONE", "270/555-0138")}),
        ("Celular 81 1555 0199.", {("PHONE", "81 1555 0199")}),
        ("ab 15.10. frei", {("DATE", "15.10.")}),
        # A town is none where it is the name of the next field, and a street has no words cut short.
        ("34800   Commune : Lyon", {("CITY", "Lyon"), ("ZIP", "34800")}),
        ("Movicol 2 Btl. Hz. St. R.", set()),
        # Amounts and scores.
        ("GCS 15/15, ECOG 1, pain 3/10, TA 12/7, 1/2 tablet, T2N0M1, 20G, Ch 16, Gleason 3+4=7", set()),
    ],
)
def test_form_is_read(text: str, expected: set[tuple[str, str]]) -> None:
    assert labelled(text) == expected
