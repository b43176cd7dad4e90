"""The claims of Dankers & Titov (2024), each with a verdict.

The list is in `claims_on_control` (section 3.2), `claims_on_layers` (section 4) and
`claims_on_movement` (section 5 and the appendices), how a claim is decided in `verdicts`.
"""

from __future__ import annotations

from collections.abc import Sequence

from memloc.paper.claims_on_control import CLAIMS_ON_CONTROL
from memloc.paper.claims_on_layers import CLAIMS_ON_LAYERS
from memloc.paper.claims_on_movement import CLAIMS_ON_MOVEMENT
from memloc.paper.verdicts import VERDICTS, Claim, Evidence, Finding, Verdict, judge
from memloc.results.grid import Grid

CLAIMS: tuple[Claim, ...] = (*CLAIMS_ON_CONTROL, *CLAIMS_ON_LAYERS, *CLAIMS_ON_MOVEMENT)


def check_claims(grid: Grid) -> list[Finding]:
    """Every claim with its verdict."""
    evidence = Evidence(grid)
    return [judge(claim, evidence) for claim in CLAIMS]


def count_verdicts(findings: Sequence[Finding]) -> dict[Verdict, int]:
    """How many hold, do not hold, and lack data."""
    return {one: sum(finding.verdict == one for finding in findings) for one in VERDICTS}
