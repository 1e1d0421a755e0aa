"""What hospitals export (FHIR, HL7 v2, CDA, folders of office files, mail, pages), read once into a run folder."""
