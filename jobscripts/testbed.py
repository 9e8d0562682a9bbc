#!/usr/bin/env python3
"""A Slurm cluster with a slow network on this one machine, up and down in seconds.

    jobscripts/testbed.py up [--nodes 4] [--rate 400mbit] [--cpus 2]
    jobscripts/testbed.py exec sbatch job.sh           a command that finds this Slurm
    jobscripts/testbed.py exec --node 2 ping 10.78.0.1 the same, seen from the network of a node
    jobscripts/testbed.py status
    jobscripts/testbed.py down                         jobs, daemons, network and folder: nothing stays

A node is a network namespace with a real slurmd in it (shaped_nodes.sh); slurmctld and munge run beside them. Ranks on
different nodes talk over the wire only if MPI is told to: jobscripts/sites/testbed.toml has the variables.

--no-network starts the daemons on one host name without namespaces, for machines that forbid those. It needs no root.
What is known of a testbed, and its folder, stand where only its user may write: /run/strata-testbed-UID for root, else
below XDG_RUNTIME_DIR or /run/user/UID, or where there is none below TMPDIR; other users' files and processes are never
read, removed or ended.
Limits: one testbed a machine; what a killed one left behind is removed by the next `up`. No accounting database (jobs
that ended stand in FOLDER/jobcomp.txt). Without cgroups, memory is watched by polling once a second (OverMemoryKill),
and CPUs are counted but not bound. Slurm looks at time limits twice a minute, and they are whole minutes.
Exit codes: 0 done, 1 it failed, 2 asked wrongly (one is up already, say), 3 this machine cannot do it.
"""

import argparse
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAME = "strata-n"  # of the bridge; the namespaces are strata-n1, strata-n2, ...
SUBNET = "10.78.0"
FIRST_PORT = 16817  # slurmctld; slurmd of node i: FIRST_PORT + i. Not Slurm's own, which a machine may have in use.
UP_WITHIN_SECONDS = 30
SHAPED_NODES = Path(__file__).with_name("shaped_nodes.sh")
DAEMONS = {"munged", "slurmctld", "slurmd", "slurmstepd"}


class RefusedError(Exception):
    """What was asked cannot be done; the text says why and what can."""


class UnavailableError(RefusedError):
    """It cannot be done on this machine, or by this user."""


def private_folder() -> Path:
    """Of this user: it holds the record of the testbed, and its files where no other folder was asked for."""
    own = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    runtime = Path("/run" if os.getuid() == 0 else own)
    base = runtime if runtime.is_dir() and runtime.stat().st_uid == os.getuid() else Path(tempfile.gettempdir())
    return base / f"strata-testbed-{os.getuid()}"


def record_file() -> Path:
    """It exists while a testbed is up."""
    return private_folder() / "testbed.json"


def check_above(folder: Path) -> None:
    """That nobody else can put another folder in the place of this one, which need not exist."""
    for above in Path(os.path.realpath(folder)).parents:
        found = above.stat()
        may_be_written = found.st_mode & 0o002 or (found.st_mode & 0o020 and found.st_gid != 0)
        if found.st_uid not in (0, os.getuid()) or (may_be_written and not found.st_mode & stat.S_ISVTX):
            raise RefusedError(
                f"others than user {os.getuid()} may write {above} ({stat.filemode(found.st_mode)} of user "
                f"{found.st_uid}) and exchange what is in it: {folder} is not used"
            )


def check_private(folder: Path) -> os.stat_result:
    """Of a folder into which nobody else can have put anything."""
    check_above(folder)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise RefusedError(
            f"{folder} is not a folder of user {os.getuid()} alone (mode 700), but "
            f"{stat.filemode(found.st_mode)} of user {found.st_uid}: nothing in it is used; remove it and start again"
        )
    return found


def check_folder(settings: dict) -> None:
    """That the testbed's folder is the one that `up` made, if it is still there."""
    folder = Path(settings["folder"])
    if not folder.exists() and not folder.is_symlink():
        return
    found = check_private(folder)
    if [found.st_dev, found.st_ino] != settings["inode"]:
        raise RefusedError(f"{folder} is not the folder that `up` made: look at it, then remove {record_file()}")


def slurm_conf(settings: dict) -> str:
    folder, num_nodes, cpus = settings["folder"], settings["nodes"], settings["cpus"]
    host = socket.gethostname().split(".")[0]
    shaped = settings["network"]
    user = "root" if os.getuid() == 0 else str(os.getuid())
    parameters = {
        "ClusterName": "testbed",
        "SlurmctldHost": f"{host}({f'{SUBNET}.254' if shaped else '127.0.0.1'})",
        "SlurmctldPort": FIRST_PORT,
        "SlurmUser": user,
        "SlurmdUser": user,
        "AuthType": "auth/munge",
        # A job that is requeued waits until its credential has expired.
        "AuthInfo": f"socket={folder}/munge.socket,cred_expire=15",
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool-%n",
        "SlurmctldPidFile": f"{folder}/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/slurmd-%n.pid",
        "SlurmctldLogFile": f"{folder}/slurmctld.log",
        "SlurmdLogFile": f"{folder}/slurmd-%n.log",
        "JobCompType": "jobcomp/filetxt",
        "JobCompLoc": f"{folder}/jobcomp.txt",
        # No cgroups: they are rarely ours on such a machine.
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/linux",
        "JobAcctGatherFrequency": "task=1",
        "JobAcctGatherParams": "OverMemoryKill",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "DefMemPerCPU": settings["memory_mib"] // cpus,
        "SlurmdParameters": "config_overrides",  # a node has what we say, whatever the host has
        "MpiDefault": "none",  # so that a job script that forgets --mpi is found out
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "REQUEUE",
        "JobRequeue": 1,
        "ReturnToService": 2,
        "MaxArraySize": 1001,
        # A test should see in seconds what a supercomputer shows in minutes.
        "SchedulerParameters": "batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1",
        "KillWait": 5,
        "MessageTimeout": 5,
        "TCPTimeout": 2,
        "SlurmdTimeout": 6,
        "BatchStartTimeout": 10,
        "UnkillableStepTimeout": 30,
        "CompleteWait": 0,
        "MinJobAge": 300,
    } | settings["slurm_conf"]
    lines = [f"{key}={value}" for key, value in parameters.items()]
    for i in range(1, num_nodes + 1):
        address = f"{SUBNET}.{i}" if shaped else "127.0.0.1"
        lines.append(
            f"NodeName=n{i} NodeHostname={host} NodeAddr={address} Port={FIRST_PORT + i} CPUs={cpus} Sockets=1 "
            f"CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory={settings['memory_mib']}"
        )
    # A job in `urgent` takes the nodes of jobs in `batch`, which are requeued.
    nodes = f"Nodes=n[1-{num_nodes}] State=UP MaxTime=INFINITE"
    lines.append(f"PartitionName=batch {nodes} Default=YES PriorityTier=1 PreemptMode=REQUEUE")
    lines.append(f"PartitionName=urgent {nodes} PriorityTier=10 PreemptMode=OFF")
    return "\n".join(lines) + "\n"


def environment_of(settings: dict) -> dict:
    return {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SBATCH_"))} | {
        "SLURM_CONF": f"{settings['folder']}/slurm.conf"
    }


def inside(settings: dict, node: int) -> list[str]:
    """Words before a command that is to run in the network of a node."""
    return ["nsenter", f"--net=/run/netns/{NAME}{node}"] if settings["network"] else []


def call(*words, settings: dict | None = None, seconds: float = 20) -> str:
    """Standard output of a command that must succeed. A daemon that it leaves behind does not keep us waiting."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=environment_of(settings) if settings else None,
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        output.seek(0)
        text = output.read()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))} ended with {process.returncode}: {text.strip()}")
    return text


def check_this_machine(network: bool) -> None:
    if network and os.getuid() != 0:
        raise UnavailableError(
            "network namespaces need root; --no-network does without them (and without a slow network)"
        )
    needed = ["slurmctld", "slurmd", "munged", "sinfo", *(["ip", "tc", "nsenter"] if network else [])]
    if missing := [name for name in needed if shutil.which(name) is None]:
        raise UnavailableError(
            f"no {', '.join(missing)} in PATH; `jobscripts/setup.sh --slurm` installs them on Debian"
        )


def read_record() -> dict | None:
    try:
        check_private(private_folder())
        settings = json.loads(record_file().read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RefusedError(
            f"{record_file()} is damaged ({error}): end what it started by hand, then remove it"
        ) from error
    check_folder(settings)
    return settings


def claim_record(settings: dict) -> None:
    """It is there whole or not at all. @raises FileExistsError where another testbed has it."""
    written = record_file().with_suffix(f".{os.getpid()}")
    written.write_text(json.dumps(settings))
    try:
        os.link(written, record_file())
    finally:
        written.unlink()


def running_record() -> dict:
    if (settings := read_record()) is None:
        raise RefusedError("no testbed is up; `testbed.py up` starts one")
    return settings


# ------------------------------------------------------------------------------------------------------------------ up


def up(arguments: argparse.Namespace) -> None:
    folder = arguments.folder or private_folder() / "slurm"
    settings = {
        "folder": str(folder.absolute()),
        "network": not arguments.no_network,
        "nodes": arguments.nodes,
        "cpus": arguments.cpus,
        "memory_mib": arguments.memory_mib,
        "rate": None if arguments.no_network else arguments.rate,
        "slurm_conf": dict(word.split("=", 1) for word in arguments.set),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "since_ticks": start_ticks(os.getpid()),
    }
    check_this_machine(settings["network"])
    if (other := read_record()) is not None:
        if any(is_running(pid) for pid in processes_of(other)):
            raise RefusedError(
                f"a testbed is up since {other['since']} in {other['folder']}; `testbed.py down` ends it"
            )
        print(f"testbed: nothing runs of the one of {other['since']} in {other['folder']}, what it left is removed")
        take_down(other)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", FIRST_PORT))
        except OSError as error:
            raise RefusedError(f"port {FIRST_PORT} is taken ({error}); is another user's testbed up?") from error
    with contextlib.suppress(FileExistsError):
        private_folder().mkdir(mode=0o700)
    check_private(private_folder())
    Path(settings["folder"]).parent.mkdir(parents=True, exist_ok=True)
    check_above(Path(settings["folder"]))
    try:
        Path(settings["folder"]).mkdir(mode=0o700)
    except FileExistsError as error:
        remove_private_folder()
        raise RefusedError(f"{folder} exists; --folder names one that does not, because `down` removes it") from error
    made = check_private(Path(settings["folder"]))
    settings["inode"] = [made.st_dev, made.st_ino]
    try:
        claim_record(settings)
    except FileExistsError as error:
        Path(settings["folder"]).rmdir()
        raise RefusedError("another testbed has just been started; `testbed.py status` says where") from error
    try:
        begin = time.monotonic()
        start(settings)
        if arguments.until_end_of:
            take_down_after(arguments.until_end_of, settings)
    except BaseException:
        take_down(settings)
        raise
    print(f"testbed: {settings['nodes']} nodes up after {time.monotonic() - begin:.1f} s in {settings['folder']}")


def start(settings: dict) -> None:
    folder = Path(settings["folder"])
    if settings["network"]:
        try:
            # We have the only record, so a network of this name belongs to a testbed whose record was removed by hand.
            call(SHAPED_NODES, "down", NAME)
            call(SHAPED_NODES, "up", NAME, settings["nodes"], settings["rate"], SUBNET)
        except RuntimeError as error:
            raise UnavailableError(
                f"this machine does not give us shaped namespaces ({error}); see --no-network"
            ) from error
    (folder / "state").mkdir()
    (folder / "slurm.conf").write_text(slurm_conf(settings))
    # A munge of our own: the machine's may not run, and its key is none of our business.
    write_key(folder / "munge.key")
    files = [
        f"--{name}={folder}/munge.{name.split('-')[0]}"
        for name in ("socket", "key-file", "pid-file", "log-file", "seed-file")
    ]
    call("munged", "--force", *files)
    call("slurmctld", "-c", settings=settings)
    for i in range(1, settings["nodes"] + 1):
        call(*inside(settings, i), "slurmd", "-N", f"n{i}", settings=settings)
    deadline = time.monotonic() + UP_WITHIN_SECONDS
    state = ""
    while state.split() != ["idle"] * settings["nodes"]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"after {UP_WITHIN_SECONDS} s the nodes are: {state.split()}\n{last_words(folder)}")
        time.sleep(0.1)
        try:
            state = call("sinfo", "--noheader", "--Node", "--partition=batch", "--format=%T", settings=settings)
        except RuntimeError as error:
            state = str(error)


def write_key(path: Path) -> None:
    """Never, not even while it is made, may another user read it."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "wb") as key:
        key.write(os.urandom(128))


def last_words(folder: Path) -> str:
    """The end of each log."""
    return "\n".join(
        f"{log.name}: {line}" for log in sorted(folder.glob("*.log")) for line in log.read_text().splitlines()[-5:]
    )


def take_down_after(pid: int, settings: dict) -> None:
    """Leave a process that waits for the end of another one and then takes the testbed down."""
    watched = os.pidfd_open(pid)
    if os.fork() != 0:
        return
    # `down` ends this process by SIGTERM. With the handler of `up` it would begin to take the same testbed down.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setsid()
    with open(os.devnull, "r+") as null, open(f"{settings['folder']}/watcher.log", "w") as log:
        for stream, file in ((0, null), (1, log), (2, log)):
            os.dup2(file.fileno(), stream)
    Path(settings["folder"], "watcher.pid").write_text(str(os.getpid()))
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.poll()
    take_down(settings)
    os._exit(0)


# ---------------------------------------------------------------------------------------------------------------- down


def start_ticks(pid: int) -> int:
    """When a process began, in ticks since the machine's start."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def may_be_of(settings: dict, pid: int) -> bool:
    """Whether a process is this user's and began after `up` did: a number may be given to another one."""
    return Path(f"/proc/{pid}").stat().st_uid == os.getuid() and start_ticks(pid) >= settings["since_ticks"]


def is_daemon(pid: int) -> bool:
    """slurmctld, slurmd, munged, or the process of --until-end-of."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    return Path(f"/proc/{pid}/comm").read_text().strip() in DAEMONS or Path(__file__).name.encode() in command


def processes_of(settings: dict) -> set[int]:
    """Everything that the testbed started: its daemons by their pid files, what runs in its namespaces, and what has
    its SLURM_CONF in the environment, which jobs and their steps have. Not ourselves and whoever started us."""
    folder = Path(settings["folder"])
    found = set()
    for file in folder.glob("*.pid"):
        with contextlib.suppress(OSError):  # ended meanwhile
            if (text := file.read_text().strip()).isdigit() and may_be_of(settings, int(text)) and is_daemon(int(text)):
                found.add(int(text))
    namespaces = set()
    for i in range(1, settings["nodes"] + 1) if settings["network"] else ():
        with contextlib.suppress(FileNotFoundError):
            namespaces.add(os.stat(f"/run/netns/{NAME}{i}").st_ino)
    mark = f"SLURM_CONF={folder}/slurm.conf".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if not may_be_of(settings, int(process.name)):
                continue
            is_inside = os.stat(process / "ns/net").st_ino in namespaces
            if is_inside or mark in (process / "environ").read_bytes().split(b"\0"):
                found.add(int(process.name))
        except OSError:
            pass  # ended meanwhile, or another user's
    pid = os.getpid()
    while pid > 1:
        found.discard(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def take_down(settings: dict) -> None:
    """Leaves nothing, from whatever state; what is in the way is told at the end."""
    check_folder(settings)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # First everybody who would restart or report, then by force: the results of jobs are not ours to save.
    # Who forks while the processes are listed is not among them: nobody is left when twice nobody was found.
    for ending, seconds in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 10.0)):
        deadline = time.monotonic() + seconds
        asked = set()
        times_found_none = 0
        while times_found_none < 2 and time.monotonic() < deadline:
            running = {pid for pid in processes_of(settings) if is_running(pid)}
            times_found_none = 0 if running else times_found_none + 1
            for pid in running - asked if ending == signal.SIGTERM else running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, ending)
            asked |= running
            time.sleep(0.05)
    left = {pid for pid in processes_of(settings) if is_running(pid)}
    if settings["network"]:
        call(SHAPED_NODES, "down", NAME)
    shutil.rmtree(settings["folder"], ignore_errors=True)
    if left:
        raise RuntimeError(f"processes {sorted(left)} do not end; run `testbed.py down` again")
    remove_record()


def remove_record() -> None:
    record_file().unlink(missing_ok=True)
    remove_private_folder()


def remove_private_folder() -> None:
    """Where nothing stands in it."""
    with contextlib.suppress(OSError):
        private_folder().rmdir()


def down(_arguments: argparse.Namespace) -> None:
    if (settings := read_record()) is None:
        print("testbed: none is up")
        return
    if settings["network"] and any(
        Path(f"/run/netns/{NAME}{i}").exists()
        and os.stat(f"/run/netns/{NAME}{i}").st_ino == os.stat("/proc/self/ns/net").st_ino
        for i in range(1, settings["nodes"] + 1)
    ):
        raise RefusedError("this shell is inside a node; leave it first")
    take_down(settings)
    print("testbed: down")


# -------------------------------------------------------------------------------------------------------- status, exec


def status(_arguments: argparse.Namespace) -> None:
    settings = running_record()
    rate = f"{settings['rate']} in and out of each node" if settings["network"] else "none: all nodes are this host"
    print(f"up since {settings['since']}\nfolder   {settings['folder']}\nnetwork  {rate}")
    print(f"use      export SLURM_CONF={settings['folder']}/slurm.conf\n")
    print(call("sinfo", "--Node", "--long", settings=settings), end="")
    print(call("squeue", settings=settings), end="")


def execute(arguments: argparse.Namespace) -> None:
    settings = running_record()
    if arguments.node is not None and not 1 <= arguments.node <= settings["nodes"]:
        raise RefusedError(f"--node {arguments.node}: there are nodes 1 to {settings['nodes']}")
    prefix = inside(settings, arguments.node) if arguments.node is not None else []
    words = [*prefix, *arguments.command]
    if shutil.which(words[0]) is None:
        raise RefusedError(f"no command {words[0]}")
    os.execvpe(words[0], words, environment_of(settings))


def positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def node_count(text: str) -> int:
    if (value := positive(text)) > 200:
        raise argparse.ArgumentTypeError(f"{value} nodes: at most 200 addresses")
    return value


def key_value(text: str) -> str:
    if "=" not in text:
        raise argparse.ArgumentTypeError(f"{text} is not KEY=VALUE")
    return text


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="testbed.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(required=True, metavar="up|down|status|exec")
    verb = verbs.add_parser("up", help="start it")
    verb.set_defaults(action=up)
    verb.add_argument("--nodes", type=node_count, default=4)
    verb.add_argument("--rate", default="400mbit", help="of each node, each way, as tc writes it (default 400mbit)")
    verb.add_argument("--cpus", type=positive, default=2, help="that Slurm believes a node to have (default 2)")
    verb.add_argument("--memory-mib", type=positive, default=4000, help="of a node, likewise (default 4000)")
    verb.add_argument("--folder", type=Path, help="for state, logs and sockets; must not exist")
    verb.add_argument("--set", type=key_value, default=[], action="append", metavar="KEY=VALUE", help="into slurm.conf")
    verb.add_argument("--no-network", action="store_true", help="no namespaces: all nodes on this host's own network")
    verb.add_argument("--until-end-of", type=positive, metavar="PID", help="take it down when this process ends")
    verbs.add_parser("down", help="end it and everything that runs on it").set_defaults(action=down)
    verbs.add_parser("status", help="nodes and jobs").set_defaults(action=status)
    verb = verbs.add_parser("exec", help="run a command that finds this Slurm")
    verb.set_defaults(action=execute)
    verb.add_argument("--node", type=positive, help="in the network of this node")
    verb.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if arguments.action is execute and not arguments.command:
        parser.error("exec needs a command")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a killed `up` cleans up
    try:
        arguments.action(arguments)
    except RefusedError as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 3 if isinstance(error, UnavailableError) else 2
    except (RuntimeError, OSError) as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
