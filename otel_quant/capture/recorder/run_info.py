"""What is known of a run when it begins, and what made it: command line without secrets, CI system, commit, libraries.

Of the environment nothing is read but a table. Of git nothing is started: that would give the program a
child process that it does not know, which its own handlers and our figures would count.
"""

from __future__ import annotations

import dataclasses
import math
import os
import platform
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from otel_quant.base.kernel_files import ask_psutil, text_of
from otel_quant.base.machine import processors
from otel_quant.base.secrets import OPTIONS, hide, masked, names_secret, without_credentials
from otel_quant.capture.instruments import PACKAGES
from otel_quant.capture.probes.memory import read_limits
from otel_quant.schema import semconv
from otel_quant.schema.events import present
from otel_quant.schema.readings import AttributeValue, RunInfo
from otel_quant.version import VERSION

_LONGEST: Final = 1000  # Characters that are kept
_PATH: Final = "<path>"

_OPTION: Final = re.compile(r"--?[A-Za-z][\w-]*")
_ASSIGNED: Final = re.compile(r"[-+~]*[A-Za-z_][\w.-]*")
"""What stands before ``=``: an option, a variable, or a key as Hydra takes it."""
# A single word or a number cannot be a path with folders, nor a file's name with its suffix.
_WORD_OR_NUMBER: Final = re.compile(r"[\w-]*|[-+]?\d*\.\d+(?:[eE][-+]?\d+)?")


def shown_command(arguments: Sequence[str], *, paths: bool) -> str:
    """Writes a command line as it would be typed."""
    if not arguments:
        return ""
    shown = [shlex.quote(Path(arguments[0]).name), *_shown(arguments[1:], paths)]
    line = " ".join(" ".join(shown).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _shown(arguments: Sequence[str], paths: bool) -> Iterator[str]:
    is_secret = False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        names_value = (_ASSIGNED if equals else _OPTION).fullmatch(name) is not None
        has_secret = names_value and names_secret(name)
        if is_secret and not argument.startswith("-"):
            yield hide(argument)
        elif has_secret and equals:
            yield f"{name}={hide(value)}"
        elif argument[:2] in OPTIONS and len(argument) > 2:  # -pSECRET
            yield f"{argument[:2]}{hide(argument[2:])}"
        elif _OPTION.fullmatch(name) is None:
            yield _value(argument, paths)
        else:
            yield f"{name}={_value(value, paths)}" if equals else argument
        is_secret = has_secret and not equals


def _value(text: str, paths: bool) -> str:
    is_plain = _WORD_OR_NUMBER.fullmatch(text) and len(text) < 64 and not Path(text).exists()
    if not (paths or is_plain):
        return _PATH
    return masked(shlex.quote(text))


_CI: Final[Mapping[str, Sequence[str]]] = {
    "": ("GITHUB_ACTIONS", "GITLAB_CI", "JENKINS_URL", "TF_BUILD"),
    semconv.CI_PIPELINE: ("{GITHUB_WORKFLOW}", "{CI_PROJECT_PATH}", "{JOB_NAME}", "{BUILD_DEFINITIONNAME}"),
    semconv.CI_RUN: ("{GITHUB_RUN_ID}", "{CI_PIPELINE_ID}", "{BUILD_NUMBER}", "{BUILD_BUILDID}"),
    semconv.CI_RUN_URL: ("{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}", "{CI_PIPELINE_URL}", "{BUILD_URL}", "{SYSTEM_COLLECTIONURI}{SYSTEM_TEAMPROJECT}/_build/results?buildId={BUILD_BUILDID}"),
    semconv.CI_TASK: ("{GITHUB_JOB}", "{CI_JOB_NAME}", "{STAGE_NAME}", "{SYSTEM_JOBDISPLAYNAME}"),
    semconv.CI_TASK_RUN: ("", "{CI_JOB_ID}", "", "{SYSTEM_JOBID}"),
    semconv.CI_WORKER: ("{RUNNER_NAME}", "{CI_RUNNER_DESCRIPTION}", "{NODE_NAME}", "{AGENT_NAME}"),
    semconv.VCS_REVISION: ("{GITHUB_SHA}", "{CI_COMMIT_SHA}", "{GIT_COMMIT}", "{BUILD_SOURCEVERSION}"),
    semconv.VCS_REF: ("{GITHUB_REF_NAME}", "{CI_COMMIT_REF_NAME}", "{GIT_BRANCH}", "{BUILD_SOURCEBRANCHNAME}"),
    semconv.VCS_CHANGE: ("", "{CI_MERGE_REQUEST_IID}", "{CHANGE_ID}", "{SYSTEM_PULLREQUEST_PULLREQUESTID}"),
    semconv.VCS_REPOSITORY: ("{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}", "{CI_PROJECT_URL}", "{GIT_URL}", "{BUILD_REPOSITORY_URI}"),
}  # fmt: skip
"""By attribute, what each system has of it. The systems document them: GitHub Actions ("Variables
reference"), GitLab ("Predefined CI/CD variables reference"), Jenkins ("Using environment variables"),
Azure Pipelines ("Predefined variables")."""

SYSTEMS: Final[Mapping[str, Mapping[str, str]]] = {
    system: {attribute: each[n] for attribute, each in _CI.items() if attribute and each[n]}
    for n, system in enumerate(_CI[""])
}
"""By the variable that identifies the system, the attributes. One is left out if one of the
variables in braces is unset."""

_VARIABLE: Final = re.compile(r"\{(\w+)\}")


def ci_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the attributes that the CI system gives of the run."""
    system = next((name for name in SYSTEMS if environ.get(name)), None)
    if system is None:
        return {}
    found = {}
    for attribute, template in SYSTEMS[system].items():
        if all(environ.get(name) for name in _VARIABLE.findall(template)):
            value = _VARIABLE.sub(lambda match: environ[match[1]], template)
            found[attribute] = without_credentials(value)
    return found


_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def git_head(folder: Path) -> tuple[str | None, str | None]:
    """Returns commit and branch of the git repository that a folder is in: gitrepository-layout(5)."""
    work_tree = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)
    if work_tree is None:
        return None, None
    git = work_tree / ".git"
    if not git.is_dir():  # a work tree beside the first has a file that names its folder
        git = work_tree / text_of(git).removeprefix("gitdir: ")
    head = text_of(git / "HEAD")
    if not head.startswith("ref: "):
        return (head if _COMMIT.fullmatch(head) else None), None
    name = head.removeprefix("ref: ")
    # The folder of a further work tree names the one that it shares with the others.
    shared = git / text_of(git / "commondir")
    commit = text_of(git / name) or text_of(shared / name) or _packed(shared / "packed-refs", name)
    return (commit if _COMMIT.fullmatch(commit) else None), name.removeprefix("refs/heads/")


def _packed(path: Path, name: str) -> str:
    lines = (line.partition(" ") for line in text_of(path).splitlines())
    return next((commit for commit, _, packed in lines if packed == name), "")


# --- the run ------------------------------------------------------------------------------

LIBRARIES: Final[Mapping[str, str]] = {
    "quark": "amd-quark", "accelerate": "accelerate", "bitsandbytes": "bitsandbytes", "brevitas": "brevitas",
    "gptqmodel": "gptqmodel", "modelopt": "nvidia-modelopt", "numpy": "numpy", "onnx": "onnx", "onnx_ir": "onnx-ir",
    "opentelemetry.sdk": "opentelemetry-sdk", "openvino": "openvino", "optimum": "optimum",
}  # fmt: skip
"""The libraries without hooks whose versions are reported, too: module and distribution."""

_HEADERS: Final = ("traceparent", "tracestate", "baggage")


def new_run_info(
    environ: Mapping[str, str], carrier: Mapping[str, str] | None = None, *, name: str = "",
    paths: bool = True, arguments: bool = True, folder: Path | None = None,
) -> RunInfo:  # fmt: skip
    """Describes the run that is about to begin in this process."""
    known = rank_of(environ)
    if not carrier or "traceparent" not in carrier:
        carrier = present({name: environ.get(name.upper()) or None for name in _HEADERS})
    return RunInfo(
        id=os.urandom(8).hex(), pid=os.getpid(), name=name, limits=read_limits(),
        rank=known.get("rank"), world_size=known.get("world_size"),
        launched_ns=_launched_ns() if known else None,
        parent_carrier=carrier, paths=paths, origin=_origin(environ, paths, arguments, folder),
    )  # fmt: skip


def completed(run: RunInfo) -> RunInfo:
    """Returns a run with what made it as it is known at its end."""
    libraries = tuple(loaded_libraries())
    if not run.origin or not libraries:
        return run
    return dataclasses.replace(run, origin={**run.origin, semconv.LIBRARIES: libraries})


def loaded_libraries() -> Iterator[str]:
    """Yields each library that is loaded, of :data:`LIBRARIES` and with hooks, with its version."""
    from importlib import metadata  # the launcher, which loads this module, needs none

    hooked = {package.partition(".")[0]: name for name, package in PACKAGES.items()}
    for module, distribution in {**hooked, **LIBRARIES}.items():
        loaded = sys.modules.get(module)
        if loaded is None:
            continue
        version = vars(loaded).get("__version__")
        if not isinstance(version, str):
            try:
                version = metadata.version(distribution)
            except metadata.PackageNotFoundError:
                continue
        yield f"{distribution} {version}"


_UNKNOWN: Final = (None, "", ())


def _origin(
    environ: Mapping[str, str], paths: bool, arguments: bool, folder: Path | None
) -> dict[str, AttributeValue]:
    """Returns the attributes of what makes the run."""
    machine = platform.uname()
    # As the kernel's modules tell it.
    drivers = [
        (name, text_of(Path(f"/sys/module/{name}/version"))) for name in ("nvidia", "amdgpu")
    ]
    revision, ref = git_head(folder) if folder is not None else (None, None)
    command = shown_command(sys.orig_argv if arguments else sys.orig_argv[:1], paths=paths)
    known = {
        semconv.PROCESS_COMMAND_LINE: command, semconv.PYTHON_VERSION: platform.python_version(),
        semconv.HOST_NAME: machine.node, semconv.RUN_JOB: rank_of(environ).get("job"),
        semconv.OS_DESCRIPTION: f"{machine.system} {machine.release} {machine.machine}",
        semconv.CPU_MODEL: _cpu_model(), semconv.CPU_COUNT: os.cpu_count(),
        semconv.CPU_LIMIT: _cpu_limit(), semconv.ADDRESS_SPACE_LIMIT: _resource_limit("RLIMIT_AS"),
        semconv.FILE_SIZE_LIMIT: _resource_limit("RLIMIT_FSIZE"),
        semconv.OTEL_QUANT_VERSION: VERSION,
        semconv.GPU_DRIVERS: tuple(f"{name} {version}" for name, version in drivers if version),
        semconv.VCS_REVISION: revision, semconv.VCS_REF: ref,
        semconv.LIBRARIES: tuple(loaded_libraries()),
    }  # fmt: skip
    of_ci = ci_of(environ)
    return {**of_ci, **{name: value for name, value in known.items() if value not in _UNKNOWN}}


_STARTS_RANKS: Final = ("torchrun", "torch.distributed", "accelerate", "deepspeed")
_JOBS: Final = {"slurm": "SLURM_JOB_ID", "ray": "RAY_JOB_ID", "torchrun": "TORCHELASTIC_RUN_ID"}
_POD: Final = re.compile(r"\bk8s\.job\.name=([^,]+)")


def rank_of(environ: Mapping[str, str]) -> dict[str, Any]:
    """Returns which rank of which job a process is, or which task of `srun` unless it starts ranks itself; nothing for none."""
    names = "RANK", "WORLD_SIZE"
    starts = any(name in argument for name in _STARTS_RANKS for argument in sys.orig_argv[1:4])
    if environ.get("SLURM_STEP_NUM_TASKS", "1") != "1" and "RANK" not in environ and not starts:
        names = "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"
    rank, size = (_integer(environ.get(name, "")) for name in names)
    known = {"rank": rank, "world_size": size, "job": job_of(environ, platform.node())}
    return {} if rank is None else present(known)


def job_of(environ: Mapping[str, str], host: str) -> str:
    """Returns what the ranks of a job share on all nodes, and those of others do not; empty if that is not known."""
    known = {name: environ.get(variable, "") for name, variable in _JOBS.items()}
    if "RANK" not in environ:  # else a step may be one node's torchrun
        known["slurm"] += f".{environ.get('SLURM_STEP_ID', '')}"
    pod = _POD.search(environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    index = environ.get("JOB_COMPLETION_INDEX")
    of_pod = host.removesuffix(f"-{index}") if index else ""  # as an indexed job names its pods
    known["kubernetes"] = pod[1] if pod else of_pod
    found = [f"{name} {each}" for name, each in known.items() if each not in ("", "none", ".")]
    address = f"{environ.get('MASTER_ADDR', '')}:{environ.get('MASTER_PORT', '')}"
    return ", ".join(found) or address.strip(":")


def _launched_ns() -> int | None:
    """Returns when the parent was started: the ranks of a host have the same, and no other run."""
    try:
        return int(ask_psutil(os.getppid(), "create_time") * 1e9)
    except OSError:
        return None


def _integer(text: str) -> int | None:
    return int(text) if text.strip().isdecimal() else None


def _cpu_model() -> str | None:
    for line in text_of(Path("/proc/cpuinfo"), 4096).splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or None


def _cpu_limit() -> float:
    """Returns the processors that this process may use."""
    quota, _, period = text_of(Path("/sys/fs/cgroup/cpu.max")).partition(" ")
    limit = int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else math.inf
    return min(float(processors()), limit)


def _resource_limit(name: str) -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(getattr(resource, name))
    return None if soft == resource.RLIM_INFINITY else soft
