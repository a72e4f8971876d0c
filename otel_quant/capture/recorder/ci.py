"""What a CI system says of the run in its environment variables: a table, and nothing else is read.

The variables are those that the systems document: GitHub Actions ("Variables reference"), GitLab
("Predefined CI/CD variables reference"), Jenkins ("Using environment variables"), Azure Pipelines
("Predefined variables"), Buildkite ("Environment variables").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]+@")

SYSTEMS: Final[Mapping[str, Mapping[str, str]]] = {
    "GITHUB_ACTIONS": {
        "pipeline": "{GITHUB_WORKFLOW}",
        "run": "{GITHUB_RUN_ID}",
        "run_url": "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}",
        "task": "{GITHUB_JOB}",
        "worker": "{RUNNER_NAME}",
        "revision": "{GITHUB_SHA}",
        "ref": "{GITHUB_REF_NAME}",
        "repository": "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}",
    },
    "GITLAB_CI": {
        "pipeline": "{CI_PROJECT_PATH}",
        "run": "{CI_PIPELINE_ID}",
        "run_url": "{CI_PIPELINE_URL}",
        "task": "{CI_JOB_NAME}",
        "task_run": "{CI_JOB_ID}",
        "worker": "{CI_RUNNER_DESCRIPTION}",
        "revision": "{CI_COMMIT_SHA}",
        "ref": "{CI_COMMIT_REF_NAME}",
        "change": "{CI_MERGE_REQUEST_IID}",
        "repository": "{CI_PROJECT_URL}",
    },
    "JENKINS_URL": {
        "pipeline": "{JOB_NAME}",
        "run": "{BUILD_NUMBER}",
        "run_url": "{BUILD_URL}",
        "task": "{STAGE_NAME}",
        "worker": "{NODE_NAME}",
        "revision": "{GIT_COMMIT}",
        "ref": "{GIT_BRANCH}",
        "change": "{CHANGE_ID}",
        "repository": "{GIT_URL}",
    },
    "TF_BUILD": {
        "pipeline": "{BUILD_DEFINITIONNAME}",
        "run": "{BUILD_BUILDID}",
        "run_url": "{SYSTEM_COLLECTIONURI}{SYSTEM_TEAMPROJECT}/_build/results"
        "?buildId={BUILD_BUILDID}",
        "task": "{SYSTEM_JOBDISPLAYNAME}",
        "task_run": "{SYSTEM_JOBID}",
        "worker": "{AGENT_NAME}",
        "revision": "{BUILD_SOURCEVERSION}",
        "ref": "{BUILD_SOURCEBRANCHNAME}",
        "change": "{SYSTEM_PULLREQUEST_PULLREQUESTID}",
        "repository": "{BUILD_REPOSITORY_URI}",
    },
    "BUILDKITE": {
        "pipeline": "{BUILDKITE_PIPELINE_SLUG}",
        "run": "{BUILDKITE_BUILD_ID}",
        "run_url": "{BUILDKITE_BUILD_URL}",
        "task": "{BUILDKITE_LABEL}",
        "task_run": "{BUILDKITE_JOB_ID}",
        "worker": "{BUILDKITE_AGENT_NAME}",
        "revision": "{BUILDKITE_COMMIT}",
        "ref": "{BUILDKITE_BRANCH}",
        "repository": "{BUILDKITE_REPO}",
    },
}
"""By the variable that says which system it is, the fields. A field is left out if one of the
variables in braces is unset."""

_VARIABLE: Final = re.compile(r"\{(\w+)\}")


def ci_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns what the CI system says of the run."""
    system = next((name for name in SYSTEMS if environ.get(name)), None)
    if system is None:
        return {}
    found = {}
    for field, template in SYSTEMS[system].items():
        if all(environ.get(name) for name in _VARIABLE.findall(template)):
            value = _VARIABLE.sub(lambda match: environ[match[1]], template)
            found[field] = _CREDENTIALS.sub("", value)
    return found
