"""The chart of deploy/helm: rendered by Helm's own library, held to Kubernetes' schemas and to the program. Skipped where that library
(helm-python-sdk) is not installed; scripts/test_python runs it in an environment that has it. Nothing is installed into a cluster."""
import base64
import json
import re
import subprocess
import sys
import tarfile

import pytest

helm = pytest.importorskip("helm_python")
yaml = pytest.importorskip("yaml")
kubernetes = pytest.importorskip("kubernetes_validate")

import penstock  # noqa: E402
from conftest import ROOT, SMALL  # noqa: E402

CHART = ROOT / "deploy/helm/penstock"
# Kinds whose schemas come with the Prometheus operator.
CUSTOM = {"ServiceMonitor", "PrometheusRule"}
EVERYTHING = {
    "model": "org/name:Q4_K_M", "replicas": 2, "extraArgs": ["--max-num-seqs", "8"], "extraEnv": [{"name": "A", "value": "b"}],
    "hubToken": {"existingSecret": "hub"}, "imagePullSecrets": [{"name": "pull"}],
    "ingress": {"enabled": True, "host": "llm.example", "className": "nginx", "tlsSecret": "tls", "annotations": {"a": "b"}},
    "persistence": {"models": {"enabled": True, "storageClass": "fast", "accessModes": ["ReadWriteMany"]}},
    "modelsVolume": {"nfs": {"server": "nfs.example", "path": "/models"}},
    "kvStore": {"memory": "2G", "volume": {"enabled": True, "accessModes": ["ReadWriteMany"]}, "redis": "rediss://user@cache.example:6380/1",
                "redisSecret": {"existingSecret": "redis"}},
    "autoscaling": {"enabled": True}, "metrics": {one: {"enabled": True, "labels": {"x": "y"}} for one in ("serviceMonitor", "alerts", "dashboard")},
    "networkPolicy": {"from": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}], "egress": [{"ports": [{"protocol": "TCP", "port": 8443}]}]},
    "podAnnotations": {"a": "b"}, "podLabels": {"a": "b"}, "nodeSelector": {"a": "b"}, "tolerations": [{"key": "a", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}}, "priorityClassName": "high", "service": {"annotations": {"a": "b"}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]}


@pytest.fixture(scope="module")
def chart():
    with helm.Chart.load(str(CHART)) as chart:
        yield chart


def rendered(chart, values=None, name="demo"):
    """{(kind, name): object} of a release; NOTES under ("", "")."""
    found = {}
    for path, text in chart.render(values or {}, name=name, namespace="models").items():
        if path.endswith("NOTES.txt"):
            found["", ""] = text
            continue
        for one in yaml.safe_load_all(text):
            if one:
                key = one["kind"], one["metadata"]["name"]
                assert key not in found
                found[key] = one
    return found


def only(objects, kind):
    [one] = [one for (its, _), one in objects.items() if its == kind]
    return one


def container_of(objects):
    return only(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]


def option(container, flag):
    return container["args"][container["args"].index(flag) + 1]


def test_lint_and_version(chart):
    report = helm.lint(str(CHART), EVERYTHING, strict=True)
    assert [one for one in report["messages"] if one["severity"] > 1] == [] and report["errors"] == []
    assert chart.version == penstock.__version__ and chart.metadata["appVersion"] == penstock.__version__


@pytest.mark.parametrize("name", ["demo", "penstock", "a" * 53])
@pytest.mark.parametrize("values", [
    {}, EVERYTHING, {"auth": {"enabled": False}, "networkPolicy": {"enabled": False}, "podDisruptionBudget": {"enabled": False}},
    {"modelsConfig": {"models": [{"name": "small", "model": SMALL}]}}], ids=["plain", "everything", "least", "models"])
def test_schemas(chart, values, name):
    objects = rendered(chart, values, name)
    for (kind, its), one in objects.items():
        if kind in CUSTOM:
            assert one["apiVersion"] == "monitoring.coreos.com/v1" and one["spec"]
        elif kind:
            assert len(its) <= 63
            kubernetes.validate(one, "1.33", strict=True)
    assert len(objects) > (3 if values else 4)


def test_names_agree(chart):
    objects = rendered(chart, EVERYTHING)
    deployment = only(objects, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert selector.items() <= labels.items()
    for kind in ("PodDisruptionBudget", "ServiceMonitor"):
        assert only(objects, kind)["spec"]["selector"]["matchLabels"] == selector
    service = only(objects, "Service")
    assert service["spec"]["selector"] == selector and only(objects, "ServiceMonitor")["spec"]["selector"]["matchLabels"].items() <= \
        service["metadata"]["labels"].items()
    policy = only(objects, "NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"] == selector
    assert {"protocol": "TCP", "port": 6380} in policy["egress"][0]["ports"] and policy["egress"][1]["ports"][0]["port"] == 8443
    assert len(policy["ingress"][0]["from"]) == 3
    assert only(objects, "HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert "replicas" not in deployment["spec"]
    container = container_of(objects)
    port = container["ports"][0]["name"]
    assert service["spec"]["ports"][0]["targetPort"] == port == only(objects, "ServiceMonitor")["spec"]["endpoints"][0]["port"]
    backend = only(objects, "Ingress")["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert backend == {"name": service["metadata"]["name"], "port": {"name": service["spec"]["ports"][0]["name"]}}
    secret, [key] = only(objects, "Secret"), only(objects, "Secret")["data"]
    reference = next(one for one in container["env"] if one["name"] == "PENSTOCK_API_KEY")["valueFrom"]["secretKeyRef"]
    assert reference == {"name": secret["metadata"]["name"], "key": key}
    assert only(objects, "ServiceMonitor")["spec"]["endpoints"][0]["authorization"]["credentials"] == reference
    volumes = {one["name"]: one for one in deployment["spec"]["template"]["spec"]["volumes"]}
    assert {one["name"] for one in container["volumeMounts"]} == set(volumes)
    for volume, kind in (("cache", "models"), ("kv", "kv")):
        claim = objects["PersistentVolumeClaim", f"demo-penstock-{kind}"]
        assert volumes[volume]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert option(container, "--kv-store") == "memory:2G,/kv:18G,rediss://user@cache.example:6380/1"


def test_what_the_program_is_told(chart, tmp_path):
    known = subprocess.run([sys.executable, "-m", "penstock", "serve", "--help"], capture_output=True, text=True, check=True).stdout
    listed = (ROOT / "src/server/endpoints/endpoints.cc").read_text()
    for values in ({}, EVERYTHING, {"modelsConfig": {"models": [{"name": "small", "model": SMALL}]}}):
        objects = rendered(chart, values)
        container = container_of(objects)
        for flag in (word for word in container["args"] if word.startswith("--")):
            assert re.search(rf"(?<![\w-]){flag}\b", known), flag
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = container[probe]["httpGet"]["path"]
            assert re.search(rf'"GET", "{path}", Access::kOpen', listed), path
        pod = only(objects, "Deployment")["spec"]["template"]["spec"]
        drain = int(option(container, "--shutdown-timeout"))
        assert pod["terminationGracePeriodSeconds"] > drain + container["lifecycle"]["preStop"]["sleep"]["seconds"] + 5
    config = tmp_path / "models.json"
    config.write_text(objects["ConfigMap", "demo-penstock-models"]["data"]["models.json"])
    with penstock.openai_server(models_config=str(config)) as server:
        assert server.model == "small"


def test_keys(chart):
    first, second = (base64.b64decode(only(rendered(chart), "Secret")["data"]["key"]) for _ in range(2))
    assert len(first) == 48 and first != second
    assert base64.b64decode(only(rendered(chart, {"auth": {"key": "sesame"}}), "Secret")["data"]["key"]) == b"sesame"
    objects = rendered(chart, {"auth": {"existingSecret": "mine", "secretKey": "k"}})
    assert not any(kind == "Secret" for kind, _ in objects)
    assert container_of(objects)["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "mine", "key": "k"}
    assert "env" not in container_of(rendered(chart, {"auth": {"enabled": False}}))
    assert "mine" in objects["", ""] and "sesame" not in rendered(chart, {"auth": {"key": "sesame"}})["", ""]


def annotations_of(objects):
    return only(objects, "Deployment")["spec"]["template"]["metadata"].get("annotations")


def test_annotations_of_pods(chart):
    without_key = {"auth": {"enabled": False}}
    assert annotations_of(rendered(chart)) is None  # Prometheus has no key by annotations
    assert annotations_of(rendered(chart, without_key)) == {"prometheus.io/scrape": "true", "prometheus.io/port": "8000",
                                                            "prometheus.io/path": "/metrics"}
    mine = {"prometheus.io/scrape": "false", "a": "b"}
    [text] = [text for path, text in chart.render({**without_key, "podAnnotations": mine}, name="demo", namespace="n").items()
              if path.endswith("deployment.yaml")]
    assert text.count("prometheus.io/scrape") == 1
    assert annotations_of(rendered(chart, {**without_key, "podAnnotations": mine})).items() >= mine.items()


def test_pods_are_made_anew_for_a_key_and_for_models(chart):
    def sums(values):
        return annotations_of(rendered(chart, values))
    first, second = ({"auth": {"key": key}} for key in ("one", "two"))
    assert sums(first) == sums(first) != sums(second) and set(sums(first)) == {"checksum/key"} and "one" not in sums(first)["checksum/key"]
    assert sums({"auth": {"key": "one", "existingSecret": "mine"}}) is None
    first, second = ({"modelsConfig": {"models": [{"name": name, "model": SMALL}]}} for name in "ab")
    assert sums(first) != sums(second) and set(sums(first)) == {"checksum/models"}


def test_the_monitor_has_a_key_of_its_own(chart):
    for auth in (True, False):
        monitor = only(rendered(chart, {"auth": {"enabled": auth}, "metrics": {"serviceMonitor": {
            "enabled": True, "secret": {"existingSecret": "metrics", "secretKey": "k"}}}}), "ServiceMonitor")
        assert monitor["spec"]["endpoints"][0]["authorization"] == {"type": "Bearer", "credentials": {"name": "metrics", "key": "k"}}
    monitor = only(rendered(chart, {"auth": {"enabled": False}, "metrics": {"serviceMonitor": {"enabled": True}}}), "ServiceMonitor")
    assert "authorization" not in monitor["spec"]["endpoints"][0]


def test_notes_say_who_is_not_let_in(chart):
    outside = [{"ipBlock": {"cidr": "192.0.2.0/24"}}]
    for values in ({"ingress": {"enabled": True}}, {"service": {"type": "LoadBalancer"}}, {"service": {"type": "NodePort"}}):
        assert "networkPolicy.from" in rendered(chart, values)["", ""]
        for policy in ({"enabled": False}, {"from": outside}):
            assert "networkPolicy.from" not in rendered(chart, {**values, "networkPolicy": policy})["", ""]
    assert "networkPolicy.from" not in rendered(chart)["", ""]


def test_kubernetes_knows_what_the_chart_uses(chart):
    """preStop.sleep is of Kubernetes 1.30."""
    assert chart.metadata["kubeVersion"] == ">=1.30.0-0"
    kubernetes.validate(only(rendered(chart), "Deployment"), "1.30", strict=True)


def test_alerts_and_dashboard_are_the_files_of_deploy(chart):
    objects = rendered(chart, EVERYTHING)
    assert only(objects, "PrometheusRule")["spec"] == yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())
    board = objects["ConfigMap", "demo-penstock-dashboard"]
    assert json.loads(board["data"]["penstock.json"]) == json.loads((ROOT / "deploy/grafana/penstock.json").read_text())
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_volumes_of_one_node(chart):
    one = {"enabled": True}
    for values in ({"persistence": {"models": one}}, {"kvStore": {"volume": one}}):
        assert only(rendered(chart, values), "Deployment")["spec"]["strategy"] == {"type": "Recreate"}
        for more in ({"replicas": 2}, {"autoscaling": {"enabled": True}}):
            with pytest.raises(helm.HelmError, match="ReadWriteMany"):
                rendered(chart, {**values, **more})
    claimed = rendered(chart, {"persistence": {"models": {**one, "existingClaim": "mine"}}})
    assert not any(kind == "PersistentVolumeClaim" for kind, _ in claimed)
    volumes = only(claimed, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "cache", "persistentVolumeClaim": {"claimName": "mine"}} in volumes


@pytest.mark.parametrize("url, ports", [
    ("redis://cache", [6379]), ("redis://cache:7000", [7000]), ("rediss://u:p@cache.example:6380/1", [6380]), ("redis://u:6@cache/1", [6379]),
    ("redis://A:6379,B:7000", [6379, 7000]), ("rediss://u:p@A,B,C:7000/2", [6379, 7000]), ("redis://[::1],[::2]:7000", [6379, 7000])])
def test_redis_is_let_through(chart, url, ports):
    let = only(rendered(chart, {"kvStore": {"redis": url}}), "NetworkPolicy")["spec"]["egress"][0]["ports"]
    assert let[3:] == [{"protocol": "TCP", "port": port} for port in ports]


@pytest.mark.parametrize("values, words", [
    ({"colour": 1}, "colour"), ({"replicas": "two"}, "replicas"), ({"autoscaling": {"enabled": True, "minReplicas": 9}}, "maxReplicas"),
    ({"model": "m", "modelsConfig": {"models": []}}, "model or modelsConfig"), ({"kvStore": {"memory": "lots"}}, "memory"),
    ({"kvStore": {"redis": "http://x"}}, "redis"), ({"ingress": {"enabled": True, "tlsSecret": "tls"}}, "ingress.host"),
    ({"persistence": {"models": {"accessModes": ["Sometimes"]}}}, "accessModes"), ({"shutdownTimeout": 0}, "shutdownTimeout")])
def test_wrong_values_are_refused(chart, values, words):
    with pytest.raises(helm.HelmError, match=words):
        chart.validate_schema(values)
        rendered(chart, values)


def test_every_value_is_used_and_every_property_has_a_default(chart):
    text = "".join(path.read_text() for path in sorted((CHART / "templates").rglob("*")) if path.is_file())

    def paths(properties, values, at=()):
        assert set(properties) - {"global"} == set(values), at
        for name, one in properties.items():
            if name != "global" and "properties" in one:
                yield from paths(one["properties"], values[name], (*at, name))
            elif name != "global":
                yield (*at, name)
    for path in paths(chart.schema["properties"], chart.values):
        assert re.search(rf"\.{path[-1]}\b", text), path


def test_the_package_is_whole(tmp_path):
    """As scripts/release makes it: links are followed."""
    archive = tmp_path / "chart.tgz"
    subprocess.run(["tar", "--dereference", "-C", str(CHART.parent), "-czf", str(archive), "penstock"], check=True)
    with tarfile.open(archive) as files:
        assert all(one.isfile() or one.isdir() for one in files)
    with helm.Chart.load(str(archive)) as packed, helm.Chart.load(str(CHART)) as chart:
        def without_secret(one):
            return {key: value for key, value in rendered(one, EVERYTHING).items() if key[0] != "Secret"}
        assert without_secret(packed) == without_secret(chart)
