"""The image's recipe and the sidecar's examples: read as their tools read them, and held to the daemon."""

import json
import re
import stat
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from driver.cli.doctor import doctor
from driver.cli.main import COMMANDS
from driver.config.load import parse
from driver.config.models import Config, DriverTable
from driver.daemon import FLUSH_S, STOP_MARGIN_S
from driver.engine.calling import CANCEL_DRAIN_S

ROOT: Final = Path(__file__).resolve().parents[1]
RECIPE: Final = ROOT / "Containerfile"
SIDECAR: Final = ROOT / "docs" / "examples" / "sidecar"
INSTRUCTIONS: Final = {
    "COPY",
    "CMD",
    "ENTRYPOINT",
    "ENV",
    "FROM",
    "HEALTHCHECK",
    "RUN",
    "STOPSIGNAL",
    "USER",
    "VOLUME",
    "WORKDIR",
}
USER: Final = 10001
STATE: Final = str(DriverTable.model_fields["state_dir"].get_default())
RUNTIME: Final = str(DriverTable.model_fields["runtime_dir"].get_default())

Step = tuple[str, str]


def stages() -> list[list[Step]]:
    """The recipe's instructions, stage by stage: comments gone, lines joined, as a builder reads them."""
    lines = [line for line in RECIPE.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    found: list[list[Step]] = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        word, _, rest = line.partition(" ")
        assert word in INSTRUCTIONS, line
        if word == "FROM":
            found.append([])
        found[-1].append((word, rest.strip()))
    return found


def of(stage: list[Step], word: str) -> list[str]:
    """What stands behind an instruction, each time it is used."""
    return [rest for step, rest in stage if step == word]


def one(stage: list[Step], word: str) -> str:
    """What stands behind an instruction that is used once."""
    (found,) = of(stage, word)
    return found


def config() -> Config:
    """The example's configuration."""
    return parse((SIDECAR / "effectd.toml").read_text(), Path("effectd.toml"))


def longest_stop_s() -> float:
    """How long a stop may take before the runtime kills."""
    return config().driver.drain_s + 2 * CANCEL_DRAIN_S + FLUSH_S + STOP_MARGIN_S


def documents(name: str) -> list[dict[str, Any]]:
    """The documents of a YAML file."""
    return list(yaml.safe_load_all((SIDECAR / name).read_text()))


# --- the recipe


def test_the_image_is_built_from_what_the_package_is_made_of() -> None:
    """Each source exists, and each package that the build declares is there."""
    build, final = stages()
    assert one(build, "FROM") == "docker.io/library/python:3.11-slim AS build"
    assert one(final, "FROM") == "docker.io/library/python:3.11-slim"
    sources = {source for rest in of(build, "COPY") for source in rest.split()[:-1]}
    assert all((ROOT / source).exists() for source in sources)
    packages = re.search(
        r"\[tool.hatch.build.targets.wheel\]\npackages = \[(.+)\]", (ROOT / "pyproject.toml").read_text()
    )
    assert packages is not None
    assert sources == {*json.loads(f"[{packages[1]}]"), "pyproject.toml", "README.md", "LICENSE"}
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert kept == sources


def test_the_image_runs_as_a_user_of_its_own_and_keeps_the_journal_outside() -> None:
    """Nobody is root in it, and the state is on a volume; its folders are what the daemon accepts."""
    _, final = stages()
    assert one(final, "USER") == f"{USER}:{USER}"
    assert json.loads(one(final, "VOLUME")) == [STATE]
    (setup,) = of(final, "RUN")
    assert f"--uid {USER}" in setup
    for folder, mode in ((STATE, 0o700), (RUNTIME, 0o750)):
        (found,) = re.findall(rf"install -d -m (\d+) -o effectd -g effectd {folder}(?:\s|$)", setup)
        assert int(found, 8) == mode
        assert not int(found, 8) & (stat.S_IWGRP | stat.S_IWOTH)
    words = [word for word, _ in final]
    assert words.index("RUN") < words.index("USER") < words.index("ENTRYPOINT")


def test_the_image_starts_stops_and_is_judged_by_commands_that_exist() -> None:
    """`effectd run`, drained by SIGTERM; healthy is what `effectd doctor` says."""
    _, final = stages()
    assert json.loads(one(final, "ENTRYPOINT")) == ["effectd"]
    (command,) = json.loads(one(final, "CMD"))
    assert one(final, "STOPSIGNAL") == "SIGTERM"
    options, _, check = one(final, "HEALTHCHECK").partition(" CMD ")
    assert set(re.findall(r"--([a-z-]+)=\d+s?", options)) == {
        "interval",
        "timeout",
        "start-period",
        "retries",
    }
    program, *words = json.loads(check)
    assert (program, words) == ("effectd", ["doctor", "--running"])
    assert {command, words[0]} <= COMMANDS.keys()
    assert words[1] in {name for option in doctor.params for name in option.opts}


# --- the sidecar


def test_the_configuration_of_the_sidecar_is_valid() -> None:
    """It starts, keeps its state where the volume is, and its sockets where the agent looks."""
    found = config()
    assert str(found.driver.state_dir) == STATE
    assert str(found.driver.runtime_dir) == RUNTIME
    assert found.providers.keys() == {"issues", "pay"}


def test_the_compose_file_is_whole() -> None:
    """Every volume and secret that is used is declared, and effectd's are mounted where it looks for them."""
    (page,) = documents("compose.yaml")
    service, agent = page["services"]["effectd"], page["services"]["agent"]
    mounts = dict(volume.split(":")[:2] for volume in service["volumes"])
    named = {source for source in mounts if not source.startswith(".")}
    assert named == page["volumes"].keys()
    assert {mounts["effectd-state"], mounts["effectd-run"]} == {STATE, RUNTIME}
    assert mounts["./effectd.toml"] == "/etc/effectd/effectd.toml"
    assert (SIDECAR / service["build"]["context"] / service["build"]["dockerfile"]).resolve() == RECIPE
    (secret,) = service["secrets"]
    control = config().control
    assert control is not None
    assert str(control.token_file) == f"/run/secrets/{secret}"
    assert secret in page["secrets"]
    assert "effectd-state" not in " ".join(agent["volumes"])
    assert all(volume.endswith(":ro") for volume in agent["volumes"])
    assert agent["group_add"] == [str(USER)]
    assert int(service["stop_grace_period"].removesuffix("s")) > longest_stop_s()
    assert (service["read_only"], service["cap_drop"], service["restart"]) == (True, ["ALL"], "always")


@pytest.fixture
def pod() -> dict[str, Any]:
    """The pod's specification."""
    claim, made = documents("pod.yaml")
    assert (claim["kind"], made["kind"]) == ("PersistentVolumeClaim", "Pod")
    spec: dict[str, Any] = made["spec"]
    claims = [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in spec["volumes"]
        if len(volume) > 1 and "persistentVolumeClaim" in volume
    ]
    assert claims == [claim["metadata"]["name"]]
    return spec


def test_the_pod_is_whole(pod: dict[str, Any]) -> None:
    """Every volume that is mounted exists, and every one that exists is mounted."""
    containers = [*pod["initContainers"], *pod["containers"]]
    mounted = {mount["name"] for container in containers for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    assert pod["terminationGracePeriodSeconds"] > longest_stop_s()


def test_the_pod_has_effectd_as_a_sidecar_that_no_probe_kills_for_what_is_unsettled(
    pod: dict[str, Any],
) -> None:
    """It is not root, drains after the agent, and `doctor` decides about readiness alone."""
    sidecar = next(container for container in pod["initContainers"] if container["name"] == "effectd")
    assert sidecar["restartPolicy"] == "Always"
    context = sidecar["securityContext"]
    assert (context["runAsUser"], context["runAsNonRoot"], context["capabilities"]) == (
        USER,
        True,
        {"drop": ["ALL"]},
    )
    commands = {
        name: sidecar[name]["exec"]["command"] for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert commands["livenessProbe"] == commands["startupProbe"] == ["effectd", "status"]
    assert commands["readinessProbe"] == ["effectd", "doctor", "--running"]
    mounts = {mount["mountPath"]: mount["name"] for mount in sidecar["volumeMounts"]}
    assert mounts[STATE] == "state"
    assert mounts[RUNTIME] == "run"
    control = config().control
    assert control is not None
    assert str(control.token_file.parent) in mounts


def test_the_agent_gets_the_sockets_and_nothing_else_of_effectd(pod: dict[str, Any]) -> None:
    """Neither the journal nor the token; it is of the group that may open the sockets."""
    (agent,) = pod["containers"]
    assert pod["securityContext"]["supplementalGroups"] == [USER]
    assert agent["volumeMounts"] == [{"name": "run", "mountPath": RUNTIME, "readOnly": True}]


def test_effectd_can_read_the_token_in_the_pod(pod: dict[str, Any]) -> None:
    """The files of a secret are root's: without a group for volumes, only others' bit lets effectd in."""
    assert "fsGroup" not in pod["securityContext"], "it would open the state folder to a group, at each start"
    (mode,) = (volume["secret"]["defaultMode"] for volume in pod["volumes"] if "secret" in volume)
    assert mode == stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH
