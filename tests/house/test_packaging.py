"""Recipes of images and the script of the wheel: they say the same, and what they name is there."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import reticent

ROOT = Path(reticent.__file__).parents[1]
PACKAGING = ROOT / "packaging"
pytestmark = pytest.mark.skipif(not PACKAGING.exists(), reason="needs the sources")


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, PACKAGING / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded  # where dataclasses look for it
    spec.loader.exec_module(loaded)
    return loaded


def test_both_recipes_copy_the_same_files_and_run_the_same_script() -> None:
    recipes = module("try_recipes")
    container = recipes.read_containerfile((PACKAGING / "Containerfile").read_text())
    apptainer = recipes.read_definition((PACKAGING / "reticent.def").read_text())
    names = [{Path(source).name for source, _ in recipe.copies} for recipe in (container, apptainer)]
    assert names[0] == names[1] == {"dist", "requirements.lock", "install.sh"}
    calls = [re.findall(r"install\.sh (\S+) (\S+)", " ".join(recipe.lines)) for recipe in (container, apptainer)]
    assert calls[0] == calls[1] != []
    for source, _ in container.copies:
        assert source == "dist/" or (ROOT / source).is_file()


def test_both_recipes_start_from_one_image_named_by_its_digest() -> None:
    container = (PACKAGING / "Containerfile").read_text()
    apptainer = (PACKAGING / "reticent.def").read_text()
    bases = [
        re.search(pattern, text, re.MULTILINE)
        for pattern, text in (
            (r"^ARG BASE=docker\.io/library/(python@sha256:[0-9a-f]{64})$", container),
            (r"^From: (python@sha256:[0-9a-f]{64})$", apptainer),
        )
    ]
    assert bases[0] is not None
    assert bases[1] is not None
    assert bases[0][1] == bases[1][1]
    assert re.findall(r"^FROM (.*)$", container, re.MULTILINE) == ["$BASE"]


def test_an_image_has_the_extras_that_a_whole_run_imports() -> None:
    """The engine alone needs no torch, so the lowest set of extras is not enough for `reticent run`."""
    script = (PACKAGING / "install.sh").read_text()
    extras = re.search(r'"reticent\[([^]]+)\]', script)
    assert extras is not None
    named = set(extras[1].split(","))
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"train", "audit", "dp"} <= named & known.keys()


@pytest.mark.parametrize("name", ["bundle.sh", "install.sh", "wheel.sh"])
def test_scripts_are_valid(name: str) -> None:
    assert subprocess.run(["sh", "-n", str(PACKAGING / name)], check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "symbols", "status"),
    [
        ("reticent-1-cp311-abi3-manylinux_2_28_x86_64.whl", b"\0GLIBC_2.17\0GLIBC_2.28\0GLIBC_2.2.5", 0),
        ("reticent-1-cp311-abi3-manylinux_2_28_x86_64.whl", b"\0GLIBC_2.34", 1),
        ("reticent-1-cp311-abi3-manylinux_2_34_x86_64.whl", b"\0GLIBC_2.28", 1),
        ("reticent-1-cp311-abi3-linux_x86_64.whl", b"\0GLIBC_2.28", 1),
    ],
)
def test_a_wheel_that_needs_a_newer_glibc_is_found_out(
    name: str, symbols: bytes, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(tmp_path / name, "w") as wheel:
        wheel.writestr("reticent/_rust.abi3.so", b"\x7fELF" + symbols)
    assert module("check_wheel").main([str(tmp_path / name)]) == status
    assert "_rust.abi3.so: glibc 2." in capsys.readouterr().out


def test_a_wheel_is_the_same_whenever_and_wherever_it_was_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels, settle = [], module("settle_wheel")
    for number in "12":
        bill = {
            "serialNumber": number,
            "metadata": {"timestamp": number, "component": f"file:///home/{number}#reticent"},
        }
        wheels.append(tmp_path / f"{number}.whl")
        with zipfile.ZipFile(wheels[-1], "w") as written:
            for name, text in (
                ("r.dist-info/sboms/r.json", json.dumps(bill)),
                (
                    "r.dist-info/RECORD",
                    f"r.py,sha256=x,1\nr.dist-info/sboms/r.json,sha256={number},2\nr.dist-info/RECORD,,\n",
                ),
            ):
                written.writestr(zipfile.ZipInfo(name), text)
        monkeypatch.setattr(settle, "ROOT", Path(f"/home/{number}"))
        settle.settle(wheels[-1])
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    with zipfile.ZipFile(wheels[0]) as read:
        data, record = read.read("r.dist-info/sboms/r.json"), read.read("r.dist-info/RECORD").decode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    assert json.loads(data) == {"metadata": {"component": "file:///reticent#reticent"}}
    assert record == f"r.py,sha256=x,1\nr.dist-info/sboms/r.json,sha256={digest},{len(data)}\nr.dist-info/RECORD,,\n"


def test_the_steps_of_a_recipe_stand_under_the_folder_that_is_given(tmp_path: Path) -> None:
    recipes = module("try_recipes")
    recipe = recipes.Recipe(
        [("requirements.lock", "/tmp/reticent/")], ["test -f /tmp/reticent/requirements.lock; exit 7"]
    )
    with pytest.raises(subprocess.CalledProcessError) as failed:
        recipes.try_recipe(recipe, tmp_path)
    assert failed.value.returncode == 7
    assert (tmp_path / "tmp/reticent/requirements.lock").is_file()


def test_every_step_of_a_workflow_is_a_target_of_the_makefile() -> None:
    """Workflows run elsewhere; what their steps call runs here too."""
    called = set()
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            targets = job["strategy"]["matrix"].get("target", [""])
            commands = [
                step["run"].replace("${{ matrix.target }}", each)
                for step in job["steps"]
                if "run" in step
                for each in targets
            ]
            assert all(command.startswith("make ") for command in commands)
            called |= {command.split()[1] for command in commands}
            assert all("@" in step.get("uses", "@") for step in job["steps"])
    assert {"test", "lint", "docs", "manylinux", "check-dependencies"} <= called
    for target in called:
        dry = subprocess.run(["make", "-n", target, "TORCH=cpu"], cwd=ROOT, capture_output=True, text=True, check=False)
        assert dry.returncode == 0, (target, dry.stderr)


def test_the_citation_names_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == reticent.__version__
    assert cited["license"] == "Apache-2.0"
