"""Segments, fields and texts of HL7 v2, the slow way: an expression for each question.

The definition is that of `rust_ext/src/text/hl7.rs`; here it is what was first written, with lists of strings.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import Final, NamedTuple

__all__ = ["Signs", "segments", "unescape"]

#: Segments that are read -> fields of theirs, with the name.
MOST: Final = {"MSH": 10, "PID": 4, "MRG": 2, "TXA": 13, "OBR": 8, "OBX": 12, "ADD": 1}
ENDS: Final = "\r\n\x0b\x1c"
#: Segments of HL7 2.1 to 2.9; those of a site begin with Z.
SEGMENTS: Final = frozenset(
    str.split(
        "ABS ACC ADD ADJ AFF AIG AIL AIP AIS AL1 APR ARQ ARV AUT BHS BLC BLG BPO BPX BTS BTX BUI CDM CDO CER CM0 "
        "CM1 CM2 CNS CON CSP CSR CSS CTD CTI CTR DB1 DEV DG1 DMI DON DPS DRG DSC DSP DST ECD ECR EDU EQL EQP EQU "
        "ERQ ERR EVN FAC FHS FT1 FTS GOL GP1 GP2 GT1 IAM IAR IIM ILT IN1 IN2 IN3 INV IPC IPR ISD ITM IVC IVT LAN "
        "LCC LCH LDP LOC LRL MCP MFA MFE MFI MRG MSA MSH NCK NDS NK1 NPU NSC NST NTE OBR OBX ODS ODT OH1 OH2 OH3 "
        "OH4 OM1 OM2 OM3 OM4 OM5 OM6 OM7 OM8 OMC ORC ORG OVR PAC PCE PCR PD1 PDA PDC PEO PES PID PKG PM1 PMT PR1 "
        "PRA PRB PRC PRD PRT PSG PSH PSL PSS PTH PV1 PV2 PYE QAK QID QPD QRD QRF QRI RCP RDF RDT REL RF1 RFI RGS "
        "RMI ROL RQ1 RQD RXA RXC RXD RXE RXG RXO RXR RXV SAC SCD SCH SCP SDD SFT SGH SGT SHP SID SLT SPM STF STZ "
        "TCC TCD TQ1 TQ2 TXA UAC UB1 UB2 URD URS VAR VND VTQ"
    )
)


class Signs(NamedTuple):
    """The signs of a message."""

    field: str
    component: str
    repetition: str
    escape: str
    subcomponent: str


def segments(message: str, signs: Signs) -> list[tuple[list[str], bool]] | str:
    """What `_rust.hl7_segments` returns."""
    found = lines(message.strip(ENDS), signs.field)
    if isinstance(found, str):
        return found
    empty = signs.field * 18
    split = [(line.rstrip(ENDS) + empty).split(signs.field, most) for line in found if (most := MOST.get(line[:3]))]
    segments = []
    # OBX with the same type (2) and the same behind the value (5) are one.
    for (name, kind, behind), run in groupby(split, lambda fields: (fields[0], *_kind(fields))):
        if name != "OBX":
            segments += [(fields[: MOST[name]], False) for fields in run]
            continue
        values = [fields[5] for fields in run]
        units, reference, *_ = behind
        broken = [*behind, *values] if units or reference else behind
        if kind in ("TX", "FT", "ST"):
            text = signs.repetition.join(values).replace("\r\n", "\n").replace("\r", "\n")
            texts = [unescape(text.replace(signs.repetition, "\n"), signs)]
        else:
            texts = values
        segments.append((["OBX", kind, behind[5], *texts], any("\n" in each or "\r" in each for each in broken)))
    return segments


def _kind(fields: list[str]) -> tuple[str, list[str]]:
    """The type of an OBX, and what stands behind its value."""
    return (fields[2], fields[6:]) if fields[0] == "OBX" else ("", [])


def lines(message: str, sign: str) -> list[str] | str:
    """The segments of a message, each with what goes on with it; or the name of one that may be text."""
    begin = rf"[A-Z][A-Z0-9]{{2}}{re.escape(sign)}"
    first, *others = re.split(f"([{ENDS}])(?={begin})", message)
    found = [first, *others[1::2]]
    end = re.search("[\r\n]", message)
    of_returns = end is not None and end[0] == "\r"
    if of_returns:
        is_certain = message.count("\n") == message.count("\r\n")
    else:
        is_certain = all(line[:3] in SEGMENTS or line[:1] == "Z" for line in found)
    if is_certain:
        return found
    found = [first]
    for end_of_line, line in zip(others[::2], others[1::2], strict=True):
        if end_of_line == "\n" and found[-1].startswith("OBX") and not (of_returns and found[-1][-1] == "\r"):
            name = line[:3]
            if of_returns and name in MOST and name != "OBX":
                return name
            if not (name == "OBX" if of_returns else name in SEGMENTS or name[0] == "Z"):
                found[-1] += end_of_line + line
                continue
        found.append(line)
    return found


def unescape(text: str, signs: Signs) -> str:
    """Return a field's text without its escapes: signs, breaks and spaces are put in, formatting is left out."""
    if signs.escape not in text:
        return text
    plain = {
        "F": signs.field, "S": signs.component, "T": signs.subcomponent, "R": signs.repetition, "E": signs.escape,
        ".br": "\n", ".ce": "\n", "H": "", "N": "", ".fi": "", ".nf": "",
    }  # fmt: skip

    def one(found: re.Match[str]) -> str:
        code = found[1]
        if code is None:  # neighbours are one row of bytes: a character may have several
            data = bytes.fromhex(found[0].replace(signs.escape, "").replace("X", ""))
            try:
                return data.decode()
            except UnicodeDecodeError:
                return data.decode("latin-1")
        if code in plain:
            return plain[code]
        if re.fullmatch(r"\.sp[+]?[0-9]{0,2}", code):
            return "\n" * int(code[3:].lstrip("+") or 1)
        if re.fullmatch(r"\.sk[+]?[0-9]{1,2}", code):
            return " " * int(code[3:].lstrip("+"))
        if re.fullmatch(r"\.(?:in|ti)[+-]?[0-9]{1,3}|[CM][0-9A-Fa-f]+|Z\w*", code):
            return ""
        return found[0]

    return escape_expression(signs.escape).sub(one, text)


def escape_expression(sign: str) -> re.Pattern[str]:
    """Return the expression of an escape, its code the group 1, or of escapes of bytes that follow each other.

    What is no escape, a path of Windows say, takes no sign away from an escape behind it. Since it begins with the sign
    alone, the next one is found without trying the expression at each character.
    """
    sign = re.escape(sign)
    octets = rf"X(?:[0-9A-Fa-f]{{2}})+{sign}"
    code = r"[FSTREHN]|\.[a-z]{2}[+-]?[0-9]{0,3}|[CM][0-9A-Fa-f]+|Z\w*"
    return re.compile(rf"{sign}(?:{octets}(?:{sign}{octets})*|({code}){sign})")
