"""A real Slurm of two nodes on this machine: without systemd, cgroups or accounting."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue")
MISSING = [name for name in DAEMONS if shutil.which(name) is None]
NODES = ("n1", "n2")
CONF = """
ClusterName=memloc
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=30
SchedulerParameters=sched_interval=1,batch_sched_delay=0
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 RealMemory=2000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 RealMemory=2000
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


@contextlib.contextmanager
def real_slurm(folder: Path) -> Iterator[None]:
    """Two idle nodes, which the commands of Slurm find, for as long as the block lasts."""
    for name in ("state", "munge", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir(parents=True)
    key = folder / "munge" / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(1024))
    host = socket.gethostname().partition(".")[0]
    conf = folder / "slurm.conf"
    values = {"host": host, "user": getpass.getuser(), "folder": folder, "ports": free_ports(3)}
    conf.write_text(CONF.format(**values))
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(conf)
    munge = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log"}
    options = [f"--{name}={folder}/munge/{file}" for name, file in munge.items()]
    try:
        # By force, because other users cannot reach the socket, and need not.
        run("munged", "--force", *options, f"--seed-file={folder}/munge/seed")
        run("slurmctld", "-f", str(conf))
        for node in NODES:
            run("slurmd", "-N", node, "-f", str(conf))
        deadline = time.monotonic() + 60
        while run("sinfo", "-h", "-N", "-o", "%T").split() != ["idle"] * len(NODES):
            assert time.monotonic() < deadline, run("sinfo", "-N")
            time.sleep(0.1)
        yield
    finally:
        subprocess.run(["scancel", "--user", getpass.getuser()], check=False)
        time.sleep(1)
        for path in (*folder.glob("*.pid"), folder / "munge" / "pid"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(path.read_text()), signal.SIGTERM)
        if before is None:
            del os.environ["SLURM_CONF"]
        else:
            os.environ["SLURM_CONF"] = before


def run(*command: str) -> str:
    """What a command prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def free_ports(count: int) -> list[int]:
    """Ports at which nobody listens."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
