"""The examples for containers and Kubernetes: parsed, compared with the command line, and built where Docker runs."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from duly.cli.app import COMMANDS, duly
from tests.conftest import require
from tests.programs import ROOT

DOCKER = ROOT / "examples" / "docker"
KUBERNETES = ROOT / "examples" / "kubernetes" / "duly.yaml"
HOSTS = ROOT / "examples" / "kubernetes" / "duly-hosts.yaml"
DOCKERFILE = (DOCKER / "Dockerfile").read_text()


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, with their arguments."""
    lines = [line for line in DOCKERFILE.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def instruction(name: str) -> str:
    (found,) = (rest for word, rest in instructions() if word == name)
    return found


def yaml(path: Path) -> Any:
    require("yaml", "pip install -r requirements/dev.txt", package="pyyaml")
    import yaml as library

    return library.safe_load(path.read_text())


def containers(manifest: Path = KUBERNETES) -> dict[str, Any]:
    return {each["name"]: each for each in yaml(manifest)["spec"]["template"]["spec"]["containers"]}


def commands() -> Iterator[list[str]]:
    """Every call of `duly` in the examples, as a list of words."""
    yield json.loads(instruction("CMD"))
    yield json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    yield yaml(DOCKER / "compose.yml")["services"]["web"]["command"]
    yield from (each["command"] for manifest in (KUBERNETES, HOSTS) for each in containers(manifest).values())


def test_every_command_of_the_examples_exists_with_its_options() -> None:
    """`duly web` comes with the dashboard; whatever else is called is there."""
    found = list(commands())
    assert len(found) == 6
    for program, name, *rest in found:
        assert program == "duly"
        assert name in {*COMMANDS, "web"}
        if name in COMMANDS:
            command = duly.get_command(click.Context(duly), name)
            assert command is not None
            known = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in rest if word.startswith("--")} <= known


def test_the_image_is_small_runs_as_a_user_and_says_whether_it_is_healthy() -> None:
    """No root, a volume for the store, a health check, and signals that reach the scheduler itself."""
    assert instruction("FROM").endswith("-slim")
    words = [word for word, _ in instructions()]
    assert words.index("USER") < words.index("CMD")
    assert instruction("USER") not in {"root", "0"}
    assert instruction("VOLUME") == "/data"
    assert "ENV DULY_STORE=/data/state.db" in DOCKERFILE
    # In the form of a list there is no shell that would keep the signal.
    assert json.loads(instruction("CMD"))[:2] == ["duly", "run"]
    assert json.loads(instruction("HEALTHCHECK").partition("CMD ")[2]) == ["duly", "status"]
    (uid,) = re.findall(r"--uid (\d+)", DOCKERFILE)
    assert int(uid) == yaml(KUBERNETES)["spec"]["template"]["spec"]["securityContext"]["runAsUser"]


def test_the_extras_that_the_image_installs_exist_or_come_with_the_dashboard() -> None:
    """A name that is not an extra would be ignored by pip, with a warning."""
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (named,) = re.findall(r'"duly\[([\w,]+)\]"', DOCKERFILE)
    assert set(named.split(",")) <= {*extras, "web"}


def test_the_services_of_compose_share_the_store_and_only_this_host_reaches_the_dashboard() -> None:
    """One volume, one scheduler, time to stop; a token, and a port of this host alone."""
    compose = yaml(DOCKER / "compose.yml")
    scheduler, web = compose["services"]["scheduler"], compose["services"]["web"]
    assert scheduler["volumes"] == web["volumes"] == ["data:/data"]
    assert "data" in compose["volumes"]
    assert scheduler["stop_grace_period"]
    assert "deploy" not in scheduler
    assert all(port.startswith("127.0.0.1:") for port in web["ports"])
    (secret,) = web["secrets"]
    assert secret in compose["secrets"]
    assert f"/run/secrets/{secret}" in web["command"]


def test_kubernetes_runs_one_scheduler_with_a_disk_of_its_own_and_time_to_stop() -> None:
    """SPEC 5.7: one replica of a StatefulSet, a claim for one node, no root."""
    manifest = yaml(KUBERNETES)
    spec = manifest["spec"]
    pod = spec["template"]["spec"]
    assert (manifest["apiVersion"], manifest["kind"], spec["replicas"]) == ("apps/v1", "StatefulSet", 1)
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert pod["terminationGracePeriodSeconds"] >= 600
    assert pod["securityContext"]["runAsNonRoot"]
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    for container in containers().values():
        (mount,) = container["volumeMounts"]
        assert mount["name"] == claim["metadata"]["name"]
        assert container["command"][container["command"].index("--store") + 1].startswith(f"{mount['mountPath']}/")
        assert not container["securityContext"]["allowPrivilegeEscalation"]
        assert "livenessProbe" not in container
    zones = {each["value"] for container in containers().values() for each in container["env"] if each["name"] == "TZ"}
    assert len(zones) == 1


def test_hosts_in_kubernetes_share_a_database_and_need_no_disk() -> None:
    """SPEC 9.1: any number of replicas; the URL, which has a password, comes from a secret."""
    manifest = yaml(HOSTS)
    spec, pod = manifest["spec"], manifest["spec"]["template"]["spec"]
    assert (manifest["apiVersion"], manifest["kind"]) == ("apps/v1", "Deployment")
    assert spec["replicas"] > 1
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert pod["terminationGracePeriodSeconds"] >= 600
    assert pod["securityContext"]["runAsNonRoot"]
    assert "volumes" not in pod
    (container,) = containers(HOSTS).values()
    assert container["command"] == ["duly", "run", "tasks.py"]
    (store,) = (each for each in container["env"] if each["name"] == "DULY_STORE")
    assert "secretKeyRef" in store["valueFrom"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert "livenessProbe" not in container


def test_the_probe_asks_for_the_health_of_the_store_and_is_python() -> None:
    """The side container is ready while the store is healthy."""
    program, option, code = containers()["web"]["readinessProbe"]["exec"]["command"]
    assert (program, option) == ("python", "-c")
    compile(code, "probe", "exec")
    port = containers()["web"]["command"][containers()["web"]["command"].index("--port") + 1]
    assert f":{port}/api/v1/health" in code


@pytest.mark.system
def test_the_image_is_built_and_runs_where_docker_does(tmp_path: Path) -> None:
    """Only where a daemon runs, which no test can bring: with this checkout in place of its wheel."""
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no Docker daemon runs here")
    shutil.copytree(ROOT / "src", tmp_path / "duly" / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "share", tmp_path / "duly" / "share")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / "duly")
    shutil.copy(ROOT / "examples" / "tasks.py", tmp_path)
    local = DOCKERFILE.replace("COPY duly-*.whl /tmp/", "COPY duly /duly").replace("/tmp/duly-*.whl", "/duly")
    (tmp_path / "Dockerfile").write_text(local)
    subprocess.run(["docker", "build", "-q", "-t", "duly-example", str(tmp_path)], check=True, capture_output=True)
    plan = subprocess.run(
        ["docker", "run", "--rm", "duly-example", "duly", "plan", "tasks.py"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "heartbeat" in plan.stdout
