"""Which score finds wrong labels? `python -m benchmarks.wrong_labels --data-dir DIR --out DIR`.

For every task of the paper and three kinds of noise, trains on wrong labels as `memloc audit` does,
and on parts of the examples, as cleanlab needs it. The answers of all models are kept, one file per
task and kind, so that the command goes on where it was stopped. The scores are computed from these
files at the end: area under the ROC curve and average precision.

The kinds of noise, each 15% of the training labels:

- uniform: of every class the same share, each label as likely (as `memloc run` does)
- confusion: classes that a weaker model confuses are exchanged, in random examples
- hard: the examples that the weaker model gets wrong with most confidence get its answer

The weaker model is a logistic regression on words, which sees no example that it answers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import transformers
from scipy.special import softmax
from scipy.stats import t as student

from memloc.analysis.audit import estimate_wrong, rank_labels
from memloc.analysis.dynamics import dynamics
from memloc.config import Data, Model, Training
from memloc.data.encode import Encoded, encode
from memloc.data.load import load_task
from memloc.data.task import Task, input_columns
from memloc.models.load import Classifier, load_classifier
from memloc.models.names import known_training, resolve
from memloc.models.states import predict_logits
from memloc.training.learners import Learner
from memloc.training.loop import Objective, TrainingData, fine_tune, train

NOISE = ("uniform", "confusion", "hard")
SHARE = 0.15
FOLDS, FOLD_EPOCHS = 5, 4
SEED = 1


def main() -> None:
    """Train what is missing, then score everything that is there."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.wrong_labels", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="the paper's tasks")
    parser.add_argument("--out", type=Path, required=True, help="folder for the answers")
    parser.add_argument("--tasks", default="", help="names with commas (all)")
    parser.add_argument("--noise", default=",".join(NOISE))
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--max-tokens", type=int, default=32)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    arguments.out.mkdir(parents=True, exist_ok=True)
    from memloc.paper.tasks import PAPER_TASKS

    for name in arguments.tasks.split(",") if arguments.tasks else PAPER_TASKS:
        data = Data(task=name, data_dir=arguments.data_dir, limit=arguments.examples)
        task = load_task(data)
        clean = task.train["original_label"].to_numpy()
        for kind in arguments.noise.split(","):
            file = arguments.out / f"{name}-{kind}.npz"
            if file.exists():
                continue
            began = time.perf_counter()
            label = wrong_labels(task, clean, kind)
            found = Trainings(arguments.model, task, label, clean, arguments.max_tokens).answers()
            np.savez_compressed(file.with_suffix(".part.npz"), label=label, clean=clean, **found)
            file.with_suffix(".part.npz").rename(file)
            print(f"{name} {kind}: {time.perf_counter() - began:.0f} s", flush=True)
    found = pd.concat([judged(file) for file in sorted(arguments.out.glob("*-*.npz"))])
    found.to_csv(arguments.out / "scores.csv", index=False, float_format="%.4f")
    print(summary(found))


CHEAP = "score of `memloc audit`"
FULL = "self-confidence of 5 folds (cleanlab)"


def judged(file: Path) -> pd.DataFrame:
    """How well each score finds the wrong labels of a task."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    task, kind = file.stem.rsplit("-", 1)
    data = np.load(file)
    labels, wrong = data["label"], data["label"] != data["clean"]
    rows = np.arange(len(labels))
    halves, folds = (softmax(data[name][-1].astype(float), axis=1) for name in ("halves", "folds"))
    learned = dynamics(data["whole"], labels)
    found = rank_labels(data["whole"], labels, learned, halves)
    late = learned["learned"].astype(float).fillna(np.inf)
    last = softmax(data["whole"][-1].astype(float), axis=1)[rows, labels]
    scores = {
        CHEAP: found["score"],
        "early margin": -found["early_margin"],
        "unseen margin (2 halves)": -found["unseen_margin"],
        "self-confidence of 2 halves": -halves[rows, labels],
        "cumulative loss": learned["cumulative_loss"],
        "mean margin of the logits (AUM)": -learned["margin"],
        "mean confidence": -learned["confidence"],
        "epoch of learning": late.rank(),
        "loss after the last epoch": -last,
        FULL: -folds[rows, labels],
    }
    estimate, (whole, two, five) = estimate_wrong(halves, labels), data["seconds"]
    cost = dict.fromkeys(scores, whole) | {CHEAP: whole + two, FULL: five}
    cost |= dict.fromkeys(("unseen margin (2 halves)", "self-confidence of 2 halves"), two)
    return pd.DataFrame(
        {
            "task": task,
            "noise": kind,
            "score": list(scores),
            "roc_auc": [roc_auc_score(wrong, one) for one in scores.values()],
            "average_precision": [average_precision_score(wrong, one) for one in scores.values()],
            "wrong": wrong.sum(),
            "seconds": [cost[name] for name in scores],
            **estimate._asdict(),
            "epochs": int(data["epochs"]),
        }
    )


def summary(found: pd.DataFrame) -> str:
    """Means over tasks, and the difference to cleanlab's score with its interval over tasks."""
    kinds = [kind for kind in NOISE if kind in set(found["noise"])]
    heads = ["score", "ROC-AUC", "average precision", *kinds, "minus cleanlab (95%)", "seconds"]
    rows = [heads, ["---"] * len(heads)]
    means = found.groupby(["score", "task"])[["roc_auc", "average_precision", "seconds"]].mean()
    precision = found.groupby(["score", "noise"])["average_precision"].mean()
    theirs = means.loc[FULL]
    for score in found["score"].unique():
        mine = means.loc[score]
        gap = (mine - theirs)["average_precision"]
        half = student.ppf(0.975, len(gap) - 1) * gap.std() / np.sqrt(len(gap))
        ends = f"{gap.mean():+.2f} [{gap.mean() - half:+.2f}, {gap.mean() + half:+.2f}]"
        values = [*mine.mean()[:2], *(precision[score, kind] for kind in kinds)]
        numbers = [f"{value:.2f}" for value in values]
        rows.append(
            [score, *numbers, "" if score == FULL else ends, f"{mine['seconds'].mean():.0f}"]
        )
    cells = found.groupby("noise")["task"].nunique()
    there = ", ".join(f"{kind} on {cells[kind]} tasks" for kind in kinds)
    each = found.drop_duplicates(["task", "noise"])
    covered = (each["low"] <= each["wrong"]) & (each["wrong"] <= each["high"])
    inside = covered.groupby(each["noise"]).agg(["sum", "count"])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines += ["", f"Noise: {there}. Intervals of the number of wrong labels that hold the truth:"]
    lines += [f"{kind} {inside['sum'][kind]} of {inside['count'][kind]}" for kind in kinds]
    return "\n".join(lines)


def wrong_labels(task: Task, clean: np.ndarray, kind: str) -> np.ndarray:
    """The labels with noise of a kind."""
    if kind == "uniform":
        return task.train["label"].to_numpy(copy=True)
    chances, random = weak_answers(task.train, clean), np.random.default_rng(SEED)
    wanted, label = round(SHARE * len(clean)), clean.copy()
    others = chances.copy()
    others[np.arange(len(clean)), clean] = -1
    if kind == "hard":
        worst = np.argsort(chances[np.arange(len(clean)), clean], kind="stable")[:wanted]
        label[worst] = others[worst].argmax(axis=1)
        return label
    confusion = np.zeros((chances.shape[1],) * 2)
    for number in range(len(confusion)):
        confusion[number] = chances[clean == number].sum(axis=0)
    np.fill_diagonal(confusion, 0)
    pairs = random.choice(confusion.size, size=4 * wanted, p=confusion.ravel() / confusion.sum())
    for before, after in zip(*np.unravel_index(pairs, confusion.shape), strict=True):
        free = np.flatnonzero((clean == before) & (label == before))
        if (label != clean).sum() == wanted:
            break
        if len(free) > (clean == before).sum() / 2:  # most labels of a class stay correct
            label[random.choice(free)] = after
    return label


def weak_answers(examples: pd.DataFrame, clean: np.ndarray) -> np.ndarray:
    """Probabilities of the classes by a model of words that did not see the example."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold
    from sklearn.pipeline import make_pipeline

    texts = examples[input_columns(examples)].agg(" ".join, axis=1)
    model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(C=10))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=SEED)
    found = np.zeros((len(clean), int(clean.max()) + 1))
    for inside, outside in folds.split(texts, clean):
        model.fit(texts.iloc[inside], clean[inside])
        found[np.ix_(outside, model.classes_)] = model.predict_proba(texts.iloc[outside])
    return found


class Trainings:
    """All trainings on one set of labels."""

    def __init__(
        self, model: str, task: Task, label: np.ndarray, clean: np.ndarray, max_tokens: int
    ) -> None:
        self.model, self.task, self.label, self.max_tokens = model, task, label, max_tokens
        self.noisy = label != clean
        self.training = Training(
            **{**known_training(model), "epochs": "auto", "max_tokens": max_tokens}
        )

    def load(self, seed: int) -> tuple[Classifier, Encoded]:
        """A new model."""
        config = Model(name=self.model)
        classifier = load_classifier(
            resolve(config),
            config,
            n_labels=len(self.task.labels),
            seed=seed,
            max_tokens=self.max_tokens,
        )
        return classifier, encode(self.task.train, classifier.codec)

    def answers(self) -> dict[str, np.ndarray]:
        """Logits after every epoch: of all examples, and of those that were held out."""
        began = time.perf_counter()
        classifier, encoded = self.load(SEED)
        learner = Learner(classifier.blocks, encoded)
        data = TrainingData(self.label, self.noisy, np.empty(0, dtype=np.int64))
        trained = fine_tune(learner, data, self.training, SEED)
        whole = torch.stack(trained.logits).float().numpy()
        seconds = [time.perf_counter() - began]
        random, n = np.random.default_rng(SEED), len(self.label)
        parts = {
            "halves": np.argsort(random.permutation(n)) % 2,
            "folds": np.argsort(random.permutation(n)) % FOLDS,
        }
        found = {"whole": whole.astype(np.float16)}
        for name, part in parts.items():
            began = time.perf_counter()
            held_out = np.zeros((FOLD_EPOCHS, n, whole.shape[2]), np.float32)
            for number in range(part.max() + 1):
                outside = np.flatnonzero(part == number)
                for epoch, logits in enumerate(self.without(outside, SEED + 1 + number)):
                    held_out[epoch, outside] = logits
            found[name] = held_out.astype(np.float16)
            seconds.append(time.perf_counter() - began)
        return found | {"seconds": np.array(seconds), "epochs": np.array(trained.epochs)}

    def without(self, outside: np.ndarray, seed: int) -> Iterator[np.ndarray]:
        """Logits of held-out examples after every epoch."""
        classifier, encoded = self.load(seed)
        inside = np.setdiff1d(np.arange(len(self.label)), outside)
        learner = Learner(classifier.blocks, encoded, rows=inside)
        training = self.training.replace(epochs=FOLD_EPOCHS)
        objective = Objective(learner, torch.from_numpy(self.label[inside]), training)
        for _ in train([objective], seed):
            yield predict_logits(classifier.blocks, encoded, "float32", outside)


if __name__ == "__main__":
    main()
