"""`memloc run`: from labels to layers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rich.console import Console

from memloc.cli.options import (
    DATA,
    EXPLANATION,
    MODEL,
    TECHNIQUES,
    TRAINING,
    Blocks,
    CacheMemory,
    DeviceOption,
    DtypeOption,
    Explain,
    FrozenDropout,
    GradientNorm,
    GradientObjective,
    Json,
    KeepClean,
    LabelColumn,
    LowMemory,
    MaxTokens,
    OriginalColumn,
    PairColumn,
    PerExample,
    ProbeEpochs,
    ProbeSeeds,
    RetrainEpochs,
    RetrainTail,
    Set,
    ShapleyError,
    ShapleyOrders,
    TextColumn,
    TrustCode,
    Undivided,
    UnitOption,
    WindowSizes,
    check_workers,
    option,
    parse_bytes,
    parse_checkpoints,
    parse_names,
    parse_seeds,
    parse_sizes,
    techniques_from,
)
from memloc.cli.output import interruptible, make_console, print_json, report_failures
from memloc.cli.report import Open, open_report, tell_report, write_beside
from memloc.config import (
    DEFAULT_TECHNIQUES,
    DataConfig,
    GeneralisationConfig,
    ModelConfig,
    PairFormat,
    RunConfig,
    TrainingConfig,
    Windows,
)
from memloc.errors import MemlocError


def run_command(
    task: Annotated[
        str, option("--task", "A task from `memloc tasks`, or a CSV/TSV/JSONL/Parquet file.", DATA)
    ] = "questions",
    data_dir: Annotated[
        Path | None, option("--data-dir", "Folder with local copies of the paper's tasks.", DATA)
    ] = None,
    validation: Annotated[
        Path | None, option("--validation", "Validation file beside a --task file.", DATA)
    ] = None,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    original_label_column: OriginalColumn = None,
    limit: Annotated[
        int | None, option("--limit", "Training examples to use (stratified).", DATA)
    ] = None,
    binarise: Annotated[
        bool, option("--binarise", "Keep only the two most frequent classes.", DATA)
    ] = False,
    noise: Annotated[float, option("--noise", "Share of the labels to flip.", DATA)] = 0.15,
    data_seed: Annotated[int, option("--data-seed", "Decides whose label flips.", DATA)] = 1,
    model: Annotated[
        str, option("--model", "A name from `memloc models list`, a hub name, a directory.", MODEL)
    ] = "minilm",
    blocks: Blocks = None,
    pairs: Annotated[
        PairFormat,
        option(
            "--pairs",
            "joined: one text with a separator (the paper); native: the tokeniser's way.",
            MODEL,
        ),
    ] = "joined",
    trust_remote_code: TrustCode = False,
    max_tokens: MaxTokens = None,
    seeds: Annotated[str, option("--seeds", "Model seeds, for example 1,2,3.", TRAINING)] = "1",
    epochs: Annotated[int | None, option("--epochs", "Passes over the data.", TRAINING)] = None,
    learning_rate: Annotated[
        float | None, option("--learning-rate", "Peak learning rate.", TRAINING)
    ] = None,
    batch_size: Annotated[
        int | None, option("--batch-size", "Examples per step.", TRAINING)
    ] = None,
    micro_batch_size: Annotated[
        int | None,
        option("--micro-batch-size", "Accumulate gradients in parts of this size.", TRAINING),
    ] = None,
    dtype: DtypeOption = "float32",
    device: DeviceOption = "auto",
    methods: Annotated[
        str,
        option("--methods", "Techniques, comma-separated (default: all four).", TECHNIQUES, False),
    ] = ",".join(DEFAULT_TECHNIQUES),
    window_sizes: WindowSizes = None,
    unit: UnitOption = "layer",
    retrain_epochs: RetrainEpochs = 5,
    retrain_tail: RetrainTail = "norm+head",
    frozen_dropout: FrozenDropout = False,
    gradient_objective: GradientObjective = "nll",
    gradient_norm: GradientNorm = "L1",
    keep_clean: KeepClean = False,
    undivided: Undivided = False,
    per_example: PerExample = False,
    probe_seeds: ProbeSeeds = 5,
    probe_epochs: ProbeEpochs = 100,
    shapley_error: ShapleyError = 0.01,
    shapley_orders: ShapleyOrders = 400,
    set_option: Set = None,
    cache_memory: CacheMemory = "1GB",
    low_memory: LowMemory = False,
    explain: Explain = None,
    generalisation: Annotated[
        bool,
        option(
            "--generalisation",
            "Also train on random halves: generalisation scores, memorisation map.",
            EXPLANATION,
        ),
    ] = False,
    splits: Annotated[int, option("--splits", "Random halves.", EXPLANATION)] = 30,
    split_epochs: Annotated[
        int, option("--split-epochs", "Passes over each half.", EXPLANATION)
    ] = 10,
    split_rate: Annotated[
        float | None,
        option(
            "--split-rate",
            "Learning rate on halves (default: 3e-5, or that of fine-tuning if higher).",
            EXPLANATION,
            False,
        ),
    ] = None,
    stop_at_error: Annotated[
        float | None,
        option(
            "--stop-at-error",
            "No more halves once the standard error of the score is below this.",
            EXPLANATION,
        ),
    ] = None,
    checkpoints: Annotated[
        str | None,
        option(
            "--checkpoints",
            "Also look at the model on its way: at so many epochs, or every_epoch.",
            EXPLANATION,
        ),
    ] = None,
    runs: Annotated[Path, option("--runs", "Folder for the store and the results.")] = Path("runs"),
    workers: Annotated[
        int | None, option("--workers", "Processes, each with one thread (default: cores).")
    ] = None,
    open_it: Open = False,
    as_json: Json = False,
) -> None:
    """Flip labels, fine-tune, and find the layers that hold the flipped labels.

    Without options: the embedded model `minilm` on the built-in task `questions`.

    Training settings default to what suits the model, see `memloc models list`.

    What was computed before is reused; after Ctrl-C, the same command goes on.
    """
    techniques = techniques_from(locals(), parse_names(methods))
    windows = Windows.make(sizes=parse_sizes(window_sizes), unit=unit)
    halves = GeneralisationConfig.make(
        splits=splits, epochs=split_epochs, learning_rate=split_rate, standard_error=stop_at_error
    )
    if not generalisation and halves != GeneralisationConfig():
        raise MemlocError(
            "settings of half-splits have no effect without --generalisation; add it, or leave out "
            "--splits, --split-epochs, --split-rate and --stop-at-error"
        )
    from memloc.api.experiments import run
    from memloc.engine.progress import make_progress
    from memloc.models.names import known_training

    training = TrainingConfig.make(**known_training(model)).replace(
        epochs=epochs,
        learning_rate=learning_rate,
        batch_size=batch_size,
        micro_batch_size=micro_batch_size,
        max_tokens=max_tokens,
        dtype=dtype,
    )
    config = RunConfig.make(
        data=DataConfig.make(
            task=task,
            data_dir=data_dir,
            validation=validation,
            text_column=text_column,
            pair_column=pair_column,
            label_column=label_column,
            original_label_column=original_label_column,
            limit=limit,
            binarise=binarise,
            noise=noise,
            seed=data_seed,
        ),
        model=ModelConfig.make(
            name=model, blocks=blocks, pair_format=pairs, trust_remote_code=trust_remote_code
        ),
        training=training,
        seeds=parse_seeds(seeds),
        techniques=techniques,
        windows=windows,
        explain=explain,
        generalisation=halves if generalisation else None,
        checkpoints=parse_checkpoints(checkpoints),
        device=device,
    )
    check_workers(workers)
    memory = parse_bytes(cache_memory)
    with interruptible("finished jobs are kept, the same command goes on"):
        result = run(
            config,
            runs,
            workers,
            make_progress(Console(stderr=True)),
            cache_memory=memory,
            low_memory=low_memory,
        )
        report = write_beside(result.folder or runs)
    if report and open_it:
        open_report(report)
    if as_json:
        print_json({**result.summary, "report": report and str(report)})
        report_failures(result.summary)
        return
    from memloc.report.terminal import show_files, show_run

    console = make_console()
    show_run(result.summary, console)
    show_files(str(result.folder), console, result.summary["jobs"], result.summary["seconds"])
    tell_report(report, console, open_it)
    report_failures(result.summary)
