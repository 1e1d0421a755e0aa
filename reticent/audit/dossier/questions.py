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
        "questions.singling_out",
        "questions.can_records_or_the_behaviour_of_one",
        ("threshold", "at_threshold", "kinds", "subgroup", "unicity"),
    ),
    Question(
        "questions.linkability",
        "questions.can_two_records_of_one_individual_be_linked",
        ("membership", "user_inference", "probes", "inversion"),
    ),
    Question(
        "questions.inference",
        "questions.can_an_attribute_of_an_individual_be_deduced",
        ("excess", "association"),
    ),
)
#: Opinion 28/2024: both must be insignificant for every individual whose data were used.
LIKELIHOODS = (
    Question(
        "questions.extraction_from_the_model",
        "questions.how_likely_is_it_that_personal_data_are",
        ("predicted", "excess", "moved", "partial_copy"),
    ),
    Question(
        "questions.personal_data_from_queries",
        "questions.how_likely_is_it_that_personal_data_are_2",
        ("written", "passages", "probes", "inversion"),
    ),
)
#: Opinion 28/2024: what an authority looks at, by group.
EXAMINED = (
    (
        "questions.design",
        (
            Question(
                "questions.sources", "questions.were_sources_chosen_and_data_kept_to_a", facts=("documents", "split")
            ),
            Question(
                "questions.preparation",
                "questions.were_the_data_pseudonymised_filtered_and",
                ("missed",),
                ("detection", "copies", "protection"),
            ),
            Question(
                "questions.training",
                "questions.which_methods_of_training_keep_personal_data",
                facts=("recipes", "ledger", "guarantee"),
            ),
            Question("questions.outputs", "questions.which_measures_are_there_on_what_the_model"),
        ),
    ),
    (
        "questions.analysis_and_governance",
        (
            Question(
                "questions.documentation_against_practice",
                "questions.does_what_was_done_agree_with_what_the",
                facts=("digests", "ledger"),
            ),
            Question("questions.reviews", "questions.were_code_and_process_reviewed_and_by_whom"),
        ),
    ),
    (
        "questions.testing_and_resistance_to_attacks",
        (
            Question(
                "questions.attribute_inference",
                "questions.can_attributes_of_a_known_person_be_deduced",
                ("association",),
            ),
            Question(
                "questions.membership_inference",
                "questions.can_it_be_told_who_was_trained_on",
                ("membership", "at_threshold", "kinds", "user_inference"),
            ),
            Question(
                "questions.exfiltration_and_regurgitation",
                "questions.does_training_data_come_out_word_for_word",
                ("passages", "written"),
                ("canaries",),
            ),
            Question(
                "questions.model_inversion", "questions.are_identifiers_found_by_the_words_around", ("inversion",)
            ),
            Question("questions.reconstruction", "questions.can_training_data_be_rebuilt_from_the_files", ("moved",)),
            Question(
                "questions.structure_and_age_of_the_tests",
                "questions.how_structured_are_the_tests_how_recent_and",
                facts=("tests",),
            ),
        ),
    ),
    (
        "questions.documentation",
        (
            Question("questions.impact_assessment", "questions.is_there_an_impact_assessment_or_a_decision"),
            Question("questions.data_protection_officer", "questions.was_the_advice_of_the_data_protection"),
            Question(
                "questions.measures_along_the_life_cycle",
                "questions.which_technical_and_organisational_measures",
                facts=("life_cycle",),
            ),
            Question(
                "questions.theoretical_resistance",
                "questions.how_much_training_data_is_there_against_the",
                facts=("capacity",),
            ),
            Question(
                "questions.likelihood_of_identification",
                "questions.are_there_metrics_of_the_likelihood_that",
                ("membership", "unicity"),
            ),
            Question(
                "questions.reports_of_tests",
                "questions.by_whom_when_and_how_was_the_model",
                facts=("tests", "digests"),
            ),
            Question(
                "questions.those_who_deploy_it", "questions.what_are_those_told_who_deploy_the_model", facts=("card",)
            ),
        ),
    ),
)
