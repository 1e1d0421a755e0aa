"""Names of attacks that the settings need. This module imports nothing heavy, so reading a job stays fast."""

from __future__ import annotations

from typing import Final

#: Recipes that protect nothing: the positive control of every attack.
PLAIN: Final = ("mlm", "clm")
#: Kinds of judged models: a language model, with one of these objectives, or a classifier or tagger on top of one.
LANGUAGE_MODEL: Final = "language model"
LANGUAGE_MODELS: Final = ("mlm", "clm")
CLASSIFIER: Final = "classifier"
TAGGER: Final = "tagger"
#: Attacks on classifiers and taggers by their predicted labels; the last of each is label-only.
HEAD_ATTACKS_WITHOUT_SHADOWS: Final = ("label_loss", "label_confidence", "label_only")
HEAD_ATTACKS_BY_SHADOWS: Final = ("label_shadow", "label_lira", "label_lira_offline", "label_only_shadow")
#: The attacks on the user-inference holdout, without and with shadow models; all others score the documents of the
#: audit.
USER_INFERENCE: Final = "user_inference"
USER_INFERENCE_SHADOWS: Final = "user_inference_shadows"
ON_HOLDOUT: Final = frozenset({USER_INFERENCE, USER_INFERENCE_SHADOWS})
#: The attack on each token that uses the whole predicted distributions of the model and of its base.
INFORMATION: Final = "informia_tokens"
#: Attacks that compare with the base model and use log-probabilities alone.
OF_LOG_PROBS: Final = frozenset({"reference", "ratio", "wbc", "hard_tokens", "mlm_ratio"})
#: Attacks that compare with the base model already, so that the base itself is no control for them.
DIFFERENCES: Final = OF_LOG_PROBS | {"ez", USER_INFERENCE, INFORMATION}
#: The attack on text that a causal model generates; it sees no probability.
COVERAGE: Final = "ngram_coverage"
#: The attack that puts a copy of the text with gaps before it: number of copies, and largest number of copied tokens.
PROBING: Final = "icp"
PROBE_COPIES: Final = 4
PROBE_TOKENS: Final = 64
#: The attack on the end of the documents, which no other attack uses.
END_OF_TEXT: Final = "end_of_text"
#: The attack with access to the weights: the gradient norm of the loss on ordinary words.
GRADIENT: Final = "gradient_norm"
#: The attack by a probe of hidden states.
STATES: Final = "hidden_states"
#: The attack over the checkpoints of a training.
CHECKPOINTS: Final = "checkpoints"
#: The attack by a reference model trained on generated text: number of texts, tokens of each at most, and epochs.
SELF_CALIBRATION: Final = "self_calibration"
CALIBRATION_TEXTS: Final = 1000
CALIBRATION_TOKENS: Final = 64
CALIBRATION_EPOCHS: Final = 4
#: The attack on who withdrew between two releases, by their difference.
WITHDRAWN: Final = "two_releases"
#: Fewest members and non-members for a true-positive rate at 1 % false positives; with fewer, chance alone would give
#: more than a few in a hundred.
FEWEST_MEMBERS: Final = 300
FEWEST_OTHERS: Final = 1000
#: Largest numbers of members, of non-members, and of documents of each, in the costly attacks (gradients, states): a
#: few more than `FEWEST_MEMBERS` and `FEWEST_OTHERS`.
MOST_MEMBERS: Final = 320
MOST_OTHERS: Final = 1060
MOST_DOCUMENTS: Final = 2
#: Attacks that need the compressed sizes of the texts.
ATTACKS_ON_SIZES: Final = frozenset({"zlib"})
#: Attacks by kind of word that use shadow models.
KIND_SHADOWS: Final = frozenset({"lira", "lira_textbook"})
#: Families of membership numbers by identifying words whose intervals are simultaneous: the kinds of word, and three
#: attacks at the threshold.
NUM_FAMILIES: Final = 4
#: Knowledge of an adversary of the clinical ladder, increasing: name -> description.
RUNGS: Final = {
    "demographics": "public demographics",
    "encounter": "encounter metadata",
    "fragment": "a fragment of a note",
    "colleague": "what a colleague knows",
}
#: Fewest individuals of each side with a diagnosis, and without it.
FEWEST_DIAGNOSED: Final = 50
#: Default attacks of a job; a report shows these first, in this order.
DEFAULT_ATTACKS: Final = ("loss", "reference", "zlib", "min_k", "min_k_plus_plus", "wbc", "ez", END_OF_TEXT, GRADIENT)
#: Default attacks with shadow models.
DEFAULT_SHADOW_ATTACKS: Final = ("shadow", "lira_online", "lira_offline", "lira_sequence", "rmia")
