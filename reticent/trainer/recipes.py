"""Recipes: every training variant as one row of data (definitions.md#training), and recipes that a user defines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field

from reticent.core.errors import PolicyError
from reticent.core.section import PUBLISHED, Section
from reticent.engine.schema import DIRECT, INDIRECT, Words

if TYPE_CHECKING:
    from reticent.engine.protect import Policy

Objective = Literal["mlm", "clm"]
Context = Literal["keep", "surrogate", "tag"]
Head = Literal["class", "tags"]

#: Flag bit of a token that the goldfish loss drops. It is set when training starts; no store on disk has it.
DROPPED: Final = 4
#: Fields of the protection policy that a recipe may override.
PROTECTION: Final = {"k", "n", "policy"}
#: The names of flags in a job file.
FLAGS: Final = {"direct": DIRECT, "indirect": INDIRECT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The task a model is trained on: its targets, its text, and the tokens that are never a target.

    Parameters
    ----------
    objective : {"mlm", "clm"}
        Masked or causal language modelling.
    text : {"original", "pseudonymised"}
        Pseudonymised text has ``X`` for each word of a direct identifier; X stays in the loss.
    never_target : int
        Bit mask of the flags (`DIRECT`, `INDIRECT`) of tokens that are context only and never a prediction target.
    context : {"keep", "surrogate", "tag"}
        The text in place of a direct identifier: the identifier itself, a random surrogate of its category that is
        drawn anew in each epoch, or ``[NAME]``. A replacement is never a target either.
    context_indirect : {"keep", "surrogate", "tag"}
        The same for a word of an indirect identifier: the word itself, a public word of as many tokens that is drawn
        anew in each epoch, or as many tokens that stand for no word.
    freeze_embeddings : bool
        Whether every row of the vocabulary keeps the value of the base model: input embeddings, output embeddings (the
        same matrix if weights are tied) and the bias of the output.
    goldfish_k : int, optional
        One token in k is never a target (Hans et al. 2024, §3.1). A hash of the ``goldfish_h`` tokens before it
        decides, so copies of a passage lose the same tokens. None: no token is dropped.
    mask_split : three shares that add up to 1
        Shares of the words that MLM draws: masked, replaced by random tokens, and unchanged. All of them are targets.
        BERT's split is (0.8, 0.1, 0.1).
    private : bool
        Whether the recipe trains by DP-SGD.
    words : {"counted", "public", "private"}
        What makes an indirect identifier: that fewer than k individuals use it; that it is on no public list
        (`protect.public_words`); that it is neither there nor in the private vocabulary (`[threshold]`). In the last
        two the flags of an individual follow from their own documents, or cost epsilon.
    head : {"class", "tags"}, optional
        A new head in place of the model's own learns labels in place of words: a class of each document, or a tag of
        each token. Then ``objective`` is that of the base model, and no word is a target.
    """

    name: str
    objective: Objective
    text: Literal["original", "pseudonymised"] = "original"
    never_target: int = 0
    context: Context = "keep"
    context_indirect: Context = "keep"
    freeze_embeddings: bool = False
    goldfish_k: int | None = None
    goldfish_h: int = 13
    mask_split: tuple[float, float, float] = (1.0, 0.0, 0.0)
    private: bool = False
    words: Words = "counted"
    head: Head | None = None

    def __post_init__(self) -> None:
        if self.objective not in ("mlm", "clm"):
            self._refuse("objective", "mlm or clm", self.objective)
        if self.text not in ("original", "pseudonymised"):
            self._refuse("text", "original or pseudonymised", self.text)
        for name in ("context", "context_indirect"):
            if getattr(self, name) not in ("keep", "surrogate", "tag"):
                self._refuse(name, "keep, surrogate or tag", getattr(self, name))
        if self.never_target & ~(DIRECT | INDIRECT):
            self._refuse("never_target", "flags direct and indirect", self.never_target)
        if self.context != "keep" and self.text != "original":
            self._refuse("context", "keep where direct identifiers are X already", self.context)
        if self.goldfish_k is not None and self.objective != "clm":
            self._refuse("goldfish_k", "none: the goldfish loss is one of clm", self.goldfish_k)
        if (self.goldfish_k is not None and self.goldfish_k < 2) or self.goldfish_h < 1:
            self._refuse("goldfish", "k of at least 2 and h of at least 1", (self.goldfish_k, self.goldfish_h))
        shares = self.mask_split
        if len(shares) != 3 or not all(0 <= share <= 1 for share in shares) or abs(sum(shares) - 1) > 1e-9:
            self._refuse("mask_split", "three shares (masked, random, kept) that add up to 1", shares)
        if self.objective == "clm" and shares[0] != 1:
            self._refuse("mask_split", "none: clm masks no word", shares)
        if self.head and (self.never_target or self.replaces_indirect or self.goldfish_k or shares[0] != 1):
            self._refuse("head", "no protection of targets, as no word is one", self.head)

    def _refuse(self, what: str, expected: str, got: object) -> None:
        """Raise `PolicyError` about the recipe's field ``what``, with what was expected and what was given."""
        raise PolicyError(f"recipe {self.name}: {what}: expected {expected}; got {got}")

    @property
    def protected_flags(self) -> int:
        """Flag bits of the tokens that are never prediction targets, including replaced identifiers and tokens that a
        goldfish loss drops.
        """
        replaced = (DIRECT if self.context != "keep" else 0) | (INDIRECT if self.replaces_indirect else 0)
        return self.never_target | replaced | (DROPPED if self.goldfish_k is not None else 0)

    @property
    def is_causal(self) -> bool:
        """Whether each token predicts the next: a causal language model without a new head."""
        return self.objective == "clm" and self.head is None

    @property
    def replaces_indirect(self) -> bool:
        """Whether the words of indirect identifiers are replaced in the training text."""
        return self.context_indirect != "keep"

    @property
    def protects_identifiers(self) -> bool:
        """Whether neither direct nor indirect identifiers are targets."""
        replaced = DIRECT if self.text == "pseudonymised" else 0
        return (self.protected_flags | replaced) & (DIRECT | INDIRECT) == DIRECT | INDIRECT

    @property
    def replaces_identifiers(self) -> bool:
        """Whether neither direct nor indirect identifiers remain in the text, not even as context."""
        return self.replaces_indirect and (self.context != "keep" or self.text == "pseudonymised")

    @property
    def tokens(self) -> str:
        """Name of the token store that the recipe trains on ("train", "train-tag", "train-pseudonymised"); a text with
        surrogates is tokenised anew in each epoch."""
        if self.text == "pseudonymised":
            return "train-pseudonymised"
        return "train-tag" if self.context == "tag" else "train"

    @property
    def about(self) -> str:
        """A one-line description of the recipe."""
        parts = ["masked" if self.objective == "mlm" else "causal"]
        if self.head:
            parts.append({"class": "a new head for classes of documents", "tags": "a new head for tags"}[self.head])
        if self.text == "pseudonymised":
            parts.append("X for direct identifiers")
        if self.context != "keep":
            parts.append(
                {"tag": "a tag for direct identifiers", "surrogate": "a new surrogate each epoch"}[self.context]
            )
        if self.replaces_indirect:
            parts.append(
                {"tag": "a blank for indirect identifiers", "surrogate": "public words for indirect identifiers"}[
                    self.context_indirect
                ]
            )
        hidden = [name for name, bit in FLAGS.items() if self.never_target & bit]
        if hidden:
            parts.append(f"{' and '.join(hidden)} identifiers never a target")
        if self.goldfish_k is not None:
            parts.append(f"one token in {self.goldfish_k} dropped by a hash of the {self.goldfish_h} before it")
        if self.mask_split[0] != 1:
            parts.append("split " + "/".join(f"{100 * share:g}" for share in self.mask_split))
        if self.words != "counted":
            parts.append(f"shared words by {'a public list' if self.words == 'public' else 'a private vocabulary'}")
        if self.freeze_embeddings:
            parts.append("embeddings frozen")
        if self.private:
            parts.append("DP-SGD")
        return ", ".join(parts) if len(parts) > 1 else f"{parts[0]}, no protection"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values, without ``context_indirect``, ``words`` and ``head`` at their defaults, so
        that records older than these fields still match."""
        values = {**asdict(self), "mask_split": list(self.mask_split)}
        if not self.replaces_indirect:
            del values["context_indirect"]
        if self.words == "counted":
            del values["words"]
        if self.head is None:
            del values["head"]
        return values

    @property
    def uses_flags(self) -> bool:
        """Whether training depends on the protection flags; if not, a change of the protection leaves it unchanged."""
        return self.protected_flags != 0


class RecipeChanges(Section):
    """A user-defined recipe: the built-in recipe ``base`` with some fields changed."""

    base: Annotated[str, PUBLISHED] = Field(description="name of a built-in recipe")
    objective: Objective | None = None
    text: Literal["original", "pseudonymised"] | None = Field(
        default=None, description="pseudonymised: X for each direct identifier, and X is a target"
    )
    never_target: tuple[Literal["direct", "indirect"], ...] | None = None
    context: Context | None = Field(
        default=None, description="what stands for a direct identifier; surrogates and tags are never a target"
    )
    context_indirect: Context | None = Field(
        default=None,
        description="what stands for a word of an indirect identifier: a public word ([surrogates] pool) of as many "
        "tokens, drawn afresh each epoch, or blanks; never a target",
    )
    freeze_embeddings: bool | None = Field(
        default=None, description="leave the embeddings as they are: a masked model trained whole learns what it reads"
    )
    goldfish_k: int | None = Field(default=None, description="drop one token in k by a hash; clm only")
    goldfish_h: int | None = Field(default=None, description="of that many tokens before it")
    mask_split: tuple[float, float, float] | None = Field(
        default=None, description="shares of the drawn words that are masked, replaced at random, kept; mlm only"
    )
    private: bool | None = Field(default=None, description="DP-SGD")
    words: Words | None = Field(
        default=None,
        description="what tells an indirect identifier: fewer than k users; that it is not on protect.public_words; "
        "that it is neither there nor in the private vocabulary ([threshold])",
    )
    k: int | None = Field(default=None, description="protect.k of this recipe alone; so n and policy")
    n: int | None = None
    policy: Literal["all", "last", "cover", "paper"] | None = None

    def named(self, name: str) -> Recipe:
        """Return the recipe that these changes to the built-in recipe ``base`` make, under the given name; it raises
        the errors of :func:`custom_recipe`."""
        given = self.model_dump(exclude={"base", *PROTECTION}, exclude_unset=True, exclude_none=True)
        return custom_recipe(name, self.base, given)

    def protection(self, policy: Policy) -> Policy:
        """Return the job's protection ``policy``, with k, n and kind of policy replaced where this recipe sets them;
        the result is validated."""
        return type(policy)(**{**policy.model_dump(), **self.model_dump(include=PROTECTION, exclude_none=True)})


def _both_objectives(prefix: str, suffix: str, **more: object) -> list[Recipe]:
    """Return two recipes with the same settings, for masked ("mlm") and causal ("clm") models."""
    return [Recipe(name=f"{prefix}{o}{suffix}", objective=o, **more) for o in ("mlm", "clm")]  # type: ignore[arg-type]


#: All recipes by name.
RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        *_both_objectives("", ""),
        *_both_objectives("", "a", text="pseudonymised"),
        *_both_objectives("dpp", "", never_target=DIRECT),
        *_both_objectives("ipp", "", never_target=INDIRECT),
        *_both_objectives("pp", "", never_target=DIRECT | INDIRECT),
        *_both_objectives("ipp", "-surrogate", never_target=INDIRECT, context_indirect="surrogate"),
        *_both_objectives(
            "pp", "-surrogate", never_target=DIRECT | INDIRECT, context="surrogate", context_indirect="surrogate"
        ),
        *_both_objectives("dp-", "", private=True),
        *_both_objectives("dp-", "-public", never_target=DIRECT | INDIRECT, private=True, words="public"),
        *_both_objectives("private-", "", never_target=DIRECT | INDIRECT, private=True, words="private"),
        Recipe(name="goldfish", objective="clm", goldfish_k=4),
    )
}


def get_recipe(name: str, *, also: Iterable[str] = ()) -> Recipe:
    """Return the built-in recipe of this name. The `PolicyError` for an unknown name lists the built-in names and those
    in ``also``."""
    try:
        return RECIPES[name]
    except KeyError:
        known = sorted([*RECIPES, *also])
        near = " or ".join(get_close_matches(name, known, n=2))
        hint = f" (did you mean {near}?)" if near else ""
        raise PolicyError(f"unknown recipe {name!r}{hint}; expected one of {', '.join(known)}") from None


def at_epsilon(name: str, epsilon: float) -> str:
    """Return the name of a private recipe's training at one of several target epsilons, such as "dp-mlm-epsilon-8".

    >>> at_epsilon("dp-clm", 8.0), parted_name("dp-clm-epsilon-0.5"), parted_name("dp-clm")
    ('dp-clm-epsilon-8', ('dp-clm', 0.5), ('dp-clm', None))
    """
    return f"{name}-epsilon-{str(float(epsilon)).removesuffix('.0')}"


def parted_name(name: str) -> tuple[str, float | None]:
    """Split the name of a training made by `at_epsilon`, such as "dp-mlm-epsilon-8", into recipe name and epsilon; any
    other name is returned with None."""
    found = re.fullmatch(r"(.+)-epsilon-(\d+(?:\.\d+)?(?:e-?\d+)?)", name)
    return (name, None) if found is None else (found[1], float(found[2]))


def custom_recipe(name: str, base: str, changes: Mapping[str, Any]) -> Recipe:
    """Return the built-in recipe ``base`` under another name and with changed fields.

    ``never_target`` is given as a list of names: ``["direct", "indirect"]``.

    Raises
    ------
    PolicyError
        The name is that of a built-in recipe, the base is not a built-in recipe, or a field is unknown or invalid.

    >>> custom_recipe("tagged", "ppclm", {"context": "tag", "never_target": ["indirect"]}).about
    'causal, a tag for direct identifiers, indirect identifiers never a target'
    """
    if name in RECIPES or name == "base":
        raise PolicyError(f"recipes.{name}: a recipe of this name is there already; choose another")
    known = {field.name for field in fields(Recipe)} - {"name", "head"}
    unknown = sorted(set(changes) - known)
    if unknown:
        raise PolicyError(f"recipes.{name}.{unknown[0]}: unknown field; expected base, {', '.join(sorted(known))}")
    values = dict(changes)
    if "never_target" in values:
        wrong = [flag for flag in values["never_target"] if flag not in FLAGS]
        if wrong:
            raise PolicyError(f"recipes.{name}.never_target: expected direct and indirect, got {wrong[0]!r}")
        values["never_target"] = sum(FLAGS[flag] for flag in set(values["never_target"]))
    if "mask_split" in values:
        values["mask_split"] = tuple(values["mask_split"])
    return replace(get_recipe(base), name=name, **values)
