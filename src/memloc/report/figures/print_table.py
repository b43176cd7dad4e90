"""Tables as LaTeX (booktabs) and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memloc.report.figures.data import PrintedTable

MISSING = "–"
_LATEX = {
    "\\": r"\textbackslash{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "≫": r"$\gg$",
    "ρ": r"$\rho$",
    "θ": r"$\theta$",
    "×": r"$\times$",
    "−": "$-$",
    "–": "--",
    "₁": r"$_1$",
    "₂": r"$_2$",
    "✓": r"\checkmark{}",
    "÷": r"$\div$",
    "…": r"\ldots{}",
    "’": "'",
    "\u200a": "",
}


@dataclass(frozen=True)
class Section:
    """Rows of a table below a heading of their own (empty: none)."""

    heading: str
    rows: Sequence[Sequence[str]]


def print_table(
    name: str, header: Sequence[str], sections: Sequence[Section], caption: str, numbers_from: int
) -> PrintedTable:
    r"""A table in both languages.

    Args:
        name: For `\label`.
        header: Names of the columns.
        sections: The rows.
        caption: What the table shows.
        numbers_from: The first column that is aligned at the right.
    """
    return PrintedTable(
        _latex(name, header, sections, caption, numbers_from),
        _markdown(header, sections, caption, numbers_from),
        caption,
    )


def latex_text(text: str) -> str:
    """With everything escaped that LaTeX would take for a command."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def markdown_text(text: str) -> str:
    """With everything escaped that would end a cell or begin something else."""
    for letter in "\\`*_[]<>|":
        text = text.replace(letter, f"\\{letter}")
    return text


def _latex(
    name: str, header: Sequence[str], sections: Sequence[Section], caption: str, numbers_from: int
) -> str:
    columns = "l" * numbers_from + "r" * (len(header) - numbers_from)
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        r"\small",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _latex_row(header),
        r"\midrule",
    ]
    for place, section in enumerate(sections):
        if place:
            lines.append(r"\midrule")
        if section.heading:
            words = rf"\emph{{{latex_text(section.heading)}}}"
            lines.append(rf"\multicolumn{{{len(header)}}}{{l}}{{{words}}} \\")
        lines += [_latex_row(row) for row in section.rows]
    lines += [
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{latex_text(caption)}}}",
        rf"\label{{tab:{name}}}",
        r"\end{table}",
    ]
    if any("\\checkmark" in line for line in lines):
        lines[0] += r" and \usepackage{amssymb}"
    return "\n".join(lines) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(latex_text(cell) for cell in cells) + r" \\"


def _markdown(
    header: Sequence[str], sections: Sequence[Section], caption: str, numbers_from: int
) -> str:
    lines = [_markdown_row(header)]
    ends = ["---"] * numbers_from + ["---:"] * (len(header) - numbers_from)
    lines.append(f"| {' | '.join(ends)} |")
    for section in sections:
        if section.heading:
            rest = [""] * (len(header) - 1)
            lines.append(f"| *{markdown_text(section.heading)}* | {' | '.join(rest)} |")
        lines += [_markdown_row(row) for row in section.rows]
    return "\n".join([*lines, "", caption]) + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(markdown_text(cell) for cell in cells)} |"
