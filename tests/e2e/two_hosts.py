"""Two hosts on one machine: network namespaces with a name of their own and a cable between them, on which mpirun starts ranks by TCP.

Needs root (namespaces) and iproute2; available() tells.
"""
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

NETWORK = "10.77.0"
NEW_MOUNTS, NEW_PROCESSES, DEATH_SIGNAL = 0x00020000, 0x20000000, 1  # of unshare() and prctl()


def run(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def available():
    if shutil.which("ip") is None or os.geteuid() != 0:
        return False
    name = f"try{os.getpid()}"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return done.returncode == 0


def live_apart():
    """Goes on in a child whose processes, network namespaces and temporary files end with it, and it with the caller's process, also where that is killed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_MOUNTS | NEW_PROCESSES) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    child = os.fork()  # the first of its namespace, with which all others end
    if child != 0:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0)
    libc.prctl(DEATH_SIGNAL, signal.SIGKILL)
    run("mount", "--make-rprivate", "/")
    run("mount", "-t", "proc", "proc", "/proc")
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    os.environ["TMPDIR"] = tempfile.tempdir = "/run"


class TwoHosts:
    """with TwoHosts() as hosts: subprocess.run(hosts.mpirun(PROGRAM, ...)): rank 0 is on the first host, rank 1 on the second."""

    def __init__(self):
        self.names = [f"host{i}-{os.getpid()}" for i in (1, 2)]
        self.cables = [f"pen{i}x{os.getpid()}"[:15] for i in (1, 2)]
        self.folder = tempfile.TemporaryDirectory()
        # What mpirun starts its daemon on the other host with, in the place of ssh: the host, then the command.
        self.agent = pathlib.Path(self.folder.name) / "agent"

    def __enter__(self):
        for name in self.names:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        self.connect()
        self.agent.write_text(f"""#!/bin/sh
shift
exec ip netns exec {self.names[1]} unshare -u sh -c 'hostname {self.names[1]}; exec sh -c "$*"' agent "$@"
""")
        self.agent.chmod(0o755)
        return self

    def connect(self):
        run("ip", "link", "add", self.cables[0], "netns", self.names[0], "type", "veth", "peer", "name", self.cables[1], "netns", self.names[1])
        for i, name in enumerate(self.names):
            run("ip", "-n", name, "addr", "add", f"{NETWORK}.{i + 1}/24", "dev", self.cables[i])
            run("ip", "-n", name, "link", "set", self.cables[i], "up")

    def __exit__(self, *exc):
        for name in self.names:
            for process in run("ip", "netns", "pids", name).split():
                subprocess.run(["kill", "-9", process], capture_output=True)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        self.folder.cleanup()

    def cut(self):
        run("ip", "-n", self.names[1], "link", "set", self.cables[1], "down")

    def pids(self, host, name):
        """Processes on a host (0 or 1) whose program has this name."""
        found = []
        for process in run("ip", "netns", "pids", self.names[host]).split():
            try:
                if pathlib.Path(f"/proc/{process}/comm").read_text().strip() == name:
                    found.append(int(process))
            except OSError:
                continue
        return found

    def on_first(self, *command):
        """The command, to be run on the first host."""
        return ["ip", "netns", "exec", self.names[0], "unshare", "-u", "sh", "-c", f'hostname {self.names[0]}; exec "$@"', "sh", *map(str, command)]

    def mpirun(self, *command):
        by = ["mpirun", "--bind-to", "none", "--mca", "plm_rsh_agent", self.agent, "--mca", "btl", "tcp,self", "--host",
              f"{self.names[0]}:1,{NETWORK}.2:1", "-n", 2]
        for layer in ("btl", "oob"):
            by[1:1] = ["--mca", f"{layer}_tcp_if_include", f"{NETWORK}.0/24"]
        return self.on_first(*by, *command)
