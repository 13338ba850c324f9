"""A Kubernetes control plane for tests.

``Cluster`` starts the ``celplane`` binary with all objects in memory, on a port of its own, and stops it again::

    with Cluster(nodes=3) as cluster:
        subprocess.run(["kubectl", "get", "nodes"], env=cluster.environment, check=True)

With pytest the fixture ``celplane_cluster`` does the same once per session.
"""

from .cluster import Cluster, StartError, find_binary

__all__ = ["Cluster", "StartError", "find_binary"]
