"""The pytest plugin: fixtures and options."""

from __future__ import annotations

from typing import Iterator

import pytest

from .cluster import Cluster


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--celplane-bin`` and ``--celplane-nodes``."""
    group = parser.getgroup("celplane")
    group.addoption("--celplane-bin", default=None, help="path of the celplane binary (default: CELPLANE_BIN, or the path)")
    group.addoption("--celplane-nodes", type=int, default=3, help="number of simulated nodes (default: 3)")


@pytest.fixture(scope="session")
def celplane_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One control plane for the whole test session; tests keep apart by namespaces."""
    binary, nodes = request.config.getoption("--celplane-bin"), request.config.getoption("--celplane-nodes")
    with Cluster(nodes=nodes, binary=binary) as cluster:
        yield cluster


@pytest.fixture
def celplane_fresh_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A control plane for one test alone."""
    binary, nodes = request.config.getoption("--celplane-bin"), request.config.getoption("--celplane-nodes")
    with Cluster(nodes=nodes, binary=binary) as cluster:
        yield cluster
