"""Categories: one small vocabulary that the labels of all detectors and corpora are mapped to.

A span keeps the label its detector gave it; whoever compares detectors, spreads a hit or draws a surrogate asks for
its category. Labels are looked up in upper case, without the BIO prefix; an unknown one is its own category.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Labels(NamedTuple):
    """Labels of one category, separated by blanks; a category may have several rows."""

    category: str
    labels: str


_ROWS: Final = (
    Labels(
        "NAME",
        "NAME PERSON PER PATIENT DOCTOR USERNAME FIRST_NAME LAST_NAME FULL_NAME NOM PRENOM STAFF HCW RELATIVE "
        "NOMBRE_SUJETO_ASISTENCIA NOMBRE_PERSONAL_SANITARIO FAMILIARES_SUJETO_ASISTENCIA",
    ),
    Labels("DATE", "DATE TIME DATETIME DATE_TIME DATE_NAISSANCE BIRTH_DATE FECHAS"),
    Labels("AGE", "AGE EDAD_SUJETO_ASISTENCIA"),
    Labels("PHONE", "PHONE PHONE_NUMBER FAX TEL TELEFONO NUMERO_TELEFONO NUMERO_FAX"),
    Labels("EMAIL", "EMAIL EMAIL_ADDRESS MAIL CORREO_ELECTRONICO"),
    Labels("URL", "URL DOMAIN_NAME URL_WEB"),
    Labels("IP", "IP IPADDR IP_ADDRESS"),
    Labels(
        "ID",
        "ID MRN SSN NIR IBAN NHS NPI DNI NIE CREDIT_CARD ACCOUNT LICENSE VEHICLE DEVICE BIOID IDNUM "
        "HEALTHPLAN MEDICALRECORD CODE SECU IPP NDA US_SSN IBAN_CODE UK_NHS ES_NIF ES_NIE US_DRIVER_LICENSE "
        "US_BANK_NUMBER US_PASSPORT ID_SUJETO_ASISTENCIA ID_ASEGURAMIENTO ID_CONTACTO_ASISTENCIAL "
        "ID_TITULACION_PERSONAL_SANITARIO ID_EMPLEO_PERSONAL_SANITARIO IDENTIF_VEHICULOS_NRSERIE_PLACAS "
        "IDENTIF_DISPOSITIVOS_NRSERIE",
    ),
    Labels("ZIP", "ZIP ZIP_CODE POSTCODE"),
    Labels(
        "LOCATION",
        "LOCATION LOC GPE FAC ADDRESS STREET STREET_ADDRESS CITY VILLE ADRESSE STATE COUNTRY ROOM "
        "LOCATION-OTHER CALLE TERRITORIO PAIS",
    ),
    Labels("ORGANIZATION", "ORGANIZATION ORG HOSPITAL HOPITAL DEPARTMENT INSTITUCION CENTRO_SALUD"),
    Labels("PROFESSION", "PROFESSION TITLE PROFESION"),
    Labels("DEMOGRAPHIC", "DEM NRP NORP SEX SEXO_SUJETO_ASISTENCIA"),
    Labels("QUANTITY", "QUANTITY NUMBER CARDINAL ORDINAL MONEY PERCENT"),
    Labels("OTHER", "MISC OTHER OTROS_SUJETO_ASISTENCIA"),
)

_CATEGORY_OF: Final = {label: row.category for row in _ROWS for label in row.labels.split()}

#: The categories of the labels that are known.
CATEGORIES: Final = tuple(dict.fromkeys(row.category for row in _ROWS))


def category(label: str) -> str:
    """Return the category of a detector's label (NAME, DATE, …); an unknown label is its own category.

    >>> category("B-PER"), category("Prenom"), category("ZEBRA")
    ('NAME', 'NAME', 'ZEBRA')
    """
    upper = label.upper()
    bare = upper[2:] if upper[:2] in ("B-", "I-", "E-", "S-", "L-", "U-") else upper
    return _CATEGORY_OF.get(upper) or _CATEGORY_OF.get(bare, bare)
