"""What programs that use Python's `kubernetes` package do; any failure ends it with a traceback."""

import sys
import threading

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException

config.load_kube_config(config_file=sys.argv[1])
core = client.CoreV1Api()
apps = client.AppsV1Api()


def refused(code, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except ApiException as error:
        assert error.status == code, error
        return error
    raise AssertionError(f"{call} should be refused")


assert client.VersionApi().get_code().major == "1"
node = core.create_node({"metadata": {"name": "n1", "labels": {"a": "b"}}})
assert [it.metadata.name for it in core.list_node(label_selector="a=b").items] == ["n1"]
core.patch_node("n1", {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})
assert [taint.key for taint in core.read_node("n1").spec.taints] == ["k"]
core.patch_node_status("n1", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})

seen = []


def follow():
    for event in watch.Watch().stream(core.list_namespaced_config_map, "default", timeout_seconds=30):
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            return


follower = threading.Thread(target=follow)
follower.start()
core.create_namespaced_config_map("default", {"metadata": {"name": "m"}, "data": {"a": "1"}})
one = core.read_namespaced_config_map("m", "default")
one.data["b"] = "2"
core.replace_namespaced_config_map("m", "default", one)
refused(409, core.replace_namespaced_config_map, "m", "default", one)
core.patch_namespaced_config_map("m", "default", [{"op": "remove", "path": "/data/a"}])
assert core.read_namespaced_config_map("m", "default").data == {"b": "2"}
assert "not found" in refused(404, core.read_namespaced_config_map, "nope", "default").body
core.delete_namespaced_config_map("m", "default")
follower.join(40)
assert not follower.is_alive() and seen[0] == ("ADDED", "m") and seen[-1] == ("DELETED", "m"), seen

pod = {"metadata": {"name": "p", "labels": {"x": "y"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
core.create_namespaced_pod("default", pod)
binding = client.V1Binding(metadata=client.V1ObjectMeta(name="p"), target=client.V1ObjectReference(kind="Node", name="n1"))
core.create_namespaced_pod_binding("p", "default", binding, _preload_content=False)
assert [it.metadata.name for it in core.list_pod_for_all_namespaces(field_selector="spec.nodeName=n1").items] == ["p"]
eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="p"))
core.create_namespaced_pod_eviction("p", "default", eviction)
assert core.read_namespaced_pod("p", "default").metadata.deletion_timestamp is not None
core.delete_namespaced_pod("p", "default", grace_period_seconds=0)
refused(404, core.read_namespaced_pod, "p", "default")
core.delete_collection_namespaced_config_map("default", label_selector="no=such")
error = refused(422, core.create_namespaced_pod, "default", {"metadata": {"name": "bad"}, "spec": {"containers": []}})
assert "spec.containers: Required value" in error.body, error.body

labels = {"app": "web"}
template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
apps.create_namespaced_deployment("default", {"metadata": {"name": "web"}, "spec": spec})
apps.patch_namespaced_deployment_scale("web", "default", {"spec": {"replicas": 5}})
assert apps.read_namespaced_deployment("web", "default").spec.replicas == 5

review = {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods", "namespace": "default"}}}
assert client.AuthorizationV1Api().create_self_subject_access_review(review).status.allowed
refused(404, client.CustomObjectsApi().list_cluster_custom_object, "nosuch.example.com", "v1", "foos")

resources = dynamic.DynamicClient(client.ApiClient()).resources
deployments = resources.get(api_version="apps/v1", kind="Deployment")
assert deployments.get(name="web", namespace="default").spec.replicas == 5
deployments.delete(name="web", namespace="default")
print("done")
