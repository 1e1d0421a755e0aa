"""The built wheel: it holds the package and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import reticent

pytestmark = pytest.mark.heavy

ROOT = Path(reticent.__file__).parents[1]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the names in a wheel built from the tree, with the core as ``make setup`` compiled it."""
    maturin = shutil.which("maturin", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if maturin is None or shutil.which("cargo") is None or not (ROOT / "pyproject.toml").exists():
        pytest.skip("needs the sources, maturin and cargo")
    out = tmp_path_factory.mktemp("wheel")
    command = [maturin, "build", "--release", "--locked", "--offline", "--interpreter", sys.executable, "--out", out]
    built = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = out.glob("*.whl")
    return zipfile.ZipFile(wheel).namelist()


def test_top_level_names_are_reticent_alone(files: list[str]) -> None:
    assert {name.split("/")[0] for name in files} == {"reticent", f"reticent-{reticent.__version__}.dist-info"}


def test_every_module_template_and_type_of_the_package_is_in_it(files: list[str]) -> None:
    tracked = [
        path.relative_to(ROOT).as_posix()
        for pattern in ("*.py", "*.pyi", "*.j2", "*.html", "*.css", "*.js", "*.toml", "py.typed")
        for path in (ROOT / "reticent").rglob(pattern)
    ]
    assert len(tracked) > 50
    assert set(tracked) <= set(files)


def test_the_core_is_one_library_for_every_python_from_3_11(files: list[str]) -> None:
    assert [name for name in files if name.endswith((".so", ".pyd", ".dylib"))] == ["reticent/_rust.abi3.so"]


def test_it_holds_the_bill_of_materials_of_the_core(files: list[str]) -> None:
    assert [name for name in files if ".dist-info/sboms/" in name and name.endswith(".cyclonedx.json")]


def test_no_source_test_or_record_is_in_it(files: list[str]) -> None:
    kinds = {Path(name).suffix for name in files if name.startswith("reticent/")}
    assert kinds <= {".py", ".pyi", ".j2", ".html", ".css", ".js", ".toml", ".so", ".typed", ".parquet", ""}
    tables = {name for name in files if name.endswith(".parquet")}
    assert tables == {f"reticent/engine/detect/taggers/{language}.parquet" for language in ("de", "en", "es", "fr")}
