"""Names of attacks that the settings need. This module imports nothing heavy, so reading a job stays fast."""

from __future__ import annotations

from typing import Final

#: Recipes that protect nothing: the positive control of every attack.
PLAIN: Final = ("mlm", "clm")
#: What is judged: a language model, with one of these objectives, or what was trained on top of one.
LANGUAGE_MODEL: Final = "language model"
LANGUAGE_MODELS: Final = ("mlm", "clm")
CLASSIFIER: Final = "classifier"
TAGGER: Final = "tagger"
#: Attacks on these by the labels that they give; the last of each is label-only.
HEAD_ATTACKS_WITHOUT_SHADOWS: Final = ("label_loss", "label_confidence", "label_only")
HEAD_ATTACKS_BY_SHADOWS: Final = ("label_shadow", "label_lira", "label_lira_offline", "label_only_shadow")
#: The attacks on the user-inference holdout, without and with shadow models; all others score the documents of the
#: audit.
USER_INFERENCE: Final = "user_inference"
USER_INFERENCE_SHADOWS: Final = "user_inference_shadows"
ON_HOLDOUT: Final = frozenset({USER_INFERENCE, USER_INFERENCE_SHADOWS})
#: The attack on each token that looks at the whole prediction of the model and of its base.
INFORMATION: Final = "informia_tokens"
#: Differences to the base model that are functions of log-probabilities alone.
OF_LOG_PROBS: Final = frozenset({"reference", "ratio", "wbc", "hard_tokens", "mlm_ratio"})
#: Attacks that are differences to the base model already, so that the base itself is no control of theirs.
DIFFERENCES: Final = OF_LOG_PROBS | {"ez", USER_INFERENCE, INFORMATION}
#: The attack on text that a causal model generates; it sees no probability.
COVERAGE: Final = "ngram_coverage"
#: The attack that puts a copy of the text with gaps before it: its copies, and the most tokens that it copies.
PROBING: Final = "icp"
PROBE_COPIES: Final = 4
PROBE_TOKENS: Final = 64
#: The attack on the end of the documents, which no other looks at.
END_OF_TEXT: Final = "end_of_text"
#: The attack with access to the weights: the norm of the gradient, of the loss of ordinary words.
GRADIENT: Final = "gradient_norm"
#: The attack by a probe of hidden states.
STATES: Final = "hidden_states"
#: The attack over the checkpoints of a training.
CHECKPOINTS: Final = "checkpoints"
#: The attack by a reference that is trained on what the model writes: the texts, and the most tokens of each.
SELF_CALIBRATION: Final = "self_calibration"
CALIBRATION_TEXTS: Final = 1000
CALIBRATION_TOKENS: Final = 64
CALIBRATION_EPOCHS: Final = 4
#: The attack by the difference of two releases: who withdrew between them.
WITHDRAWN: Final = "two_releases"
#: A share of members told at 1 % false positives is given from so many members and so many others on: chance alone
#: gives it a few in a hundred there.
FEWEST_MEMBERS: Final = 300
FEWEST_OTHERS: Final = 1000
#: Members and others whose gradients are asked for at most, some more than `FEWEST_MEMBERS` and `FEWEST_OTHERS`, and
#: documents of each.
MOST_MEMBERS: Final = 320
MOST_OTHERS: Final = 1060
MOST_DOCUMENTS: Final = 2
#: Attacks that need the compressed sizes of the texts.
ATTACKS_ON_SIZES: Final = frozenset({"zlib"})
#: Attacks by kind of word that look at shadow models.
KIND_SHADOWS: Final = frozenset({"lira", "lira_textbook"})
#: Families of numbers of membership by identifying words whose ends hold at once: the kinds, and three at the
#: threshold.
NUM_FAMILIES: Final = 4
#: What an adversary of the clinical ladder knows of an individual, each more than the one before: name -> words for it.
RUNGS: Final = {
    "demographics": "public demographics",
    "encounter": "encounter metadata",
    "fragment": "a fragment of a note",
    "colleague": "what a colleague knows",
}
#: Individuals with a diagnosis, and without it, that each side must have.
FEWEST_DIAGNOSED: Final = 50
#: Default attacks of a job; a report shows these first, in this order.
DEFAULT_ATTACKS: Final = ("loss", "reference", "zlib", "min_k", "min_k_plus_plus", "wbc", "ez", END_OF_TEXT, GRADIENT)
#: Default attacks with shadow models.
DEFAULT_SHADOW_ATTACKS: Final = ("shadow", "lira_online", "lira_offline", "lira_sequence", "rmia")
