"""The command line: parse, call, print. Bad input ends with one sentence and exit code 2."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from memloc.cli.claims import agreement_command, claims_command
from memloc.cli.control import control_command
from memloc.cli.figures import figures_command
from memloc.cli.localise import localise_command
from memloc.cli.options import Blocks, Json, TrustCode
from memloc.cli.output import STOPPED, make_console, print_json
from memloc.cli.report import report_command
from memloc.cli.run import run_command
from memloc.cli.status import status_command
from memloc.cli.store import store_app
from memloc.cli.sweep import sweep_command
from memloc.config import ModelConfig
from memloc.errors import MemlocError

# Typer does not name the class of its complaints, which may be its own or click's.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    help="In which layers did a text classifier memorise, and which examples?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
models_app = typer.Typer(help="Models: which names are known, and what memloc sees in one.")
app.command("run")(run_command)
app.command("localise")(localise_command)
app.command("control")(control_command)
app.command("sweep")(sweep_command)
app.command("status")(status_command)
app.command("claims")(claims_command)
app.command("agreement")(agreement_command)
app.command("report")(report_command)
app.command("figures")(figures_command)
app.add_typer(models_app, name="models", no_args_is_help=True)
app.add_typer(store_app, name="store", no_args_is_help=True)


@app.command("tasks")
def tasks_command(as_json: Json = False) -> None:
    """List the built-in tasks and those of the paper."""
    from memloc.data.load import named_tasks
    from memloc.report.listings import show_tasks

    tasks = list(named_tasks().values())
    if as_json:
        print_json([task.facts() for task in tasks])
        return
    show_tasks(tasks, make_console())


@app.command("techniques")
def techniques_command(as_json: Json = False) -> None:
    """List the techniques, also those that other packages bring."""
    from memloc.report.listings import list_techniques, show_techniques

    techniques = list_techniques()
    if as_json:
        print_json(techniques)
        return
    show_techniques(techniques, make_console())


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


def main() -> None:
    """Entry point: turns errors into sentences and exit codes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 is no reason to fail
    try:
        code = app(standalone_mode=False)
        if code in STOPPED:
            _leave(code)
        if code:
            sys.exit(code)
    except typer.Abort:
        sys.exit(130)
    except UsageError as error:
        _complain_of_usage(error)
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


def _leave(code: int) -> None:
    """End now: Python would need seconds to take itself apart, and clusters do not wait."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _complain_of_usage(error: Any) -> None:
    """What was typed makes no sense; without any command, the help page is the answer."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message())
        sys.exit(2)
    command = error.ctx.command_path if error.ctx is not None else "memloc"
    _complain(f"{error.format_message().rstrip('.')}; see `{command} --help`", 2)


def _complain(message: str, code: int) -> None:
    print(f"memloc: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
