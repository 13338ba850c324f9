//! Protobuf messages of `kubectl`, and its identity: creation, tokens, reviews, impersonation.
//!
//! Without `kubectl` the tests print a note and pass, unless `CELPLANE_REQUIRE_TOOLS=1` is set.

use crate::cluster;

use std::time::{Duration, Instant};

use cluster::Cluster;

#[test]
fn everything_that_kubectl_creates_by_name_is_created() {
    let Some(cluster) = Cluster::start() else { return };
    for (arguments, printed) in [
        ("namespace team", "namespace/team created"),
        ("deployment web --image=nginx --replicas=2 --port=80 -n team", "deployment.apps/web created"),
        ("configmap lit --from-literal=a=b -n team", "configmap/lit created"),
        ("secret generic sec --from-literal=a=b -n team", "secret/sec created"),
        (
            "role reader --verb=get,list --resource=pods,pods/log -n team",
            "role.rbac.authorization.k8s.io/reader created",
        ),
        (
            "rolebinding readers --role=reader --user=alice --group=dev -n team",
            "rolebinding.rbac.authorization.k8s.io/readers created",
        ),
        ("clusterrole nodes --verb=get --resource=nodes", "clusterrole.rbac.authorization.k8s.io/nodes created"),
        (
            "clusterrolebinding nodes --clusterrole=nodes --serviceaccount=team:robot",
            "clusterrolebinding.rbac.authorization.k8s.io/nodes created",
        ),
        ("serviceaccount robot -n team", "serviceaccount/robot created"),
        ("quota q --hard=pods=100,cpu=4 -n team", "resourcequota/q created"),
        ("pdb budget --selector=app=web --min-available=50% -n team", "poddisruptionbudget.policy/budget created"),
        ("job j --image=busybox -n team -- echo hi", "job.batch/j created"),
        ("cronjob c --image=busybox --schedule=*/5@*@*@*@* -n team", "cronjob.batch/c created"),
        ("priorityclass pc --value=10", "priorityclass.scheduling.k8s.io/pc created"),
        ("service clusterip svc --tcp=80:8080 -n team", "service/svc created"),
        ("ingress ing --rule=example.com/*=svc:80 -n team", "ingress.networking.k8s.io/ing created"),
    ] {
        let mut words = vec!["create".to_owned()];
        words.extend(arguments.split(' ').map(|word| word.replace('@', " ")));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(cluster.kubectl(&words, "").trim_end(), printed);
    }
    let get =
        |what: &str, path: &str| cluster.kubectl(&["-n", "team", "get", what, "-o", &format!("jsonpath={path}")], "");
    assert_eq!(
        get("deployment/web", "{.spec.replicas} {.spec.template.spec.containers[0].ports[0].containerPort}"),
        "2 80"
    );
    assert_eq!(get("secret/sec", "{.data.a}"), "Yg==");
    assert_eq!(get("resourcequota/q", "{.spec.hard.cpu} {.spec.hard.pods}"), "4 100");
    assert_eq!(get("pdb/budget", "{.spec.minAvailable} {.spec.selector.matchLabels.app}"), "50% web");
    assert_eq!(get("cronjob/c", "{.spec.schedule}"), "*/5 * * * *");
    assert_eq!(get("rolebinding/readers", "{.subjects[*].name}"), "alice dev");
    assert_eq!(get("service/svc", "{.spec.ports[0].targetPort}"), "8080");
    let created = cluster.kubectl(&["-n", "team", "autoscale", "deploy", "web", "--max=3"], "");
    assert_eq!(created, "horizontalpodautoscaler.autoscaling/web autoscaled\n");
    let again = cluster.refused(&["create", "namespace", "team"], "");
    assert!(again.contains("namespaces \"team\" already exists"), "{again}");
}

#[test]
fn permissions_are_listed_and_impersonation_works() {
    let Some(cluster) = Cluster::start() else { return };
    let list = cluster.kubectl(&["auth", "can-i", "--list"], "");
    for line in [
        "*.*                                             []                  []               [*]",
        "selfsubjectreviews.authentication.k8s.io        []                  []               [create]",
        "                                                [/openapi/*]        []               [get]",
    ] {
        assert!(list.lines().any(|found| found.trim_end() == line.trim_end()), "{line}\n{list}");
    }
    assert_eq!(cluster.kubectl(&["auth", "can-i", "create", "pods"], ""), "yes\n");
    let output = cluster.run(&["auth", "can-i", "get", "pods", "--as=alice"], "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "no\n");
    assert_eq!(output.status.code(), Some(1));
    let me = cluster.kubectl(&["auth", "whoami", "-o", "jsonpath={.status.userInfo}"], "");
    assert!(me.contains("\"username\":\"kubernetes-admin\"") && me.contains("system:masters"), "{me}");
    let other = cluster.kubectl(
        &["auth", "whoami", "--as=jane", "--as-group=ops", "--as-uid=7", "-o", "jsonpath={.status.userInfo}"],
        "",
    );
    assert_eq!(other, r#"{"groups":["ops","system:authenticated"],"uid":"7","username":"jane"}"#);
    let refused = cluster.refused(&["get", "pods", "--as=alice"], "");
    assert!(
        refused.contains("pods is forbidden: User \"alice\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""),
        "{refused}"
    );
    let refused = cluster.refused(&["create", "configmap", "x", "--as=alice"], "");
    assert_eq!(
        refused,
        "error: failed to create configmap: configmaps is forbidden: User \"alice\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"default\"\n"
    );
    let masters = cluster.kubectl(&["get", "nodes", "--as=x", "--as-group=system:masters", "-o", "name"], "");
    assert_eq!(masters, "");
}

/// The arguments that use a token instead of the administrator's certificate.
fn without_certificate(cluster: &Cluster) -> std::path::PathBuf {
    let config = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let bare =
        config.lines().filter(|line| !line.contains("client-certificate-data") && !line.contains("client-key-data"));
    let path = cluster.directory.path().join("bare.kubeconfig");
    let text: String = bare.map(|line| format!("{line}\n")).collect();
    std::fs::write(&path, text.replace("  user:\n", "  user: {}\n")).unwrap();
    path
}

#[test]
fn a_token_acts_for_its_account_and_ends_with_it() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl(&["create", "serviceaccount", "robot"], "");
    let token = cluster.kubectl(&["create", "token", "robot", "--duration=20m"], "");
    let token = format!("--token={}", token.trim());
    let bare = without_certificate(&cluster);
    let config = format!("--kubeconfig={}", bare.display());
    let whoami = [config.as_str(), token.as_str(), "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"];
    assert_eq!(cluster.kubectl(&whoami, ""), "system:serviceaccount:default:robot");
    let list = [config.as_str(), token.as_str(), "get", "configmaps"];
    assert!(cluster.refused(&list, "").contains("User \"system:serviceaccount:default:robot\" cannot list"));
    cluster.kubectl(&["create", "rolebinding", "view", "--clusterrole=view", "--serviceaccount=default:robot"], "");
    cluster.kubectl(&list, "");
    cluster.kubectl(&["delete", "serviceaccount", "robot"], "");
    let refused = cluster.refused(&list, "");
    assert!(refused.contains("Unauthorized") || refused.contains("must be logged in"), "{refused}");
    let short = cluster.refused(&["create", "token", "default", "--duration=1m"], "");
    assert!(short.contains("not found") || short.contains("less than 10 minutes"), "{short}");
}

#[test]
fn a_changed_file_of_tokens_counts_without_a_restart() {
    if Cluster::is_missing() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens.csv");
    std::fs::write(&tokens, "first,alice,1,dev\n").unwrap();
    let flag = format!("--token-auth-file={}", tokens.display());
    let cluster = Cluster::start_with(directory, &[&flag]);
    let bare = without_certificate(&cluster);
    let config = format!("--kubeconfig={}", bare.display());
    let whoami = |token: &str| {
        let token = format!("--token={token}");
        let output =
            cluster.run(&[&config, &token, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"], "");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(whoami("first"), "alice");
    assert_eq!(whoami("second"), "");
    std::fs::write(&tokens, "second,bob,2,dev\n").unwrap();
    let started = Instant::now();
    while whoami("second") != "bob" {
        assert!(started.elapsed() < Duration::from_secs(90), "the file is not read again");
    }
    assert_eq!(whoami("first"), "");
}
