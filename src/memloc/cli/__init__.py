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
from typing import Annotated, Any

import typer

from memloc.cli import experiments, listings, results
from memloc.cli.options import spell
from memloc.cli.output import STOPPED
from memloc.cli.store import store_app
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
experiments.RUN.add(app, "run", experiments.run_command)
experiments.AUDIT.add(app, "audit", experiments.audit_command)
experiments.LOCALISE.add(app, "localise", experiments.localise_command)
experiments.CONTROL.add(app, "control", experiments.control_command)
experiments.REPAIR.add(app, "repair", experiments.repair_command)
experiments.SWEEP.add(app, "sweep", experiments.sweep_command)
app.command("status")(results.status_command)
app.command("claims")(results.claims_command)
app.command("agreement")(results.agreement_command)
app.command("report")(results.report_command)
app.command("figures")(results.figures_command)
app.command("tasks")(listings.tasks_command)
app.command("techniques")(listings.techniques_command)
app.command("settings")(listings.settings_command)
app.add_typer(listings.models_app, name="models", no_args_is_help=True)
app.add_typer(store_app, name="store", no_args_is_help=True)


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
        _complain(error.spelled(spell), 2)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _complain(f"{error.strerror or error}{where}; check the path and its permissions", 2)
    except Exception as error:
        _complain(
            f"unexpected {type(error).__name__}: {error}; this is a defect of memloc, please "
            f"report it{_with_log(error)}",
            1,
        )


def _with_log(error: Exception) -> str:
    """Write the details to a new file; others can neither guess its name nor read it."""
    try:
        handle, name = tempfile.mkstemp(prefix="memloc-error-", suffix=".log")
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as log:
            log.write("".join(traceback.format_exception(error)))
    except OSError:
        return ""
    return f" with {name}"


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
