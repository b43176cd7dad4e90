"""A result at a glance: a few lines of text, or a table and a chart in a notebook.

The HTML is one piece without scripts, styles or anything from elsewhere; all texts are escaped.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from memloc.report.figures.looks import technique_looks

if TYPE_CHECKING:
    from memloc.api.result import Result

WIDTH, HEIGHT, EDGE = 300, 130, 18
"""Of the chart, in pixels."""


def as_text(result: Result) -> str:
    """For a terminal."""
    lines = [f"memloc result: {_title(result)}"]
    summary = result.summary
    if result.of_control:
        rows = [row for row in summary.get("by_technique", []) if row["k"] == 1]
        lines += [f"  {row['technique']:<14} accuracy@1 {row['accuracy']:.2f}" for row in rows]
        return "\n".join(lines)
    lines += [
        f"  {name:<14} M-CoG {_centre(found)}" for name, found in summary["techniques"].items()
    ]
    lines += [f"  {name:<14} left out: {why}" for name, why in result.skipped.items()]
    if summary.get("interpretation"):
        lines.append(f"  {summary['interpretation']}")
    return "\n".join(lines)


def as_html(result: Result) -> str:
    """For a notebook."""
    title = f"<p><b>memloc</b> {escape(_title(result))}</p>"
    if result.of_control:
        accuracy = result.summary.get("by_technique", [])
        rows = [(row["technique"], [f"{row['accuracy']:.2f}"]) for row in accuracy if row["k"] == 1]
        return f"<div>{title}{_table(['accuracy@1'], rows)}</div>"
    techniques: dict[str, Any] = result.summary["techniques"]
    weights = {name: found["layer_weights"] for name, found in techniques.items()}
    n_layers = int(result.summary["layers"])
    rows = [
        (f"layer {layer + 1}", [_number(weights[name][layer]) for name in techniques])
        for layer in range(n_layers)
    ]
    rows.append(("M-CoG", [_centre(found) for found in techniques.values()]))
    words = [result.summary.get("interpretation"), *(result.summary.get("caveats") or [])]
    sentences = "".join(f"<p>{escape(str(sentence))}</p>" for sentence in words if sentence)
    return (
        f'<div>{title}<div style="display:flex;flex-wrap:wrap;gap:1.5em;align-items:flex-start">'
        f"{_table(list(techniques), rows)}{_chart(weights, n_layers)}</div>{sentences}</div>"
    )


def _title(result: Result) -> str:
    summary = result.summary
    if result.of_control:
        return f"control benchmark of {summary.get('control_models')} models"
    on = f" on {summary['task']}" if summary.get("task") else ""
    return (
        f"{summary['model']} ({summary['layers']} layers){on}, {summary.get('noisy_examples', '?')}"
        f" of {summary.get('examples', '?')} labels {'suspected' if result.suspected else 'noisy'}"
    )


def _table(columns: list[str], rows: list[tuple[str, list[str]]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr><th>{escape(name)}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        for name, cells in rows
    )
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"


def _chart(weights: dict[str, list[float | None]], n_layers: int) -> str:
    """Layer weights as lines, each technique divided by its largest weight."""
    looks = technique_looks(weights)
    step = (WIDTH - 2 * EDGE) / max(n_layers - 1, 1)
    lines, legend = [], []
    for name, profile in weights.items():
        values = [value for value in profile if value is not None]
        if len(values) < n_layers or max(values) <= 0:
            continue
        points = [
            (EDGE + step * layer, HEIGHT - EDGE - value / max(values) * (HEIGHT - 2 * EDGE))
            for layer, value in enumerate(values)
        ]
        colour = looks[name].colour
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in points)
        lines.append(
            f'<g fill="{colour}"><title>{escape(name)}</title><polyline points="{path}" '
            f'fill="none" stroke="{colour}" stroke-width="1.6"/>{dots}</g>'
        )
        legend.append(f'<span style="color:{colour}">&#9679;</span> {escape(name)}')
    base = HEIGHT - EDGE
    ends = "".join(
        f'<text x="{EDGE + step * (layer - 1):.1f}" y="{HEIGHT - 4}" text-anchor="middle">'
        f"{layer}</text>"
        for layer in sorted({1, n_layers})
    )
    return (
        f'<div><svg width="{WIDTH}" height="{HEIGHT}" role="img" font-size="11" '
        'fill="currentColor"><title>Layer weights, relative to the largest</title>'
        f'<line x1="{EDGE}" y1="{base}" x2="{WIDTH - EDGE}" y2="{base}" stroke="currentColor" '
        f'stroke-width="0.7"/>{ends}{"".join(lines)}</svg><br>{" ".join(legend)}</div>'
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _centre(found: dict[str, Any]) -> str:
    centre = found.get("m_cog")
    return "none" if centre is None else f"{centre:.2f}"
