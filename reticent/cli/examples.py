"""An example of every command, which its --help ends with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["EXAMPLES", "example_of"]

EXAMPLES: Mapping[str, str] = MappingProxyType(
    {
        "demo": "reticent demo --out demo-run",
        "new-job": "reticent new-job notes.parquet --individual-id patient_id --minimal > job.toml",
        "run": "reticent run job.toml --until index",
        "status": "reticent status run",
        "synth": "reticent synth hospital --individuals 200 --language en",
        "detect": "reticent detect notes.parquet --detector rules --evaluate",
        "dedup": "reticent dedup notes.parquet --mode near",
        "scrub": "reticent scrub notes.parquet --out scrubbed --style surrogate",
        "index": "reticent index notes.parquet --individual-id patient_id --out run",
        "update": "reticent update monday --add new/ --remove gone.txt --out tuesday",
        "stats": "reticent stats run --out figures",
        "protect": "reticent protect run --model gpt2=models/gpt2 --recipe ppclm --k 3",
        "export": "reticent export run --out results",
        "train": "reticent train run --epochs 8",
        "classify": "reticent classify run --label diagnosis",
        "audit": "reticent audit run",
        "report": "reticent report run --set verdict.emission=0.02",
        "dossier": "reticent dossier run --language fr --key ~/.ssh/id_ed25519 --out to-the-dpo",
        "budget": "reticent budget run",
        "spark": "reticent spark index notes.parquet --out index --master 'local[4]'",
        "probe": "reticent probe models/gpt2 --subjects records.parquet --out probe",
        "guard": "reticent guard build run --out guard",
        "guard build": "reticent guard build run --out guard",
        "guard check": "reticent guard check guard answer.txt",
        "tagger": "reticent tagger attack models/ner --train train.conll --names census --out tagger",
        "tagger attack": "reticent tagger attack models/ner --train train.conll --names census --out tagger",
        "tagger thesis": "reticent tagger thesis base=base.csv large=large.csv",
        "detect sample": "reticent detect sample run --documents 100",
        "detect evaluate": "reticent detect evaluate run annotation/annotated.json",
        "dossier verify": "reticent dossier verify to-the-dpo --signers allowed_signers --model exported",
        "dossier export": "reticent dossier export run gpt2 ppclm --out to-the-partner",
    }
)


def example_of(command: str) -> str | None:
    """Return the line that the help of a command ends with; None for a command without an example, which a test finds:
    the command line works without.
    """
    return f"Example: {EXAMPLES[command]}" if command in EXAMPLES else None
