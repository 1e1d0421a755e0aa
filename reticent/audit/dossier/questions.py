"""The criteria and questions of a dossier, in the order of their sources, each with the figures that speak to it.

A dossier cites these sources and no other: Opinion 05/2014 of the Article 29 Working Party, Opinion 28/2024 of the
European Data Protection Board, and the method of the CNIL for impact assessments (2018). They are paraphrased; no
paragraph is quoted.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CRITERIA", "EXAMINED", "LIKELIHOODS", "Question"]


@dataclass(frozen=True, slots=True)
class Question:
    """One question: its title, its text, and the names of the figures and facts that answer it."""

    title: str
    text: str
    figures: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()


#: Opinion 05/2014: the three criteria.
CRITERIA = (
    Question(
        "Singling out",
        "Can records, or the behaviour, of one individual be isolated?",
        ("threshold", "at_threshold", "kinds", "subgroup", "unicity"),
    ),
    Question(
        "Linkability",
        "Can two records of one individual be linked, or a record and the model?",
        ("membership", "user_inference", "probes", "inversion"),
    ),
    Question(
        "Inference",
        "Can an attribute of an individual be deduced with significant probability?",
        ("excess", "association"),
    ),
)
#: Opinion 28/2024: both must be insignificant for every individual whose data were used.
LIKELIHOODS = (
    Question(
        "Extraction from the model",
        "How likely is it that personal data are extracted from the model itself, directly or by probability?",
        ("predicted", "excess", "moved", "partial_copy"),
    ),
    Question(
        "Personal data from queries",
        "How likely is it that personal data are obtained from queries, on purpose or not?",
        ("written", "passages", "probes", "inversion"),
    ),
)
#: Opinion 28/2024: what an authority looks at, by group.
EXAMINED = (
    (
        "Design",
        (
            Question("Sources", "Were sources chosen, and data kept to a minimum?", facts=("documents", "split")),
            Question(
                "Preparation",
                "Were the data pseudonymised, filtered, and copies left out?",
                ("missed",),
                ("detection", "copies", "protection"),
            ),
            Question(
                "Training",
                "Which methods of training keep personal data out: masking, regularisation, differential privacy?",
                facts=("recipes", "ledger", "guarantee"),
            ),
            Question("Outputs", "Which measures are there on what the model answers?"),
        ),
    ),
    (
        "Analysis and governance",
        (
            Question(
                "Documentation against practice",
                "Does what was done agree with what the documentation says?",
                facts=("digests", "ledger"),
            ),
            Question("Reviews", "Were code and process reviewed, and by whom?"),
        ),
    ),
    (
        "Testing and resistance to attacks",
        (
            Question("Attribute inference", "Can attributes of a known person be deduced?", ("association",)),
            Question(
                "Membership inference",
                "Can it be told who was trained on?",
                ("membership", "at_threshold", "kinds", "user_inference"),
            ),
            Question(
                "Exfiltration and regurgitation",
                "Does training data come out, word for word or nearly?",
                ("passages", "written"),
                ("canaries",),
            ),
            Question("Model inversion", "Are identifiers found by the words around them?", ("inversion",)),
            Question("Reconstruction", "Can training data be rebuilt from the files of the model?", ("moved",)),
            Question(
                "Structure and age of the tests",
                "How structured are the tests, how recent, and are they the state of the art?",
                facts=("tests",),
            ),
        ),
    ),
    (
        "Documentation",
        (
            Question("Impact assessment", "Is there an impact assessment, or a decision that none is needed?"),
            Question("Data protection officer", "Was the advice of the data protection officer sought, and followed?"),
            Question(
                "Measures along the life cycle",
                "Which technical and organisational measures hold from the documents to the use of the model?",
                facts=("life_cycle",),
            ),
            Question(
                "Theoretical resistance",
                "How much training data is there against the number of parameters?",
                facts=("capacity",),
            ),
            Question(
                "Likelihood of identification",
                "Are there metrics of the likelihood that individuals are identified again?",
                ("membership", "unicity"),
            ),
            Question(
                "Reports of tests",
                "By whom, when and how was the model tested, and with which results?",
                facts=("tests", "digests"),
            ),
            Question("Those who deploy it", "What are those told who deploy the model?", facts=("card",)),
        ),
    ),
)
