"""What does the centroid analysis cost, in epochs of fine-tuning?

Run it with `python -m benchmarks.centroid_cost`, or on a task of the paper:
`python -m benchmarks.centroid_cost --task trec --data-dir COPIES`.

The analysis is complete: states of θ_M and of both half-swapped models, all ordered pairs of
classes, events and tables. The epoch is one of 300 examples, without its evaluation.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.subjects import timed
from memloc.config import Data, Model, Training
from memloc.data.encode import encode
from memloc.data.load import load_task
from memloc.models.load import load_classifier
from memloc.models.names import resolve
from memloc.techniques.base import Context
from memloc.techniques.centroids import Centroids
from memloc.training.learners import Learner
from memloc.training.loop import Objective, train


def main() -> None:
    """One line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--task", default="questions")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--examples", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=8)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    task = load_task(
        Data(task=arguments.task, data_dir=arguments.data_dir, limit=arguments.examples)
    )
    source, config = resolve(Model()), Model()
    models = [load_classifier(source, config, n_labels=len(task.labels), seed=s) for s in (1, 2)]
    encoded = encode(task.train, models[0].codec)
    training = Training(learning_rate=1e-4, batch_size=arguments.batch_size, epochs=2)
    learner = Learner(models[0].blocks, encoded)
    labels = torch.from_numpy(task.train["label"].to_numpy(copy=True))
    epochs = train([Objective(learner, labels, training)], 0)
    next(epochs)  # the first also sets up the optimiser
    epoch, _ = timed(lambda: next(epochs))
    epochs.close()

    def analyse() -> int:
        context = Context.of(
            task.train,
            encoded,
            {"memorised": models[0].blocks, "original": models[1].blocks},
        )
        return int(Centroids().localise(context)["pairs"]["used"].sum())

    spent, pairs = timed(analyse)
    Console(highlight=False).print(
        f"{task.name}, {len(task.train)} examples, {pairs} of "
        f"{len(task.labels) * (len(task.labels) - 1)} ordered pairs of classes: the analysis takes "
        f"{spent / epoch:.2f} of an epoch at batch {arguments.batch_size}"
    )


if __name__ == "__main__":
    main()
