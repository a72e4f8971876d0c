"""What made a run: its command line without secrets, the CI system, the commit and the branch.

Of the environment nothing is read but a table. Of git nothing is started: that would give the program a
child process that it does not know, which its own handlers and our figures would count.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from otel_quant.schema import semconv

_LONGEST: Final = 1000
"""Characters that are kept."""

_HIDDEN: Final = "***"
_PATH: Final = "<path>"

_OPTION: Final = re.compile(r"--?[A-Za-z][\w-]*")
_ASSIGNED: Final = re.compile(r"[-+~]*[A-Za-z_][\w.-]*")
"""What stands before ``=``: an option, a variable, or a key as Hydra takes it."""
_SECRET_WORDS: Final = frozenset(
    {"apikey", "auth", "credential", "credentials", "key", "passphrase", "passwd", "password",
     "secret", "token"}
)  # fmt: skip
"""Words of a name; ``--tokenizer`` and ``--max-tokens`` have none of them."""
_SECRETS: Final = re.compile(
    r"(?i:(?<=authorization:)|(?<=authorization=)|(?<=bearer ))[^'\"]+"
    r"|\b(?:(?:hf|gh[oprsu])_[A-Za-z0-9]{30,}|github_pat_\w{40,}|A[KS]IA[A-Z0-9]{16}"
    r"|glpat-[\w-]{20,}|sk-[\w-]{32,}|xox[abeprs]-[\w-]{20,}|eyJ[\w-]+\.[\w-]+\.[\w-]+)"
)
"""An HTTP header's, and the forms in which services give out keys and tokens: with their lengths, as names
of models begin alike (``hf_llama_int8.onnx``)."""
_NAMED: Final = re.compile(
    r"(?i)((?:key|passwd|password|secret|token)[\"']?\s*[:=]\s*[\"']?)[^\s\"'&,}]+"
)
"""A secret with its name within an argument: of an HTTP header, an address, JSON."""
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]+@")
"""``user:password@`` in an address."""

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
        if is_secret and not argument.startswith("-"):
            yield _HIDDEN
            is_secret = False
            continue
        name, equals, value = argument.partition("=")
        is_option = _OPTION.fullmatch(name) is not None
        names_value = is_option or (bool(equals) and _ASSIGNED.fullmatch(name) is not None)
        words = re.split("[-_.]", name.lower())
        names_secret = names_value and not _SECRET_WORDS.isdisjoint(words)
        is_secret = names_secret and not equals
        if names_secret and equals:
            yield f"{name}={_HIDDEN}"
        elif not is_option:
            yield _value(argument, paths)
        elif equals:
            yield f"{name}={_value(value, paths)}"
        else:
            yield argument


def _value(text: str, paths: bool) -> str:
    is_plain = _WORD_OR_NUMBER.fullmatch(text) and len(text) < 64 and not Path(text).exists()
    if not (paths or is_plain):
        return _PATH
    known = _NAMED.sub(rf"\1{_HIDDEN}", shlex.quote(text))
    return _SECRETS.sub(_HIDDEN, _CREDENTIALS.sub(f"{_HIDDEN}@", known))


SYSTEMS: Final[Mapping[str, Mapping[str, str]]] = {
    "GITHUB_ACTIONS": {
        semconv.CI_PIPELINE: "{GITHUB_WORKFLOW}",
        semconv.CI_RUN: "{GITHUB_RUN_ID}",
        semconv.CI_RUN_URL: "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}",
        semconv.CI_TASK: "{GITHUB_JOB}",
        semconv.CI_WORKER: "{RUNNER_NAME}",
        semconv.VCS_REVISION: "{GITHUB_SHA}",
        semconv.VCS_REF: "{GITHUB_REF_NAME}",
        semconv.VCS_REPOSITORY: "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}",
    },
    "GITLAB_CI": {
        semconv.CI_PIPELINE: "{CI_PROJECT_PATH}",
        semconv.CI_RUN: "{CI_PIPELINE_ID}",
        semconv.CI_RUN_URL: "{CI_PIPELINE_URL}",
        semconv.CI_TASK: "{CI_JOB_NAME}",
        semconv.CI_TASK_RUN: "{CI_JOB_ID}",
        semconv.CI_WORKER: "{CI_RUNNER_DESCRIPTION}",
        semconv.VCS_REVISION: "{CI_COMMIT_SHA}",
        semconv.VCS_REF: "{CI_COMMIT_REF_NAME}",
        semconv.VCS_CHANGE: "{CI_MERGE_REQUEST_IID}",
        semconv.VCS_REPOSITORY: "{CI_PROJECT_URL}",
    },
    "JENKINS_URL": {
        semconv.CI_PIPELINE: "{JOB_NAME}",
        semconv.CI_RUN: "{BUILD_NUMBER}",
        semconv.CI_RUN_URL: "{BUILD_URL}",
        semconv.CI_TASK: "{STAGE_NAME}",
        semconv.CI_WORKER: "{NODE_NAME}",
        semconv.VCS_REVISION: "{GIT_COMMIT}",
        semconv.VCS_REF: "{GIT_BRANCH}",
        semconv.VCS_CHANGE: "{CHANGE_ID}",
        semconv.VCS_REPOSITORY: "{GIT_URL}",
    },
    "TF_BUILD": {
        semconv.CI_PIPELINE: "{BUILD_DEFINITIONNAME}",
        semconv.CI_RUN: "{BUILD_BUILDID}",
        semconv.CI_RUN_URL: "{SYSTEM_COLLECTIONURI}{SYSTEM_TEAMPROJECT}/_build/results"
        "?buildId={BUILD_BUILDID}",
        semconv.CI_TASK: "{SYSTEM_JOBDISPLAYNAME}",
        semconv.CI_TASK_RUN: "{SYSTEM_JOBID}",
        semconv.CI_WORKER: "{AGENT_NAME}",
        semconv.VCS_REVISION: "{BUILD_SOURCEVERSION}",
        semconv.VCS_REF: "{BUILD_SOURCEBRANCHNAME}",
        semconv.VCS_CHANGE: "{SYSTEM_PULLREQUEST_PULLREQUESTID}",
        semconv.VCS_REPOSITORY: "{BUILD_REPOSITORY_URI}",
    },
}
"""By the variable that identifies the system, the attributes. One is left out if one of the
variables in braces is unset. The systems document them: GitHub Actions ("Variables
reference"), GitLab ("Predefined CI/CD variables reference"), Jenkins ("Using environment variables"),
Azure Pipelines ("Predefined variables")."""

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
            found[attribute] = _CREDENTIALS.sub("", value)
    return found


_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def git_head(folder: Path) -> tuple[str | None, str | None]:
    """Returns commit and branch of the git repository that a folder is in: gitrepository-layout(5)."""
    work_tree = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)
    if work_tree is None:
        return None, None
    git = work_tree / ".git"
    if not git.is_dir():  # a work tree beside the first has a file that names its folder
        git = work_tree / _text(git).removeprefix("gitdir: ")
    head = _text(git / "HEAD")
    if not head.startswith("ref: "):
        return (head if _COMMIT.fullmatch(head) else None), None
    name = head.removeprefix("ref: ")
    # The folder of a further work tree names the one that it shares with the others.
    shared = git / _text(git / "commondir")
    commit = _text(git / name) or _text(shared / name) or _packed(shared / "packed-refs", name)
    return (commit if _COMMIT.fullmatch(commit) else None), name.removeprefix("refs/heads/")


def _packed(path: Path, name: str) -> str:
    lines = (line.partition(" ") for line in _text(path).splitlines())
    return next((commit for commit, _, packed in lines if packed == name), "")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
