"""The command line: parse, call, print. Bad input ends with one sentence and exit code 2."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from memloc.cli_options import (
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
    LabelColumn,
    MaxTokens,
    OriginalColumn,
    PairColumn,
    PerExample,
    ProbeEpochs,
    ProbeSeeds,
    RetrainEpochs,
    RetrainTail,
    TextColumn,
    TrustCode,
    Undivided,
    WindowSizes,
    option,
    parse_bytes,
    parse_names,
    parse_seeds,
    techniques_from,
)
from memloc.config import (
    DEFAULT_METHODS,
    DataConfig,
    Dtype,
    ModelConfig,
    PairFormat,
    RunConfig,
    TrainingConfig,
)
from memloc.errors import MemlocError

app = typer.Typer(
    help="In which layers did a text classifier memorise, and which examples?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
models_app = typer.Typer(help="Models: which names are known, and what memloc sees in one.")
app.add_typer(models_app, name="models", no_args_is_help=True)


@app.command("run")
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
    ] = ",".join(DEFAULT_METHODS),
    window_sizes: WindowSizes = None,
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
    cache_memory: CacheMemory = "1GB",
    runs: Annotated[Path, option("--runs", "Folder for the store and the results.")] = Path("runs"),
    workers: Annotated[
        int | None, option("--workers", "Processes, each with one thread (default: cores).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Flip labels, fine-tune, and find the layers that hold the flipped labels.

    Without options: the embedded model `minilm` on the built-in task `questions`.

    Training settings default to what suits the model, see `memloc models list`.

    What was computed before is reused; after Ctrl-C, the same command goes on.
    """
    techniques = techniques_from(locals())
    from memloc.execution.progress import make_progress
    from memloc.experiment import run
    from memloc.methods import check_method_names
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
        methods=parse_names(methods),
        techniques=techniques,
        device=device,
    )
    check_method_names(config.methods)
    check_workers(workers)
    memory = parse_bytes(cache_memory)
    with interruptible("finished jobs are kept, the same command goes on"):
        result = run(config, runs, workers, make_progress(Console(stderr=True)), memory)
    if as_json:
        print_json(result.summary)
        report_failures(result.summary)
        return
    from memloc.report.terminal import show_files, show_run

    console = make_console()
    show_run(result.summary, console)
    show_files(str(result.folder), console, result.summary["jobs"], result.summary["seconds"])
    report_failures(result.summary)


@app.command("localise")
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
    cache_memory: CacheMemory = "1GB",
    workers: Annotated[
        int | None,
        option("--workers", "Processes for retraining, one thread each (default: cores)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Analyse models that are already fine-tuned: which layers hold the wrong labels?

    Writes layers, windows, predictions, examples (.parquet) and more, and summary.json.

    Finished parts are kept in OUT/store; after Ctrl-C, the same command goes on.
    """
    techniques = techniques_from(locals())
    import time

    from memloc.methods import check_method_names
    from memloc.models.names import known_training

    names = None if methods is None else parse_names(methods)
    check_method_names(names or ())
    training = TrainingConfig.make(**known_training(pretrained or "")).replace(
        learning_rate=learning_rate,
        batch_size=batch_size,
        epochs=epochs,
        max_tokens=max_tokens,
        dtype=dtype,
    )
    check_workers(workers)
    if not 0 <= seed < 2**32:
        raise MemlocError(f"--seed {seed} is not possible; give a whole number from 0 up")
    memory = parse_bytes(cache_memory)
    if not data.exists():
        raise MemlocError(f"there is no file {data}; check --data")
    started = time.perf_counter()
    from memloc.execution.device import pick_device
    from memloc.execution.job import one_thread
    from memloc.execution.local import default_workers
    from memloc.execution.progress import make_progress
    from memloc.localise import Given, localise_folders, possible_methods
    from memloc.report.terminal import show_files, show_localisation
    from memloc.results import check_folder, write_results

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
    names = names or possible_methods(given)
    place = pick_device(device)
    if workers is None:  # other processes must load everything again: worth it for many windows
        workers = default_workers(place) if "retraining" in names else 1
    settings = {
        "memorised": memorised, "original": original, "pretrained": pretrained,
        "near_ceiling": near_ceiling, "data": str(data), "text_column": text_column,
        "pair_column": pair_column, "label_column": label_column,
        "original_label_column": original_label_column, "pairs": pairs, "blocks": blocks,
        "training": training.model_dump(), "seed": seed, "device": device, "methods": names,
        "techniques": techniques.model_dump(mode="json"),
    }  # fmt: skip
    with (
        one_thread(),
        interruptible("finished parts are kept, the same command goes on"),
    ):
        summary, tables = localise_folders(
            given,
            data,
            names,
            {
                "text_column": text_column,
                "pair_column": pair_column,
                "label_column": label_column,
                "original_label_column": original_label_column,
            },
            training=training,
            techniques=techniques,
            seed=seed,
            device=place,
            work=out / "store",
            workers=workers,
            cache_memory=memory,
            progress=make_progress(Console(stderr=True)),
        )
    write_results(out, tables, summary, settings)
    if as_json:
        print_json({**summary, "folder": str(out)})
        report_failures(summary)
        return
    console = make_console()
    show_localisation(summary, console)
    show_files(str(out), console, None, time.perf_counter() - started)
    report_failures(summary)


@app.command("tasks")
def tasks_command(as_json: Json = False) -> None:
    """List the built-in tasks and those of the paper."""
    from dataclasses import asdict

    from memloc.data.load import list_tasks
    from memloc.report.listings import show_tasks

    tasks = list_tasks()
    if as_json:
        print_json([asdict(task) for task in tasks])
        return
    show_tasks(tasks, make_console())


@models_app.command("list")
def models_list_command() -> None:
    """List the models that have a short name."""
    from memloc.report.listings import show_models

    show_models(make_console())


@models_app.command("check")
def models_check_command(
    name: Annotated[str, typer.Argument(help="A known name, a hub name or a directory.")],
    blocks: Blocks = None,
    trust_remote_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Show what memloc finds in a model: its layers, its parameters, which short cuts are valid."""
    from memloc.models.check import check_model, show_check

    found = check_model(
        ModelConfig.make(name=name, blocks=blocks, trust_remote_code=trust_remote_code)
    )
    if as_json:
        print_json(found)
    else:
        show_check(found, make_console())


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        import memloc

        print(f"memloc {memloc.__version__}")
        raise typer.Exit


def check_workers(workers: int | None) -> None:
    """At least one.

    Raises:
        MemlocError: If there are fewer.
    """
    if workers is not None and workers < 1:
        raise MemlocError(f"--workers {workers} is not possible; give 1 or more")


def report_failures(summary: dict[str, Any]) -> None:
    """Results were shown, but some are missing: say which, and end with exit code 2."""
    for sentence in summary["failures"]:
        print(f"memloc: {sentence}", file=sys.stderr)
    if summary["failures"]:
        raise typer.Exit(2)


def make_console() -> Console:
    """Standard output; 80 columns where the width is unknown."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=80)


def print_json(value: Any) -> None:
    """JSON on standard output."""
    print(json.dumps(value, indent=1, ensure_ascii=False))


@contextlib.contextmanager
def interruptible(words: str) -> Iterator[None]:
    """Ctrl-C ends long work with a sentence."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nmemloc: interrupted; {words}", file=sys.stderr, flush=True)
        raise typer.Exit(130) from None


def main() -> None:
    """Entry point: turns errors into sentences and exit codes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 is no reason to fail
    try:
        app()
    except MemlocError as error:
        _complain(str(error), 2)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _complain(f"{error.strerror or error}{where}; check the path and its permissions", 2)
    except Exception as error:
        log = Path(tempfile.gettempdir()) / "memloc-error.log"
        with contextlib.suppress(OSError):
            log.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
        _complain(
            f"unexpected {type(error).__name__}: {error}; this is a defect of memloc, please "
            f"report it with {log}",
            1,
        )


def _complain(message: str, code: int) -> None:
    print(f"memloc: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
