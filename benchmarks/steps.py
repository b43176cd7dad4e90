"""The steps of the whole analysis, each by the authors' recipe and by memloc.

The authors' side is the transcription of their program in `tests/oracles/authors.py`: one model per
window, one example at a time where they take one, texts tokenised for every batch, and whole passes
in every training step. memloc's side is its own code, in two settings: its defaults, and `--exact`
(all windows, all clean examples, 50 epochs).

Work that repeats itself is timed on a sample, and scaled by how often the analysis repeats it. The
two sides take turns, so that a machine that slows down slows both.

The authors' side leaves out what the recipe does beside its steps: reading the data again for every
window and pair of classes, training the frozen model (one for three seeds), and probes on its
states. memloc's side counts its frozen model, and the probes on θ_P. What the engine adds to a run
is measured by `benchmarks.executor_overhead`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from scipy.optimize import nnls
from scipy.stats import spearmanr
from tests.oracles import authors
from tests.oracles.probing import authors_probe

from benchmarks.machine import matmul_peak, timed
from benchmarks.subjects import Subject
from memloc.analysis.windows import Window, all_windows, centre_of_gravity, chosen_windows
from memloc.config import Training, Windows
from memloc.models.blocks import BlockModel
from memloc.models.names import Role
from memloc.techniques.base import Context, clean_sample
from memloc.techniques.centroids import Centroids
from memloc.techniques.gradients import Gradients
from memloc.techniques.probing import ClassProbes, Probing
from memloc.techniques.retraining import Retraining, divide
from memloc.techniques.swapping import Swapping, swap_windows
from memloc.training.learners import Learner, TailOnly
from memloc.training.loop import Trained, fine_tune, training_data
from memloc.training.probes import epochs_of, initial_weights

SEED = 1
PAPER_EPOCHS = 50
"""Of fine-tuning, in the authors' recipe and with `--exact`."""
PROBE_SEEDS = 5
"""Of the authors' probes."""
SETUPS = ("memorised", "bottom_swapped", "top_swapped")
"""Models of the centroid analysis."""
T = TypeVar("T")


@dataclass(frozen=True)
class Sizes:
    """How much is timed."""

    training: Training
    """As by memloc's defaults; the number of epochs is taken from what the training returns."""
    swapped: int = 3
    """Windows that the authors' recipe swaps."""
    plainly_retrained: int = 3
    """Windows that the authors' recipe retrains, for one epoch of five."""
    retrained: int = 7
    """Windows that memloc retrains."""
    probed_layers: int = 3
    """Layers for which the authors' recipe trains probes, with one seed of five."""
    peak_seconds: float = 1.0
    """For the peak of the machine, before every step."""
    probes: Probing.Config = field(default_factory=Probing.Config)
    """Settings of memloc's probes."""


@dataclass(frozen=True)
class Sample:
    """Work that was timed, and how much of it the whole analysis does."""

    seconds: float
    times: float
    what: str
    parts: tuple[Sample, ...] = ()
    """What the work consists of, if its parts are scaled by different numbers."""

    @classmethod
    def together(cls, what: str, *parts: Sample) -> Self:
        """Several pieces of work that are done one after the other."""
        seconds = sum(part.seconds for part in parts)
        return cls(seconds, sum(part.total for part in parts) / seconds, what, parts)

    @property
    def total(self) -> float:
        """Seconds of the whole analysis."""
        return self.seconds * self.times


@dataclass(frozen=True)
class Step:
    """One step on both sides."""

    name: str
    authors: Sample | None
    exact: Sample
    defaults: Sample
    share_of_peak: float
    """What memloc's side reaches."""
    agreement: dict[str, float] = field(default_factory=dict)
    """Of the results, by what is compared."""


class Bench:
    """The whole analysis of one model on one task.

    Args:
        subject: Model and task.
        sizes: How much is timed.
        folder: For the checkpoints of the authors' side.
    """

    def __init__(self, subject: Subject, sizes: Sizes, folder: Path) -> None:
        self.subject, self.sizes, self.folder = subject, sizes, folder
        train, validation = subject.task.train, subject.task.validation
        self.noisy, self.clean = np.flatnonzero(subject.noisy), np.flatnonzero(~subject.noisy)
        self.labels, self.original = (train[c].to_numpy() for c in ("label", "original_label"))
        self.texts, self.validation = (
            authors.Texts(subject.tokenizer, table["text"].tolist(), table["label"].tolist())
            for table in (train, validation)
        )
        self.models: dict[Role, BlockModel] = {"pretrained": subject.build()}
        self.theirs: dict[Role, authors.TheirModel] = {}
        self.n_layers = self.models["pretrained"].n_layers
        self.random = np.random.default_rng(SEED)
        self.peaks: list[float] = []
        self.epochs = 0
        """Of memloc's defaults, as the training of θ_M turned out."""
        self.memorised = 0.0
        """Share of the flipped labels that θ_M gives."""

    def steps(self) -> Iterator[Step]:
        """Measure one after the other. The first two make the models for all others."""
        yield self.fine_tuning()
        yield self.frozen_model()
        self.theirs = {role: authors.their_model(one.model) for role, one in self.models.items()}
        pretrained = self.theirs["pretrained"]
        chosen = {role: self.theirs[role] for role in ("memorised", "original")}
        self.checkpoints = authors.Checkpoints(self.folder, pretrained, **chosen)
        yield self.swapping()
        yield self.retraining()
        yield self.gradients()
        # One context for the rest: a run computes the states of θ_M2 once, too.
        context = self.context()
        yield self.probing(context)
        yield self.class_probes(context)
        yield self.centroids(context)

    def context(self, **settings: Any) -> Context:
        """What memloc's techniques are given."""
        return Context.of(
            self.subject.task.train,
            self.subject.train,
            self.models,
            seed=SEED,
            training=self.sizes.training,
            **settings,
        )

    # --- models -------------------------------------------------------------------------------

    def fine_tuning(self) -> Step:
        """θ_M and θ_O, evaluated after every epoch."""
        begun = self.begin()
        training = self.sizes.training
        rows = range(len(self.labels))
        evaluations = (
            (self.texts, rows, training.batch_size),
            (self.validation, _all(self.validation), 32),
        )

        slow, fast, epochs = 0.0, 0.0, 0
        settled: int | None = None  # θ_O follows θ_M
        for role in ("memorised", "original"):
            plain = authors.their_model(self.models["pretrained"].model)
            batches = self.random_batches(rows)
            seconds, _ = timed(
                lambda plain=plain, batches=batches: authors.train(
                    plain,
                    lambda name: "embeddings" in name,
                    self.texts,
                    [batches],
                    training.learning_rate,
                    evaluations,
                )
            )
            slow += seconds
            model = self.models[role] = self.subject.build()
            learner = Learner(model, self.subject.train, self.subject.validation)
            seconds, trained = timed(
                lambda learner=learner, role=role, after=settled: fine_tune(
                    learner,
                    training_data(self.subject.task, role),
                    training,
                    SEED,
                    settle_after=after,
                )
            )
            settled = trained.settled_after
            fast += seconds
            epochs += trained.epochs
            if role == "memorised":
                self.epochs = trained.epochs
                accuracy = trained.history.set_index(["split", "epoch"])["accuracy"]
                self.memorised = float(accuracy["noisy", trained.epochs])
                near = self.models["near_ceiling"] = self.subject.build()
                near.model.load_state_dict(trained.memorised_at or trained.final, strict=False)
        size = sum(parameter.numel() for parameter in learner.trainable().values())
        evaluated = self.tokens() + int(self.subject.validation.lengths.sum())
        what = f"{epochs} epochs of θ_M and θ_O"
        return Step(
            "fine-tuning",
            Sample(slow, PAPER_EPOCHS, "2 epochs with evaluations"),
            Sample(fast, 2 * PAPER_EPOCHS / epochs, what),
            Sample(fast, 1, what),
            self.share(epochs * size * (6 * self.tokens() + 2 * evaluated), fast, begun),
        )

    def frozen_model(self) -> Step:
        """The head of the frozen model, by which gradients are divided."""
        begun = self.begin()
        model = self.models["frozen"] = self.subject.build()
        training = self.sizes.training.with_fixed_epochs()

        def train() -> Trained:
            learner = TailOnly(model, self.subject.train, self.subject.validation)
            return fine_tune(learner, training_data(self.subject.task, "frozen"), training, SEED)

        seconds, trained = timed(train)
        what = f"{trained.epochs} epochs of its head"
        evaluated = self.tokens() + int(self.subject.validation.lengths.sum())
        return Step(
            "frozen model",
            None,
            Sample(seconds, PAPER_EPOCHS / trained.epochs, what),
            Sample(seconds, 1, what),
            self.share(2 * self.layer_size() * self.n_layers * evaluated, seconds, begun),
        )

    # --- techniques ---------------------------------------------------------------------------

    def swapping(self) -> Step:
        """All windows with all examples, or memloc's choice of both."""
        begun = self.begin()
        sample = strata(all_windows(self.n_layers), self.sizes.swapped, lambda one: one.size)
        memorised, original = self.theirs["memorised"], self.theirs["original"]
        mixed = copy.deepcopy(memorised)
        slow, plain = 0.0, {}

        def plainly(window: Window) -> None:
            nonlocal slow
            seconds, plain[window] = timed(
                lambda: authors.swap_window(
                    mixed, memorised, original, _layers(window),
                    self.texts, self.noisy.tolist(), self.clean.tolist(),
                )
            )  # fmt: skip
            slow += seconds

        every, some = Windows(exact=True), Windows()
        plainly(sample[0])
        exact, of_all = timed(lambda: Swapping().localise(self.context(windows=every)))
        for window in sample[1:-1]:
            plainly(window)
        defaults, of_some = timed(lambda: Swapping().localise(self.context(windows=some)))
        if len(sample) > 1:
            plainly(sample[-1])
        errors = of_all["windows"].set_index(["first_layer", "last_layer"])
        differences = [
            abs(1 - errors.loc[tuple(window), f"{kind}_error"] - accuracy)
            for window, found in plain.items()
            for kind, accuracy in zip(("noisy", "clean"), found, strict=True)
        ]
        weights = [tables["layers"]["weight"].to_numpy() for tables in (of_some, of_all)]
        centres = [centre_of_gravity(one) for one in weights]
        windows, examples = len(errors), len(of_some["predictions"]["example"].unique())
        return Step(
            "swapping",
            Sample(slow, windows / len(sample), f"{len(sample)} of {windows} windows"),
            Sample(exact, 1, f"{windows} windows, all examples"),
            Sample(defaults, 1, f"{len(of_some['windows'])} windows, {examples} examples"),
            self.share(self.swapping_work(every), exact, begun),
            {
                "largest difference of an accuracy from the authors'": float(max(differences)),
                "ρ of layer weights, defaults and exact": float(spearmanr(*weights).statistic),
                "M-CoG, defaults": math.nan if centres[0] is None else centres[0],
                "M-CoG, exact": math.nan if centres[1] is None else centres[1],
            },
        )

    def swapping_work(self, windows: Windows) -> float:
        """Useful operations: what windows share is counted once."""
        _, encoded = self.context().some_examples(np.arange(2))
        chosen = chosen_windows(self.n_layers, windows.sizes)
        found = swap_windows(self.models["memorised"], self.models["original"], encoded, chosen)
        return 2 * self.layer_size() * self.tokens() * found.block_passes / found.batches

    def retraining(self) -> Step:
        """Windows in five epochs each.

        The seconds of memloc's windows are fitted by a + b·(2(L − first + 1) + size), the passes of
        one layer in a step, and the fit is summed over all windows of a setting. In the authors'
        recipe only the optimiser depends on the window, by its size.
        """
        begun = self.begin()
        technique = Retraining()
        every, some = (
            chosen_windows(self.n_layers, one.sizes) for one in (Windows(exact=True), Windows())
        )
        sample = sorted(strata(every, self.sizes.retrained, self.passes))
        plain = strata(every, self.sizes.plainly_retrained, lambda one: one.size)
        turns = np.linspace(0, len(sample) - 1, len(plain)).astype(int).tolist()
        context = self.context()
        slow: list[tuple[float, float]] = []
        fast = []
        for turn, window in enumerate(sample):
            slow += [
                self.retrain_plainly(each)
                for each, when in zip(plain, turns, strict=True)
                if when == turn
            ]
            seconds, found = timed(
                lambda window=window: technique.window(context, window, lambda _: None)
            )
            assert "failure" not in found, found["failure"]
            fast.append(seconds)
        epochs = technique.config.epochs
        epoch, rest = np.sum(slow, axis=0)
        passes = np.array([[1, self.passes(window)] for window in sample])
        fit, _ = nnls(passes, np.array(fast))
        off = float(np.abs(passes @ fit / fast - 1).max())
        totals = [sum(float(fit @ (1, self.passes(w))) for w in each) for each in (every, some)]
        train, _ = divide(self.subject.noisy, SEED)
        work = 2 * self.layer_size() * self.tokens(train) * epochs * sum(map(self.passes, sample))
        return Step(
            "retraining",
            Sample.together(
                f"{len(plain)} of {len(every)} windows",
                Sample(epoch, epochs * len(every) / len(plain), f"1 of {epochs} epochs"),
                Sample(rest, len(every) / len(plain), "reading and evaluating"),
            ),
            *(
                Sample(sum(fast), total / sum(fast), f"{len(sample)} windows for {len(each)}")
                for each, total in zip((every, some), totals, strict=True)
            ),
            self.share(work, sum(fast), begun),
            {"largest error of a window's fitted seconds, as a share": off},
        )

    def passes(self, window: Window) -> int:
        """Of one layer, in a step of retraining."""
        return 2 * (self.n_layers - window.first + 1) + window.size

    def retrain_plainly(self, window: Window) -> tuple[float, float]:
        """Seconds of one epoch with its evaluations, and of what comes before and after."""
        train, evaluated = divide(self.subject.noisy, SEED)
        noisy, held_out = np.split(evaluated, 2)
        size, layers = self.sizes.training.batch_size, _layers(window)
        loading, model = timed(lambda: self.checkpoints.load("memorised", without=layers))
        epoch, losses = timed(
            lambda: authors.train(
                model,
                lambda name: authors.outside(name, layers),
                self.texts,
                [self.random_batches(train)],
                self.sizes.training.learning_rate,
                [(self.texts, rows.tolist(), size) for rows in (train, noisy)],
            )
        )
        assert np.isfinite(losses).all()
        at_the_end, _ = timed(
            lambda: [
                self.texts.accuracy(model, rows.tolist(), size)
                for rows in (noisy, train, noisy, held_out)
            ]
        )
        return epoch, loading + at_the_end

    def gradients(self) -> Step:
        """Noisy and as many clean examples, in θ_M1 and in the frozen model."""
        begun = self.begin()
        clean = clean_sample(self.subject.noisy, SEED)
        slow, expected = timed(
            lambda: authors.gradient_weights(
                self.theirs["near_ceiling"],
                self.theirs["frozen"],
                self.texts,
                self.noisy.tolist(),
                clean.tolist(),
            )
        )
        fast, _ = timed(lambda: Gradients().localise(self.context()))
        # Their objective is the logit of the label.
        found = Gradients(objective="gold_logit").localise(self.context())["layers"]["weight"]
        chosen = np.concatenate([self.noisy, clean])
        work = 2 * 6 * self.layer_size() * self.n_layers * self.tokens(chosen)
        whole = f"{len(chosen)} examples, 2 models"
        return Step(
            "gradients",
            Sample(slow, 1, whole),
            Sample(fast, 1, whole),
            Sample(fast, 1, whole),
            self.share(work, fast, begun),
            {"largest difference of a layer weight": float(np.abs(found - expected).max())},
        )

    # --- probes and centroids -----------------------------------------------------------------

    def probing(self, context: Context) -> Step:
        """Probes for noise on layers 0 to L."""
        begun = self.begin()
        slow = self.probe_plainly([self.subject.noisy.astype(np.int64)], 2, predict_noise=True)
        technique = Probing(self.sizes.probes)
        fast, _ = timed(lambda: technique.localise(context))
        work = self.probe_work(technique.config, self.n_layers + 2, 2) + 2 * self.pass_work()
        what = f"{self.n_layers + 2} × {technique.config.seeds} probes and states"
        return Step(
            "probing",
            slow,
            Sample(fast, 1, what),
            Sample(fast, 1, what),
            self.share(work, fast, begun),
        )

    def class_probes(self, context: Context) -> Step:
        """Probes for original and for perturbed labels."""
        begun = self.begin()
        n_classes = len(self.subject.task.labels)
        slow = self.probe_plainly([self.labels, self.original], n_classes, predict_noise=False)
        technique = ClassProbes(self.sizes.probes)
        fast, _ = timed(lambda: technique.localise(context))
        work = 2 * self.probe_work(technique.config, self.n_layers, n_classes)
        what = f"2 × {self.n_layers} × {technique.config.seeds} probes"
        return Step(
            "class probes",
            slow,
            Sample(fast, 1, what),
            Sample(fast, 1, what),
            self.share(work, fast, begun),
        )

    def probe_plainly(
        self, targets: Sequence[np.ndarray], n_classes: int, *, predict_noise: bool
    ) -> Sample:
        """The authors' probes for some kinds of labels; each kind encodes all examples anew."""
        layers = range(self.n_layers + 1)
        chosen = strata(layers, self.sizes.probed_layers, lambda layer: layer)
        encoding, states = timed(
            lambda: authors.states_of(self.theirs["memorised"], self.texts, range(len(self.labels)))
        )
        training = 0.0
        batches = -(-int(0.7 * len(self.labels)) // 32)
        for labels in targets:
            for layer in chosen:
                features = torch.from_numpy(np.stack([of[layer] for of in states.values()])).float()
                seconds, _ = timed(
                    lambda features=features, labels=labels: authors_probe(
                        features,
                        labels,
                        self.subject.noisy,
                        shuffled(self.subject.noisy, self.random),
                        initial_weights(SEED, features.shape[1], 128, n_classes),
                        (self.random.permutation(batches) for _ in range(100)),
                        lambda *shape: (torch.rand(shape) >= 0.1) / 0.9,
                        predict_noise=predict_noise,
                    )
                )
                training += seconds
        trained = len(targets) * len(chosen)
        whole = len(targets) * PROBE_SEEDS * len(layers)
        return Sample.together(
            "probes and states",
            Sample(training, whole / trained, f"{trained} of {whole} probes"),
            Sample(encoding, len(targets), "states of all examples"),
        )

    def probe_work(self, config: Probing.Config, layers: int, n_classes: int) -> float:
        """Useful operations of the probes of some layers."""
        width, hidden = self.models["memorised"].width, config.hidden
        # The gradient of the first input is not needed.
        of_example = 2 * (2 * width * hidden + 3 * hidden * hidden + 3 * hidden * n_classes)
        trained = int(0.7 * len(self.labels))
        return of_example * trained * epochs_of(trained, config) * config.seeds * layers

    def centroids(self, context: Context) -> Step:
        """All ordered pairs of classes in all layers, in θ_M2 and with either half swapped.

        The authors read the model and encode the examples of both classes again for every pair and
        layer. The time for reading is scaled by the number of pairs and layers, that for encoding
        by the number of examples.
        """
        begun = self.begin()
        noisy = set(self.noisy.tolist())

        def members(pair: tuple[int, int]) -> list[list[int]]:
            labels, original = self.labels.tolist(), self.original.tolist()
            return [authors.of_class(labels, original, noisy, *one) for one in (pair, pair[::-1])]

        pairs = {
            pair: sum(map(len, members(pair)))
            for pair in permutations(range(len(self.subject.task.labels)), 2)
            if all(set(group) - noisy for group in members(pair))
        }
        moved = [pair for pair in pairs if set(members(pair)[0]) & noisy]
        middles = strata(moved, len(SETUPS), lambda pair: pairs[pair])
        sample = [middles[i % len(middles)] for i in range(len(SETUPS))]  # two classes: two pairs
        layers = [self.n_layers * (i + 1) // len(SETUPS) for i in range(len(SETUPS))]
        reading = encoding = 0.0
        expected = {}
        for setup, pair, layer in zip(SETUPS, sample, layers, strict=True):
            seconds, model = timed(lambda setup=setup: self.read_setup(setup))
            reading += seconds
            seconds, expected[setup, pair, layer] = timed(
                lambda model=model, pair=pair, layer=layer: authors.positions_of_pair(
                    model, self.texts, self.original.tolist(), noisy, pair, layer
                )
            )
            encoding += seconds
        fast, tables = timed(lambda: Centroids().localise(context))
        paths = tables["trajectories"].set_index(["model", "example", "layer"])["position"]
        ids = self.subject.task.train["example"].to_numpy()
        differences = [
            abs(paths[setup, ids[row], layer] - position)
            for (setup, _, layer), groups in expected.items()
            for row, position in groups["noisy"].items()
        ]
        repeated = len(pairs) * self.n_layers
        encoded = len(SETUPS) * self.n_layers * sum(pairs.values())
        whole = f"{len(pairs)} pairs, {len(SETUPS)} models"
        return Step(
            "centroids",
            Sample.together(
                f"{len(sample)} of {len(SETUPS) * repeated:,} pairs and layers",
                Sample(reading, repeated, "reading the model"),
                Sample(encoding, encoded / sum(pairs[pair] for pair in sample), "encoding"),
            ),
            Sample(fast, 1, whole),
            Sample(fast, 1, whole),
            self.share(2 * self.pass_work(), fast, begun),
            {"largest difference of a position": float(max(differences))},
        )

    def read_setup(self, setup: str) -> authors.TheirModel:
        """θ_M2, or with half its layers from θ_O, from files."""
        model = self.checkpoints.load("memorised")
        if setup != "memorised":
            half = self.n_layers // 2
            first = 0 if setup == "bottom_swapped" else self.n_layers - half
            other = self.checkpoints.weights("original")
            model.load_state_dict(
                authors.mixed(model.state_dict(), other, tuple(range(first, first + half)))
            )
        return model

    # --- what steps have in common ------------------------------------------------------------

    def begin(self) -> float:
        """The peak of the machine at this moment: others may use it too."""
        self.peaks.append(matmul_peak(self.sizes.peak_seconds))
        return self.peaks[-1]

    def share(self, operations: float, seconds: float, peak: float) -> float:
        """Useful operations per second, as a share of the peak."""
        return operations / seconds / peak

    def random_batches(self, rows: Sequence[int] | np.ndarray) -> list[list[int]]:
        """One epoch of batches in random order."""
        order, size = self.random.permutation(rows), self.sizes.training.batch_size
        return [order[i : i + size].tolist() for i in range(0, len(order), size)]

    def tokens(self, rows: np.ndarray | None = None) -> int:
        """Real tokens of the training examples, or of some."""
        lengths = self.subject.train.lengths
        return int((lengths if rows is None else lengths[rows]).sum())

    def layer_size(self) -> int:
        """Parameters of one layer."""
        return sum(p.numel() for p in self.models["pretrained"].block(1).parameters())

    def pass_work(self) -> float:
        """Useful operations of one pass of the training examples."""
        return 2.0 * self.layer_size() * self.n_layers * self.tokens()


def strata(items: Iterable[T], n: int, key: Callable[[T], Any]) -> list[T]:
    """The middles of n equal parts of the items in the order of a key."""
    ordered = sorted(items, key=key)
    n = min(n, len(ordered))
    return [ordered[int((i + 0.5) * len(ordered) / n)] for i in range(n)]


def shuffled(noisy: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """All examples in random order, with noisy and clean ones in the fifth that tests a probe."""
    while True:
        order = random.permutation(len(noisy))
        tested = noisy[order[int(0.8 * len(order)) :]]
        if tested.any() and not tested.all():
            return order


def _layers(window: Window) -> authors.Window:
    """As the authors number them."""
    return tuple(layer - 1 for layer in window.layers)


def _all(texts: authors.Texts) -> range:
    return range(len(texts.texts))
