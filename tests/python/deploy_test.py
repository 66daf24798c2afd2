"""The manifests of deploy/kubernetes against the API's schemas (kubernetes-validate), and against each other."""
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/kubernetes"
# Kinds whose schemas come with the operators that bring them, and what they cannot be without.
CUSTOM = {"ServiceMonitor": ("monitoring.coreos.com/v1", {"selector", "endpoints"}),
          "InferencePool": ("inference.networking.k8s.io/v1", {"selector", "targetPorts", "endpointPickerRef"}),
          "HTTPRoute": ("gateway.networking.k8s.io/v1", {"parentRefs", "rules"}),
          "RayService": ("ray.io/v1", {"serveConfigV2", "rayClusterConfig"})}

yaml = pytest.importorskip("yaml")


def objects(files="*.yaml"):
    return [pytest.param(one, id=f"{path.name}:{one['kind']}:{one['metadata']['name']}") for path in sorted(FOLDER.glob(files))
            for one in yaml.safe_load_all(path.read_text())]


@pytest.mark.parametrize("manifest", objects())
def test_schema(manifest):
    if manifest["kind"] in CUSTOM:
        version, fields = CUSTOM[manifest["kind"]]
        assert manifest["apiVersion"] == version and fields <= set(manifest["spec"]) and manifest["metadata"]["name"]
        return
    validator = pytest.importorskip("kubernetes_validate")
    validator.validate(manifest, "1.33", strict=True)


def test_names_agree():
    by_kind = {one.values[0]["kind"]: one.values[0] for one in objects("[!s]*.yaml")}
    labels = by_kind["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for kind in ("ServiceMonitor", "InferencePool"):
        assert by_kind[kind]["spec"]["selector"]["matchLabels"] == labels
    assert by_kind["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    target = by_kind["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", by_kind["Deployment"]["metadata"]["name"])
    container = by_kind["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    assert by_kind["InferencePool"]["spec"]["targetPorts"][0]["number"] == container["ports"][0]["containerPort"]
    assert by_kind["ServiceMonitor"]["spec"]["endpoints"][0]["port"] == by_kind["Service"]["spec"]["ports"][0]["name"]
    assert by_kind["HTTPRoute"]["spec"]["rules"][0]["backendRefs"][0]["name"] == by_kind["InferencePool"]["metadata"]["name"]


def test_names_of_split_serving_agree():
    by_name = {(one.values[0]["kind"], one.values[0]["metadata"]["name"]): one.values[0] for one in objects("split.yaml")}
    for kind, name in by_name:
        if kind != "Deployment":
            continue
        deployment, service = by_name[kind, name], by_name["Service", name]
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]
        if name == "penstock-blocks":
            continue
        policy = by_name["NetworkPolicy", "penstock-blocks"]["spec"]
        assert policy["ingress"][0]["from"][0]["podSelector"]["matchLabels"].items() <= labels.items()
        store = container["args"][container["args"].index("--kv-store") + 1]
        assert store == f"redis://penstock-blocks:{by_name['Service', 'penstock-blocks']['spec']['ports'][0]['port']}"
        assert name == f"penstock-{container['args'][container['args'].index('--role') + 1]}"
    target = by_name["HorizontalPodAutoscaler", "penstock-prefill"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) in by_name
    assert by_name["NetworkPolicy", "penstock-blocks"]["spec"]["podSelector"]["matchLabels"] == \
        by_name["Service", "penstock-blocks"]["spec"]["selector"]


def test_ray_service_names_what_is_there():
    pytest.importorskip("ray.serve")
    import dataclasses
    import importlib
    from penstock.ray.serve import LLMConfig
    service = next(one.values[0] for one in objects() if one.values[0]["kind"] == "RayService")
    application = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"][0]
    module, name = application["import_path"].split(":")
    assert callable(getattr(importlib.import_module(module), name))
    assert set(application["args"]) <= {field.name for field in dataclasses.fields(LLMConfig)}
    assert LLMConfig(**application["args"])
