"""Sections on documents: where they are, who is who, what is found in them and what is protected."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from reticent.job.config.section import Section

__all__ = ["CorpusSection", "DedupSection", "DetectSection", "IndexSection", "ProtectSection", "SplitSection"]


def _known_format(format: str) -> str:
    from reticent.engine.sources.formats import format_names

    if format not in format_names():
        raise ValueError(f"expected one of {', '.join(format_names())}")
    return format


class CorpusSection(Section):
    """Where the documents are and which columns hold what."""

    source: str | list[str] = Field(description="file, folder or glob of documents")
    format: Annotated[str, AfterValidator(_known_format)] = Field(
        default="auto", description="auto: Parquet, Arrow, CSV or JSONL by the suffix"
    )
    doc_id: str = "doc_id"
    individual_id: str = "individual_id"
    text: str = "text"
    household_id: str | None = None
    label: str | None = None
    ids: Literal["stop", "fold", "exact"] = Field(
        default="stop",
        description="ids of individuals or households that differ only in case, blanks, invisible characters, Unicode "
        "form, zero padding or a trailing .0: they stop the run, are joined, or are different ones",
    )
    withdrawn: list[str] = Field(
        default=[], description="files of individual ids, one a line, whose documents are left out everywhere"
    )
    delimiter: str = Field(
        default="auto", description='of CSV: one character, or "tab"; auto: the one with which the header fits'
    )
    quote: str = Field(default="auto", description='of CSV: one character, or "none" where quotes are part of the text')
    encoding: str = Field(
        default="auto", description="of CSV: a text encoding; auto: as a byte order mark says, else UTF-8 or cp1252"
    )
    on_null: Literal["stop", "skip"] = Field(
        default="stop", description="what a document does whose text is null: stop the run, or be left out and counted"
    )
    spans: str | None = None
    mentions: str | None = Field(default=None, description="column of marks with entity_id and identifier_type")
    offsets: Literal["characters", "bytes", "utf-16"] = Field(
        default="characters", description="what offsets of a marked-up format count"
    )
    individual: str | None = Field(
        default=None, description="regular expression of a marked-up document id; its group is the individual"
    )
    annotator: str | None = Field(default=None, description="the one annotator of TAB to believe; default: all")
    identifiers: list[Literal["DIRECT", "QUASI", "NO_MASK"]] = Field(
        default=["DIRECT", "QUASI"], description="types of TAB whose mentions are spans"
    )

    @property
    def marked(self) -> bool:
        """Whether the format brings spans that humans marked."""
        from reticent.engine.sources.formats import FORMATS

        return self.format in FORMATS and FORMATS[self.format].is_marked


class DedupSection(Section):
    """Copies of documents that later stages do not see; the first of several stays."""

    mode: Literal["off", "exact", "near"] = "off"
    scope: Literal["individual", "corpus"] = Field(
        default="individual", description="copies of an individual's own documents, or of anybody's"
    )
    threshold: float = Field(default=0.8, gt=0, le=1)
    shingle_words: int = Field(default=5, ge=1)
    passage_words: int = Field(default=50, ge=1)


class SplitSection(Section):
    """Shares of the individuals (or households) that are never trained on; members are the rest."""

    heldout: float = Field(default=0.4, gt=0, lt=1)
    reference: float = Field(default=0.0, ge=0, lt=1)
    by: Literal["auto", "individual", "household"] = "auto"
    fresh: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of the documents of everybody with several that only the attack user_inference sees; "
        "at least one each, never all",
    )

    @model_serializer(mode="wrap")
    def _as_before(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without ``fresh`` where there is none: results that were made before there was this option stay current."""
        values: dict[str, Any] = dump(self)
        if not self.fresh:
            values.pop("fresh", None)
        return values

    @model_validator(mode="after")
    def _leaves_members(self) -> SplitSection:
        if self.heldout + self.reference >= 1:
            raise ValueError("heldout and reference must leave a share for members")
        return self


Options = dict[str, Any]


class DetectSection(Section):
    """Detectors of direct identifiers; their spans are united. Each has a table of options, ``[detect.spacy]`` say.

    For the option a detector cannot do without there is a short form: ``records = "FILE"``, ``spacy = "PIPELINE"``,
    ``transformers = "MODEL"`` and ``lists = { LABEL = "FILE" }``.
    """

    detectors: list[Literal["gold", "rules", "records", "gazetteer", "spacy", "transformers", "presidio", "eds"]] = (
        Field(default=["rules"])
    )
    on_error: Literal["stop", "quarantine"] = Field(
        default="stop", description="what a document does that a detector fails on: stop the run, or be left out"
    )
    propagate: bool = Field(default=False, description="what is found once is found wherever else it stands")
    gold: Options = Field(default={})
    rules: Options = Field(default={})
    records: Options = Field(default={})
    gazetteer: Options = Field(default={})
    spacy: Options = Field(default={})
    transformers: Options = Field(default={})
    presidio: Options = Field(default={})
    eds: Options = Field(default={})

    @model_validator(mode="before")
    @classmethod
    def _long_forms(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        values = dict(values)
        for name, option in (("records", "table"), ("spacy", "pipeline"), ("transformers", "model")):
            if values.get(name, "") is None:
                del values[name]
            elif isinstance(values.get(name), str):
                values[name] = {option: values[name]}
        if lists := values.pop("lists", None):
            values["gazetteer"] = {**(values.get("gazetteer") or {}), "lists": lists}
        return values

    @model_validator(mode="after")
    def _consistent(self) -> DetectSection:
        from reticent.engine.detect import DETECTORS, check_options

        if len(set(self.detectors)) != len(self.detectors):
            raise ValueError("a detector stands twice")
        for name in DETECTORS:
            if name in self.detectors:
                check_options(name, getattr(self, name))
            elif getattr(self, name):  # names thought protected would be targets
                raise ValueError(f'detect.{name} is given, but "{name}" is not among detect.detectors')
        return self

    @property
    def options(self) -> dict[str, Options]:
        """Options of each detector that is chosen."""
        return {name: getattr(self, name) for name in self.detectors}


class IndexSection(Section):
    """The graph of n-grams and individuals."""

    max_n: int = Field(default=1, ge=1, le=8)
    surface: Literal["exact", "casefold", "fold"] = "exact"
    updatable: bool = Field(
        default=False, description="keep every n-gram, also what one individual alone uses: `reticent update` needs it"
    )


class ProtectSection(Section):
    """Which words must never be a target."""

    k: int = Field(default=2, ge=2, le=255)
    n: int = Field(default=1, ge=1, le=8)
    policy: Literal["all", "last", "cover", "paper"] = "all"
    max_document_frequency: float | None = Field(default=None, gt=0, le=1)
    scopes: dict[str, Literal["corpus", "individual", "occurrence"]] = Field(default={})
