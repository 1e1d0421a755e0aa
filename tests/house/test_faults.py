"""The faults that `tools.faults` puts in can still be put in."""

from __future__ import annotations

import pytest
from fixtures.places import ROOT

from tools.faults import Fault, read_faults


@pytest.mark.parametrize("fault", read_faults(), ids=lambda fault: fault.name)
def test_text_of_a_fault_stands_once_in_the_product(fault: Fault) -> None:
    assert fault.file.startswith("reticent/")
    assert fault.old != fault.new
    assert (ROOT / fault.file).read_text(encoding="utf-8").count(fault.old) == 1
    assert fault.tests
    assert [name for name in fault.tests if not (ROOT / name).is_file()] == []


def test_faults_have_names_of_their_own() -> None:
    names = [fault.name for fault in read_faults()]
    assert len(set(names)) == len(names) >= 50
