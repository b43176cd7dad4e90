"""`memloc localise`: models that are already fine-tuned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rich.console import Console

from memloc.cli.options import (
    MODEL,
    TECHNIQUES,
    TRAINING,
    Blocks,
    CacheMemory,
    DeviceOption,
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
    parse_names,
    parse_sizes,
    techniques_from,
)
from memloc.cli.output import interruptible, make_console, print_json, report_failures
from memloc.cli.report import Open, open_report, tell_report, write_beside
from memloc.config import (
    Dtype,
    ModelConfig,
    PairFormat,
    TrainingConfig,
    Windows,
)
from memloc.errors import MemlocError


def localise_command(
    memorised: Annotated[
        str,
        option(
            "--memorised", "Model fine-tuned on the labels in the data (directory or hub name)."
        ),
    ],
    original: Annotated[
        str, option("--original", "The same model fine-tuned on the original labels.")
    ],
    data: Annotated[
        Path,
        option(
            "--data", "File with text, label (as trained), original_label; text_pair for pairs."
        ),
    ],
    out: Annotated[Path, option("--out", "Folder for the result tables.")],
    pretrained: Annotated[
        str | None,
        option(
            "--pretrained", "The model before fine-tuning; all techniques but swapping need it."
        ),
    ] = None,
    near_ceiling: Annotated[
        str | None,
        option(
            "--near-ceiling",
            "The memorised model when it had just learned the labels, for gradients "
            "(default: --memorised).",
        ),
    ] = None,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    original_label_column: OriginalColumn = None,
    pairs: Annotated[
        PairFormat,
        option(
            "--pairs",
            "native: the tokeniser's way; joined: one text with a separator (the paper).",
            MODEL,
        ),
    ] = "native",
    blocks: Blocks = None,
    trust_remote_code: TrustCode = False,
    max_tokens: MaxTokens = None,
    dtype: Annotated[
        Dtype, option("--dtype", "Of matrix products; weights stay float32.", MODEL)
    ] = "float32",
    device: DeviceOption = "auto",
    learning_rate: Annotated[
        float | None, option("--learning-rate", "For retraining windows.", TRAINING)
    ] = None,
    batch_size: Annotated[
        int | None, option("--batch-size", "Examples per step of retraining.", TRAINING)
    ] = None,
    epochs: Annotated[
        int | None,
        option("--epochs", "For the head that is put on the pre-trained model.", TRAINING),
    ] = None,
    seed: Annotated[
        int, option("--seed", "Chooses clean examples, and the order of retraining.", TRAINING)
    ] = 1,
    methods: Annotated[
        str | None,
        option(
            "--methods",
            "Techniques, comma-separated (default: all with --pretrained, else swapping).",
            TECHNIQUES,
        ),
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
    explain: Explain = None,
    workers: Annotated[
        int | None,
        option("--workers", "Processes for retraining, one thread each (default: cores)."),
    ] = None,
    open_it: Open = False,
    as_json: Json = False,
) -> None:
    """Analyse models that are already fine-tuned: which layers hold the wrong labels?

    Writes layers, windows, predictions, examples (.parquet) and more, and summary.json.

    Finished parts are kept in OUT/store; after Ctrl-C, the same command goes on.
    """
    windows = Windows.make(sizes=parse_sizes(window_sizes), unit=unit)
    from memloc.models.names import known_training
    from memloc.techniques import find

    training = TrainingConfig.make(**known_training(pretrained or "")).replace(
        learning_rate=learning_rate,
        batch_size=batch_size,
        epochs=epochs,
        max_tokens=max_tokens,
        dtype=dtype,
    )
    check_workers(workers)
    if not 0 <= seed < 2**32:
        raise MemlocError(
            f"--seed {seed} is not possible; give a whole number from 0 to {2**32 - 1}"
        )
    memory = parse_bytes(cache_memory)
    if not data.exists():
        raise MemlocError(f"there is no file {data}; check --data")
    from memloc.api.experiments import localise_folders
    from memloc.engine.device import pick_device
    from memloc.engine.job import one_thread
    from memloc.engine.local import default_workers
    from memloc.engine.localisation import Given, GivenModels, possible_techniques
    from memloc.engine.progress import make_progress
    from memloc.report.terminal import show_files, show_localisation
    from memloc.results.folder import check_folder

    def model_config(name: str) -> ModelConfig:
        return ModelConfig.make(
            name=name, blocks=blocks, pair_format=pairs, trust_remote_code=trust_remote_code
        )

    check_folder(out)
    given = Given(
        model_config(memorised),
        model_config(original),
        None if pretrained is None else model_config(pretrained),
        None if near_ceiling is None else model_config(near_ceiling),
    )
    names = possible_techniques(given) if methods is None else parse_names(methods)
    techniques = techniques_from(locals(), names)
    place = pick_device(device)
    if workers is None:  # other processes must load everything again: worth it for many windows
        workers = default_workers(place) if any(find(name).windowed for name in names) else 1
    settings = {
        "memorised": memorised, "original": original, "pretrained": pretrained,
        "near_ceiling": near_ceiling, "data": str(data), "text_column": text_column,
        "pair_column": pair_column, "label_column": label_column,
        "original_label_column": original_label_column, "pairs": pairs, "blocks": blocks,
        "training": training.model_dump(), "seed": seed, "device": device,
        "techniques": techniques, "windows": windows.model_dump(mode="json"), "explain": explain,
    }  # fmt: skip
    columns = {
        "text_column": text_column,
        "pair_column": pair_column,
        "label_column": label_column,
        "original_label_column": original_label_column,
    }
    config = GivenModels(
        given, data, techniques, columns, training, windows, seed, explain, settings
    )
    with (
        one_thread(),
        interruptible("finished parts are kept, the same command goes on"),
    ):
        progress = make_progress(Console(stderr=True))
        result = localise_folders(config, out, workers, progress, place, memory, low_memory)
        report = write_beside(out)
    summary = result.summary
    if report and open_it:
        open_report(report)
    if as_json:
        print_json({**summary, "report": report and str(report)})
        report_failures(summary)
        return
    console = make_console()
    show_localisation(summary, console)
    show_files(str(out), console, None, result.summary["seconds"])
    tell_report(report, console, open_it)
    report_failures(summary)
