"""`memloc control`: do techniques find memorisation where it was hidden?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rich.console import Console

from memloc.cli.options import (
    DATA,
    MODEL,
    TECHNIQUES,
    TRAINING,
    Blocks,
    CacheMemory,
    DeviceOption,
    DtypeOption,
    FrozenDropout,
    GradientNorm,
    GradientObjective,
    Json,
    KeepClean,
    LowMemory,
    MaxTokens,
    PerExample,
    ProbeEpochs,
    ProbeSeeds,
    RetrainEpochs,
    RetrainTail,
    Set,
    ShapleyError,
    ShapleyOrders,
    TrustCode,
    Undivided,
    UnitOption,
    WindowSizes,
    check_workers,
    option,
    parse_bytes,
    parse_list,
    parse_names,
    parse_seeds,
    parse_sizes,
    techniques_from,
)
from memloc.cli.output import interruptible, make_console, print_json, report_failures
from memloc.config import (
    ControlConfig,
    ControlledModel,
    ControlRunConfig,
    DataConfig,
    ModelConfig,
    TrainingConfig,
    Windows,
)


def control_command(
    tasks: Annotated[
        str | None,
        option("--tasks", "Main tasks, comma-separated (default: the built-in ones).", DATA),
    ] = None,
    aux_task: Annotated[
        str, option("--aux-task", "Task with clean labels that trains all layers.", DATA)
    ] = "entailment",
    aux_limit: Annotated[
        int | None,
        option("--aux-limit", "Its training examples (default: all; built-in: 100).", DATA),
    ] = None,
    data_dir: Annotated[
        Path | None, option("--data-dir", "Folder with local copies of the paper's tasks.", DATA)
    ] = None,
    limit: Annotated[
        int | None, option("--limit", "Training examples of each task (stratified).", DATA)
    ] = None,
    binarise: Annotated[
        bool, option("--binarise", "Keep only the two most frequent classes.", DATA)
    ] = False,
    noise: Annotated[float, option("--noise", "Share of the labels to flip.", DATA)] = 0.15,
    data_seed: Annotated[int, option("--data-seed", "Decides whose label flips.", DATA)] = 1,
    held_back: Annotated[
        str | None,
        option(
            "--held-back",
            "Tasks only for the choice of gradient post-processing (paper: mrpc,trec).",
            DATA,
        ),
    ] = None,
    model: Annotated[
        str, option("--model", "Known names, hub names, directories; comma-separated.", MODEL)
    ] = "minilm",
    layers: Annotated[
        str,
        option("--layers", "Where to hide: first, middle, last (pairs), or 1+2,6+7.", MODEL),
    ] = "first,middle,last",
    blocks: Blocks = None,
    trust_remote_code: TrustCode = False,
    max_tokens: MaxTokens = None,
    seeds: Annotated[str, option("--seeds", "Model seeds, for example 1,2,3.", TRAINING)] = "1",
    epochs: Annotated[int | None, option("--epochs", "Passes over the data.", TRAINING)] = None,
    learning_rate: Annotated[
        float | None, option("--learning-rate", "Peak rate of the main task.", TRAINING)
    ] = None,
    aux_rate: Annotated[
        float | None,
        option("--aux-rate", "Peak rate of the auxiliary task (default: half of it).", TRAINING),
    ] = None,
    batch_size: Annotated[
        int | None, option("--batch-size", "Examples per step.", TRAINING)
    ] = None,
    learned_at: Annotated[
        float,
        option("--learned-at", "Train again at a higher rate up to this accuracy.", TRAINING),
    ] = 0.99,
    attempts: Annotated[
        int, option("--attempts", "Trainings at doubled rates, at most.", TRAINING)
    ] = 3,
    dtype: DtypeOption = "float32",
    device: DeviceOption = "auto",
    methods: Annotated[
        str | None,
        option("--methods", "Techniques, comma-separated (default: all there are).", TECHNIQUES),
    ] = None,
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
    runs: Annotated[Path, option("--runs", "Folder for the store and the results.")] = Path("runs"),
    workers: Annotated[
        int | None, option("--workers", "Processes, each with one thread (default: cores).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Hide memorisation in known layers, then see which techniques find it.

    The main task may change two layers only, an auxiliary task changes all of them.

    Without options: `minilm`, the built-in tasks, the first, middle and last two layers.

    What was computed before is reused; after Ctrl-C, the same command goes on.
    """
    windows = Windows.make(sizes=parse_sizes(window_sizes), unit=unit)
    from memloc.api.experiments import run_control
    from memloc.data.builtin import BUILTIN_TASKS
    from memloc.engine.progress import make_progress
    from memloc.models.names import known_training
    from memloc.techniques import names as technique_names

    names = parse_list("--tasks", tasks, "questions")
    if names is None:
        names = tuple(name for name in BUILTIN_TASKS if name != aux_task)
    chosen = technique_names() if methods is None else parse_names(methods)
    techniques = techniques_from(locals(), chosen)
    check_workers(workers)
    memory = parse_bytes(cache_memory)

    def controlled(name: str) -> ControlledModel:
        training = TrainingConfig.make(**known_training(name)).replace(
            epochs=epochs,
            learning_rate=learning_rate,
            batch_size=batch_size,
            max_tokens=max_tokens,
            dtype=dtype,
        )
        config = ModelConfig.make(name=name, blocks=blocks, trust_remote_code=trust_remote_code)
        return ControlledModel.make(model=config, training=training)

    config = ControlRunConfig.make(
        models=tuple(controlled(name) for name in parse_list("--model", model, "minilm") or ()),
        data=DataConfig.make(
            data_dir=data_dir, limit=limit, binarise=binarise, noise=noise, seed=data_seed
        ),
        tasks=names,
        auxiliary=aux_task,
        auxiliary_limit=aux_limit,
        layers=parse_list("--layers", layers, "first,last or 1+2") or (),
        seeds=parse_seeds(seeds),
        techniques=techniques,
        all_techniques=methods is None,
        windows=windows,
        held_back=parse_list("--held-back", held_back, "mrpc,trec") or (),
        control=ControlConfig.make(
            auxiliary_rate=aux_rate, learned_at=learned_at, attempts=attempts
        ),
        device=device,
    )
    with interruptible("finished jobs are kept, the same command goes on"):
        progress = make_progress(Console(stderr=True))
        result = run_control(config, runs, workers, progress, memory, low_memory)
    if as_json:
        print_json(result.summary)
        report_failures(result.summary)
        return
    from memloc.report.control_terminal import show_control
    from memloc.report.terminal import show_jobs

    console = make_console()
    show_control(result.summary, console)
    show_jobs(result.summary["jobs"], result.summary["seconds"], console)
    console.print(f"Results: {result.folder}/", soft_wrap=True, highlight=False, markup=False)
    console.print(
        "  summary.json, accuracy, layers, gradient_choices, attempts (.parquet) and more",
        style="dim",
        highlight=False,
    )
    report_failures(result.summary)
