"""Tests of the package against a real binary: ``CELPLANE_BIN=… pytest python/tests``."""

import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import pytest

from celplane_testing import Cluster, StartError


def get(cluster: Cluster, path: str) -> str:
    import ssl

    context = ssl.create_default_context(cafile=str(cluster.directory / "data" / "pki" / "ca.crt"))
    with urllib.request.urlopen(cluster.server + path, context=context, timeout=10) as answer:
        return answer.read().decode()


def test_fixture_serves_a_ready_cluster(celplane_cluster: Cluster) -> None:
    assert get(celplane_cluster, "/readyz") == "ok"
    assert celplane_cluster.environment["KUBECONFIG"] == str(celplane_cluster.kubeconfig)


def test_clusters_run_side_by_side(celplane_cluster: Cluster) -> None:
    with Cluster(nodes=0) as other:
        assert other.server != celplane_cluster.server
        assert get(other, "/readyz") == "ok"
        process = other._process
    assert process is not None and process.returncode == 0


def test_bad_arguments_are_reported_with_the_log() -> None:
    with pytest.raises(StartError, match="--no-such-flag"):
        Cluster(arguments=["--no-such-flag"]).start()
    with pytest.raises(StartError, match="CELPLANE_BIN"):
        Cluster(binary="/no/such/file").start()


def test_control_plane_ends_with_a_killed_parent() -> None:
    program = "import sys\nfrom celplane_testing import Cluster\nc = Cluster(nodes=0).start()\nprint(c.server, flush=True)\nsys.stdin.read()\n"
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    server = urllib.parse.urlsplit(parent.stdout.readline().strip())
    address = (server.hostname, server.port)
    socket.create_connection(address, timeout=10).close()
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            socket.create_connection(address, timeout=10).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.01)
    pytest.fail("the control plane outlives its parent")
