"""Centroid analysis as it is defined: one pair, one layer, one example at a time."""

from __future__ import annotations

import numpy as np


def positions_plainly(
    states: np.ndarray, labels: np.ndarray, original: np.ndarray, noisy: np.ndarray
) -> dict[str, list[list[float]]]:
    """Per layer the distances of noisy, class_a and class_b examples, pairs in order (a, b)."""
    n_classes = int(max(labels.max(), original.max())) + 1
    found: dict[str, list[list[float]]] = {"noisy": [], "class_a": [], "class_b": []}
    for layer in states.astype(np.float64):
        rows: dict[str, list[float]] = {"noisy": [], "class_a": [], "class_b": []}
        by_example: dict[int, float] = {}
        for a in range(n_classes):
            for b in range(n_classes):
                if a == b:
                    continue
                of_a = [i for i in range(len(labels)) if not noisy[i] and labels[i] == a]
                of_b = [i for i in range(len(labels)) if not noisy[i] and labels[i] == b]
                moved = [
                    i
                    for i in range(len(labels))
                    if noisy[i] and labels[i] == a and original[i] == b
                ]
                if not (of_a and of_b and moved):
                    continue
                point_a = np.mean([layer[i] for i in of_a], axis=0)
                point_b = np.mean([layer[i] for i in of_b], axis=0)
                length = np.linalg.norm(point_b - point_a)
                direction = (point_b - point_a) / length

                def distance(
                    x: np.ndarray,
                    point_a: np.ndarray = point_a,
                    direction: np.ndarray = direction,
                    length: float = float(length),
                ) -> float:
                    return float(np.dot(x - point_a, direction) / length)

                rows["class_a"] += [distance(layer[i]) for i in of_a]
                rows["class_b"] += [distance(layer[i]) for i in of_b]
                by_example |= {i: distance(layer[i]) for i in moved}
        rows["noisy"] = [by_example[i] for i in sorted(by_example)]
        for group, values in rows.items():
            found[group].append(values)
    return found
