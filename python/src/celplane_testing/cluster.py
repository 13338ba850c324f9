"""One control plane in a child process."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from types import TracebackType
from typing import Dict, List, Mapping, Optional, Sequence, Type, Union

#: Variable that names the binary; without it, ``celplane`` is looked up on the path.
BINARY_VARIABLE = "CELPLANE_BIN"


class StartError(RuntimeError):
    """The control plane did not start. The message ends with the last lines of its log."""


def find_binary(binary: Union[str, "os.PathLike[str]", None] = None) -> str:
    """Returns the path of the binary: the argument, ``CELPLANE_BIN``, or ``celplane`` on the path."""
    wanted = os.fspath(binary) if binary is not None else os.environ.get(BINARY_VARIABLE, "celplane")
    found = shutil.which(wanted)
    if found is None:
        raise StartError(f"`{wanted}` was not found: install celplane, or set {BINARY_VARIABLE} to its path")
    return found


class Cluster:
    """A control plane with simulated nodes. Objects live in memory and end with it.

    :param nodes: number of simulated nodes; 0 for a bare API server with controllers and scheduler.
    :param feature_gates: gates to turn on or off, by name.
    :param arguments: further arguments of ``celplane up``.
    :param binary: path of the binary, see :func:`find_binary`.
    :param timeout: seconds until a start counts as failed.
    """

    def __init__(
        self,
        nodes: int = 3,
        feature_gates: Optional[Mapping[str, bool]] = None,
        arguments: Sequence[str] = (),
        binary: Union[str, "os.PathLike[str]", None] = None,
        timeout: float = 30.0,
    ) -> None:
        self.nodes = nodes
        self.feature_gates = dict(feature_gates or {})
        self.arguments = list(arguments)
        self.binary = binary
        self.timeout = timeout
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._directory: Optional["tempfile.TemporaryDirectory[str]"] = None
        self._server = ""

    @property
    def directory(self) -> pathlib.Path:
        """Directory of certificates, kubeconfig and log."""
        if self._directory is None:
            raise RuntimeError("the cluster is not running")
        return pathlib.Path(self._directory.name)

    @property
    def kubeconfig(self) -> pathlib.Path:
        """Kubeconfig of the cluster's administrator."""
        return self.directory / "data" / "admin.kubeconfig"

    @property
    def server(self) -> str:
        """URL of the API server."""
        return self._server

    @property
    def environment(self) -> Dict[str, str]:
        """This process's environment with ``KUBECONFIG`` set, for child processes."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}

    def log(self, lines: int = 50) -> str:
        """Returns the last lines of the control plane's log."""
        try:
            text = (self.directory / "celplane.log").read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def command(self, ready: pathlib.Path) -> List[str]:
        """Returns the command that starts the control plane."""
        command = [
            find_binary(self.binary), "up", "--ephemeral", "--port", "0", "--nodes", str(self.nodes),
            "--data-dir", str(self.directory / "data"), "--ready-file", str(ready), "--stop-with-stdin",
        ]
        if self.feature_gates:
            gates = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(self.feature_gates.items()))
            command += ["--feature-gates", gates]
        return command + self.arguments

    def start(self) -> "Cluster":
        """Starts the control plane and returns when its nodes are ready."""
        if self._process is not None:
            raise RuntimeError("the cluster is running already")
        self._directory = tempfile.TemporaryDirectory(prefix="celplane-")
        ready = self.directory / "ready.json"
        try:
            with open(self.directory / "celplane.log", "wb") as log:
                # The control plane ends when this pipe closes: also when this process is killed.
                self._process = subprocess.Popen(
                    self.command(ready), stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
                )
            self._server = self._wait(ready)["server"]
        except BaseException:
            self.stop()
            raise
        return self

    def _wait(self, ready: pathlib.Path) -> Dict[str, str]:
        assert self._process is not None
        deadline = time.monotonic() + self.timeout
        while not ready.exists():
            code = self._process.poll()
            if code is not None:
                raise StartError(f"celplane ended with code {code} while starting:\n{self.log()}")
            if time.monotonic() > deadline:
                raise StartError(f"celplane was not ready after {self.timeout} s:\n{self.log()}")
            time.sleep(0.005)
        answer: Dict[str, str] = json.loads(ready.read_text())
        return answer

    def stop(self) -> None:
        """Stops the control plane and removes its files. Stopping twice is fine."""
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        directory, self._directory = self._directory, None
        if directory is not None:
            directory.cleanup()

    def __enter__(self) -> "Cluster":
        return self.start()

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.stop()
