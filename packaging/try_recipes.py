"""Run the steps of the recipes of images in a folder, where no container runtime is at hand.

    python packaging/try_recipes.py FOLDER [Containerfile] [reticent.def]

Copied files and every line of RUN and %post are taken from the recipes themselves; /tmp/reticent and /opt/reticent
stand under FOLDER then; TORCH and EXTRAS of the environment are taken. At last the installed command indexes a few
documents. The base image is not tried: Python is the one found here, 3.11 or newer. Exit 1 where a step fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATHS = ("/tmp/reticent", "/opt/reticent")


@dataclass
class Recipe:
    """Steps of a recipe: copies (from, to), lines of a shell, and variables."""

    copies: list[tuple[str, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)


def read_containerfile(text: str) -> Recipe:
    """Return the steps of ARG, COPY and RUN before another user is taken."""
    recipe = Recipe()
    for line in text.partition("\nUSER ")[0].splitlines():
        word, _, rest = line.partition(" ")
        if word == "ARG":
            name, _, value = rest.partition("=")
            recipe.variables[name] = value
        elif word == "COPY":
            *sources, target = rest.split()
            recipe.copies += [(source, target) for source in sources]
        elif word == "RUN":
            recipe.lines.append(rest)
    return recipe


def read_definition(text: str) -> Recipe:
    """Return the steps of %files and %post."""
    sections = dict(re.findall(r"^%(\w+)\n(.*?)(?=^%|\Z)", text, re.MULTILINE | re.DOTALL))
    copies = [tuple(line.split()) for line in sections["files"].splitlines() if line.strip()]
    return Recipe([(source, target) for source, target in copies], [sections["post"]])


def try_recipe(recipe: Recipe, folder: Path) -> None:
    """Run the steps under ``folder``; raises `subprocess.CalledProcessError` where one fails."""
    for source, target in recipe.copies:
        place = folder / target.lstrip("/")
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, place, dirs_exist_ok=True)
        else:
            place = place / Path(source).name if target.endswith("/") else place
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / source, place)
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment |= {name: _moved(value, folder) for name, value in recipe.variables.items()}
    for name in (
        "TORCH",
        "EXTRAS",
        "PIP_INDEX_URL",
        "UV_DEFAULT_INDEX",
        "UV_INDEX_URL",
        "SSL_CERT_FILE",
        "PIP_CERT",
        "UV_CACHE_DIR",
    ):
        if name in os.environ:
            environment[name] = os.environ[name]
    for line in recipe.lines:
        command = ["sh", "-euc", _moved(line, folder)]
        subprocess.run(command, check=True, cwd=folder, env=environment)
    notes = "doc_id,individual_id,text\n" + "".join(f"{n},{n // 2},fever and cough {n}\n" for n in range(8))
    (folder / "notes.csv").write_text(notes)
    installed = str(folder / "opt/reticent/bin/reticent")
    command = [installed, "index", "notes.csv", "--out", "run", "--log-format", "json"]
    subprocess.run(command, check=True, cwd=folder, env={"HOME": str(folder)})


def _moved(text: str, folder: Path) -> str:
    for path in PATHS:
        text = text.replace(path, str(folder / path.lstrip("/")))
    return text


def main(arguments: list[str]) -> int:
    """Return the exit status."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    folder, names = Path(arguments[0]).resolve(), arguments[1:] or ["Containerfile", "reticent.def"]
    for name in names:
        text = (ROOT / "packaging" / name).read_text(encoding="utf-8")
        place = folder / name
        place.mkdir(parents=True)
        try:
            try_recipe(read_definition(text) if name.endswith(".def") else read_containerfile(text), place)
        except subprocess.CalledProcessError as error:
            print(f"{name}: a step ended with {error.returncode}", file=sys.stderr)
            return 1
        print(f"{name}: every step ends with 0")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
