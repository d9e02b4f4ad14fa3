//! The example for Kubernetes: the output of kustomize for each overlay is valid by Kubernetes' schemas, and the real
//! binary starts with its configuration, arguments and variables, listens on its ports and answers its probes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use lockwarden_tests::{Process, Redis, get_at, installed, lockwarden, run_to_end, wait_for};
use serde_json::Value;

/// The oldest Kubernetes that has native sidecars, and a new one.
const VERSIONS: [&str; 2] = ["1.29", "1.37"];
const OVERLAYS: [&str; 2] = ["sidecar", "service"];
/// Kubernetes kills a pod when its grace is over; that must not be in the same moment in which the proxy ends.
const GRACE_BEYOND_DRAIN: u64 = 5;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn tool(name: &str) -> PathBuf {
    root().join("target/kubernetes/bin").join(name)
}

/// Whether `.ci/setup.sh` has installed the schemas and kustomize.
fn is_installed() -> bool {
    let programs = ["python", "kustomize"].map(|name| tool(name).display().to_string());
    installed(&programs.each_ref().map(String::as_str))
}

#[track_caller]
fn built(overlay: &str) -> String {
    let folder = root().join("docs/examples/kubernetes/overlays").join(overlay);
    let output = Command::new(tool("kustomize")).arg("build").arg(folder).output();
    let output = output.expect("kustomize is installed");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("YAML is text")
}

fn validated(yaml: &str) -> Output {
    let mut child = Command::new(tool("python"))
        .arg(root().join("tests/kubernetes/validate.py"))
        .args(VERSIONS)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("Python is installed");
    let mut input = child.stdin.take().expect("it is a pipe");
    input.write_all(yaml.as_bytes()).expect("it reads");
    drop(input);
    child.wait_with_output().expect("it ends")
}

/// The manifests of an overlay, by kind.
#[track_caller]
fn manifests(overlay: &str) -> BTreeMap<String, Value> {
    let output = validated(&built(overlay));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{overlay}: {words}");
    let all: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    let kinds = all.into_iter();
    kinds.map(|one| (text(&one["kind"]).to_owned(), one)).collect()
}

#[track_caller]
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[track_caller]
fn named<'a>(values: &'a Value, name: &str) -> &'a Value {
    let mut all = list(values).iter();
    let found = all.find(|one| one["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not among {values}"))
}

fn pod(manifests: &BTreeMap<String, Value>) -> &Value {
    &manifests["Deployment"]["spec"]["template"]["spec"]
}

/// The proxy's container, in whichever list it is.
fn proxy(pod: &Value) -> &Value {
    let all = list(&pod["containers"]).iter().chain(list(&pod["initContainers"]));
    let mut proxies = all.filter(|one| one["name"] == "lockwarden");
    let proxy = proxies.next().expect("the pod has the proxy");
    assert!(proxies.next().is_none());
    proxy
}

/// Ports of the example, and those that stand in for them here.
struct Ports(BTreeMap<u64, SocketAddr>);

impl Ports {
    /// As free as the system says now.
    fn of(text: &str, numbers: &[u64]) -> Ports {
        let free = |number: &u64| {
            assert!(text.contains(&format!(":{number}")), "{number} is not used");
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            (*number, listener.local_addr().expect("it is bound"))
        };
        Ports(numbers.iter().map(free).collect())
    }

    /// The text with the ports of here, on loopback.
    fn put_into(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (number, address) in &self.0 {
            for host in ["0.0.0.0", "127.0.0.1"] {
                text = text.replace(&format!("{host}:{number}"), &address.to_string());
            }
        }
        text
    }
}

/// The proxy of an overlay, started as its container would be.
struct Started {
    ports: Ports,
    admin: SocketAddr,
    // Ended in this order.
    _process: Process,
    _redis: Redis,
    _directory: tempfile::TempDir,
}

impl Started {
    fn as_in(manifests: &BTreeMap<String, Value>) -> Started {
        let (pod, directory) = (pod(manifests), tempfile::tempdir().expect("a directory"));
        let (proxy, here) = (proxy(pod), |path: &str| directory.path().join(path.trim_start_matches('/')));
        let redis = Redis::with_arguments(&["--requirepass", "geheim"]);
        put_volumes(pod, proxy, manifests, &here);
        let all = serde_json::to_string(proxy).expect("JSON");
        let ports = list(&proxy["ports"]).iter();
        let mut numbers: Vec<u64> = ports.map(|port| port["containerPort"].as_u64().expect("a number")).collect();
        // In a pod of its application no other client uses it, so it is not a port of the container.
        if !numbers.contains(&6380) {
            numbers.push(6380);
        }
        let ports = Ports::of(&all, &numbers);
        let admin = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let admin = admin.local_addr().expect("it is bound");
        let arguments = list(&proxy["args"]).iter().map(|word| match text(word) {
            path if path.starts_with('/') => here(path).display().to_string(),
            word => word.to_owned(),
        });
        let arguments: Vec<String> = arguments.collect();
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut command = lockwarden(&words);
        for variable in list(&proxy["env"]) {
            let value = match text(&variable["value"]) {
                path if path.starts_with('/') => {
                    let path = here(path);
                    std::fs::create_dir_all(&path).expect("the directory is ours");
                    path.display().to_string()
                }
                value => ports.put_into(value),
            };
            command.env(text(&variable["name"]), value);
        }
        command
            .env("LOCKWARDEN_BACKEND", format!("redis://{}", redis.address()))
            .env("LOCKWARDEN_ADMIN", admin.to_string())
            .stderr(Stdio::null());
        let checked = arguments.iter().filter(|word| *word != "run");
        let checked: Vec<&str> = checked.map(String::as_str).collect();
        let end = run_to_end(&mut lockwarden(&[&["check"], &checked[..]].concat()));
        assert_eq!(end.code, Some(0), "{end:?}");
        assert!(!end.stdout.contains("warning"), "{end:?}");
        Started {
            ports,
            admin,
            _redis: redis,
            _process: Process::spawn(&mut command).expect("the binary starts"),
            _directory: directory,
        }
    }
}

/// The files that the pod's volumes bring, where the container has them.
fn put_volumes(pod: &Value, proxy: &Value, manifests: &BTreeMap<String, Value>, here: &dyn Fn(&str) -> PathBuf) {
    for mount in list(&proxy["volumeMounts"]) {
        let volume = named(&pod["volumes"], text(&mount["name"]));
        let folder = here(text(&mount["mountPath"]));
        std::fs::create_dir_all(&folder).expect("the directory is ours");
        if let Some(name) = volume["configMap"]["name"].as_str() {
            let map = &manifests["ConfigMap"];
            assert_eq!(map["metadata"]["name"], name);
            for (file, content) in map["data"].as_object().expect("it has files") {
                let root = here("/run/secrets").display().to_string();
                let content = text(content).replace("/run/secrets", &root);
                std::fs::write(folder.join(file), content).expect("it is ours");
            }
        } else if volume["secret"]["secretName"] == "lockwarden-redis" {
            std::fs::write(folder.join("password"), "geheim\n").expect("it is ours");
        }
    }
}

/// Seconds of a duration as the example writes them.
fn seconds(text: &str) -> u64 {
    let number = text.trim_matches('"').strip_suffix('s');
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{text} is no number of seconds"))
}

#[test]
fn both_overlays_are_what_kubernetes_takes_and_a_slip_is_found() {
    if !is_installed() {
        return;
    }
    for overlay in OVERLAYS {
        let manifests = manifests(overlay);
        assert!(manifests.contains_key("ConfigMap"), "{manifests:?}");
        assert!(manifests.contains_key("Deployment"), "{manifests:?}");
    }
    let service = built("service");
    for (right, wrong) in [
        ("maxUnavailable: 1\n", "maxUnavailible: 1\n"),
        ("containerPort: 9181", "containerPort: metrics"),
        ("kind: Service\n", "kind: Servise\n"),
    ] {
        assert!(service.contains(right), "{right}");
        let output = validated(&service.replace(right, wrong));
        assert_eq!(output.status.code(), Some(1), "{wrong}");
    }
}

/// The server has a password, which the proxy's own login uses: the application needs it as well.
#[test]
fn the_example_application_logs_in() {
    let root = root();
    let text = std::fs::read_to_string(root.join("docs/examples/kubernetes/overlays/sidecar/application.yaml"))
        .expect("it is there");
    let (_, password) = text.split_once("name: REDIS_PASSWORD").expect("it is told");
    assert!(password.contains("name: lockwarden-redis") && password.contains("key: password"));
    assert!(password.contains("redis://:$(REDIS_PASSWORD)@127.0.0.1:6380"));
}

#[test]
fn the_binary_starts_as_each_overlay_says_and_answers_its_probes() {
    if !is_installed() {
        return;
    }
    let mut hashes = BTreeSet::new();
    for overlay in OVERLAYS {
        let manifests = manifests(overlay);
        let (started, pod) = (Started::as_in(&manifests), pod(&manifests));
        let proxy = proxy(pod);
        let mut probes = 0;
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let asked = &proxy[probe]["httpGet"];
            let port = named(&proxy["ports"], text(&asked["port"]));
            let at = started.ports.0[&port["containerPort"].as_u64().expect("a number")];
            let path = text(&asked["path"]);
            wait_for(&format!("{probe} of {overlay} to be answered"), || {
                get_at(at, path).is_some_and(|(status, _)| status == 200)
            });
            probes += 1;
        }
        assert_eq!(probes, 3);
        for (number, address) in &started.ports.0 {
            assert!(TcpStream::connect(address).is_ok(), "{overlay}: {number}");
        }
        let annotations = &manifests["Deployment"]["spec"]["template"]["metadata"]["annotations"];
        let port: u64 = text(&annotations["prometheus.io/port"]).parse().expect("a number");
        let path = text(&annotations["prometheus.io/path"]);
        let (status, page) = get_at(started.ports.0[&port], path).expect("metrics");
        assert!(status == 200 && page.contains("lockwarden_build_info"));
        // Kubernetes waits for longer than the proxy does.
        let (_, settings) = get_at(started.admin, "/api/v1/settings").expect("settings");
        let settings: Value = serde_json::from_str(&settings).expect("JSON");
        let mut all = list(&settings["settings"]).iter();
        let drain = all.find(|one| one["key"] == "drain").expect("it has one");
        let (drain, grace) = (seconds(text(&drain["value"])), pod["terminationGracePeriodSeconds"].as_u64());
        assert!(grace.is_some_and(|grace| grace >= drain + GRACE_BEYOND_DRAIN), "{overlay}: {grace:?} after {drain}");
        let (_, version) = get_at(started.admin, "/api/v1/version").expect("version");
        let version: Value = serde_json::from_str(&version).expect("JSON");
        hashes.insert(text(&version["config_hash"]).to_owned());
        if let Some(scaling) = manifests.get("HorizontalPodAutoscaler") {
            let down = &scaling["spec"]["behavior"]["scaleDown"]["policies"];
            let [policy] = list(down) else {
                panic!("one policy, not {down}");
            };
            assert_eq!((&policy["type"], &policy["value"]), (&"Pods".into(), &1.into()));
            assert!(policy["periodSeconds"].as_u64() >= Some(drain), "{policy}");
        }
    }
    assert_eq!(hashes.len(), 1, "both have the same rules");
}

#[test]
fn the_pods_have_no_rights_and_what_names_them_finds_them() {
    if !is_installed() {
        return;
    }
    for overlay in OVERLAYS {
        let manifests = manifests(overlay);
        let pod = pod(&manifests);
        let proxy = proxy(pod);
        // The container's own setting has precedence over that of its pod.
        let security = |key: &str| {
            let (own, pods) = (&proxy["securityContext"], &pod["securityContext"]);
            own.get(key).or(pods.get(key)).cloned().unwrap_or_default()
        };
        assert_eq!(security("runAsNonRoot"), true, "{overlay}");
        assert_eq!(security("runAsUser"), 65532, "{overlay}");
        assert_eq!(security("readOnlyRootFilesystem"), true, "{overlay}");
        assert_eq!(security("allowPrivilegeEscalation"), false, "{overlay}");
        assert_eq!(security("capabilities")["drop"][0], "ALL", "{overlay}");
        assert_eq!(security("seccompProfile")["type"], "RuntimeDefault");
        let limits = &proxy["resources"];
        assert!(limits["requests"]["cpu"].is_string() && limits["limits"]["memory"].is_string());
        let image = text(&proxy["image"]);
        assert!(image.starts_with("registry.example/lockwarden:"), "{image}");
        assert_eq!(
            overlay == "sidecar",
            list(&pod["initContainers"]).iter().any(|one| one["restartPolicy"] == "Always")
        );
    }
    let service = manifests("service");
    let pods = &service["Deployment"]["spec"]["template"];
    let labels = pods["metadata"]["labels"].as_object().expect("labels");
    let finds = |selector: &Value| {
        let selector = selector.as_object().expect("a selector");
        assert!(!selector.is_empty());
        assert!(selector.iter().all(|(key, value)| labels[key] == *value));
    };
    finds(&service["Deployment"]["spec"]["selector"]["matchLabels"]);
    finds(&service["Service"]["spec"]["selector"]);
    finds(&service["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]);
    for spread in list(&pods["spec"]["topologySpreadConstraints"]) {
        finds(&spread["labelSelector"]["matchLabels"]);
    }
    assert_eq!(service["PodDisruptionBudget"]["spec"]["maxUnavailable"], 1);
    let target = &service["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"];
    assert_eq!(target["name"], service["Deployment"]["metadata"]["name"]);
    // No manifest may reset the number of replicas that the autoscaler sets.
    assert!(service["Deployment"]["spec"].get("replicas").is_none());
    for port in list(&service["Service"]["spec"]["ports"]) {
        named(&proxy(&pods["spec"])["ports"], text(&port["targetPort"]));
    }
}
