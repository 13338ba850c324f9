//! A registry on the machine: pulls with and without credentials, and with content that does not have its digest.

use super::image;
use super::machine::Machine;

const ADDRESS: &str = "192.168.77.1:5000";
/// Serves one request on standard input and output. The argument is a directory with manifests by repository, and blobs by
/// digest below their repository. Repositories whose names begin with `private` need the user `u` with the password `p`.
const SERVER: &str = r#"
cr=$(printf '\r')
read -r method path rest
given=
while IFS= read -r line && [ "$line" != "$cr" ]; do
  case $line in [Aa]uthorization:*) given=${line#*: }; given=${given%$cr};; esac
done
reply() {
  printf 'HTTP/1.1 %s\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: %s\r\n%b\r\n' "$1" "$2" "$(stat -c %s "$3")" "$4"
  [ "$method" = HEAD ] || cat "$3"
  exit
}
path=${path%%\?*}
repository=${path#/v2/}
repository=${repository%%/*}
case $repository in private*)
  [ "$given" = "Basic dTpw" ] || reply "401 Unauthorized" text/plain "$1/empty" 'WWW-Authenticate: Basic realm="test"\r\n'
esac
file=$1/$repository/${path##*/}
case $path in
  /v2/) reply "200 OK" text/plain "$1/empty" "";;
  */manifests/*) [ -f "$file" ] && reply "200 OK" application/vnd.oci.image.manifest.v1+json "$file" "Docker-Content-Digest: $(cat "$file.digest")\r\n";;
  */blobs/*) [ -f "$file" ] && reply "200 OK" application/octet-stream "$file" "";;
esac
reply "404 Not Found" text/plain "$1/empty" ""
"#;

/// Adds an image to the registry, maybe with a configuration other than its digest says.
fn add(machine: &Machine, repository: &str, is_corrupt: bool) {
    let directory = machine.path("registry").join(repository);
    std::fs::create_dir_all(&directory).unwrap();
    // Each image has content of its own, because the runtime pulls nothing that it has.
    let image::Parts { config, manifest, layer } =
        image::parts(&format!(r#"{{"Cmd":["sh"],"Env":["PATH=/bin","REPOSITORY={repository}"]}}"#));
    let digest = image::sha256(manifest.as_bytes());
    for name in ["1", digest.as_str()] {
        std::fs::write(directory.join(name), &manifest).unwrap();
        std::fs::write(directory.join(format!("{name}.digest")), &digest).unwrap();
    }
    let served = if is_corrupt { config.replace("REPOSITORY=", "repository=") } else { config.clone() };
    std::fs::write(directory.join(image::sha256(config.as_bytes())), served).unwrap();
    std::fs::write(directory.join(image::sha256(&layer)), &layer).unwrap();
}

fn pod(name: &str, repository: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{restartPolicy: Never, {more} containers: [{{name: c, \
         image: '{ADDRESS}/{repository}:1', imagePullPolicy: Always, command: [sh, -c, 'echo from $REPOSITORY']}}]}}\n---\n"
    )
}

/// Images come from a registry, with the credentials of a pull secret where it asks for them. Without them, and if content does
/// not have its digest, nothing runs and the reason is shown.
pub(super) fn images_are_pulled_with_credentials(machine: &Machine) {
    for (repository, is_corrupt) in [("public", false), ("private", false), ("private-too", false), ("corrupt", true)] {
        add(machine, repository, is_corrupt);
    }
    std::fs::write(machine.path("registry/empty"), "").unwrap();
    std::fs::write(machine.path("registry/serve"), SERVER).unwrap();
    let hosts = machine.path(&format!("data/containerd/registries/{ADDRESS}"));
    std::fs::create_dir_all(&hosts).unwrap();
    let host = format!(
        "server = \"http://{ADDRESS}\"\n[host.\"http://{ADDRESS}\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
    );
    std::fs::write(hosts.join("hosts.toml"), host).unwrap();
    let (script, directory) = (machine.path("registry/serve"), machine.path("registry"));
    let (script, directory) = (script.display().to_string(), directory.display().to_string());
    let serve = ["nc", "-ll", "-p", "5000", "-e", "/bin/busybox", "sh", &script, &directory];
    let mut server = machine.start_beside("/bin/busybox".as_ref(), &serve);
    let secret = ["create", "secret", "docker-registry", "registry", "--docker-username=u", "--docker-password=p"];
    machine.kubectl(&[&secret[..], &[&format!("--docker-server={ADDRESS}")]].concat());
    let with_secret = "imagePullSecrets: [{name: registry}],";
    let pods = [
        pod("public", "public", ""),
        pod("permitted", "private", with_secret),
        pod("denied", "private-too", ""),
        pod("corrupt", "corrupt", ""),
    ];
    machine.apply(&pods.concat());
    for (name, repository) in [("public", "public"), ("permitted", "private")] {
        machine.wait(&format!("pod/{name}"), "jsonpath={.status.phase}=Succeeded");
        assert_eq!(machine.kubectl(&["logs", name]), format!("from {repository}\n"));
    }
    for (name, why) in [("denied", "401 Unauthorized"), ("corrupt", "unexpected commit digest")] {
        machine.wait(
            &format!("pod/{name}"),
            "jsonpath={.status.containerStatuses[0].state.waiting.reason}=ImagePullBackOff",
        );
        let selector = format!("--field-selector=involvedObject.name={name},reason=Failed");
        let messages = machine.kubectl(&["get", "events", &selector, "-o", "jsonpath={.items[*].message}"]);
        assert!(messages.contains(why), "{name}: {messages}");
    }
    machine.kubectl(&["delete", "pods", "public", "permitted", "denied", "corrupt", "--wait"]);
    server.kill().unwrap();
    server.wait().unwrap();
}
