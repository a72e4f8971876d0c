"""What made a run: its command without secrets, its commit, and of the environment only a table."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from otel_quant.capture.instruments import PACKAGES
from otel_quant.capture.recorder.attributes import origin_of
from otel_quant.capture.recorder.run_info import (
    SYSTEMS,
    ci_of,
    completed,
    git_head,
    job_of,
    new_run_info,
    shown_command,
)
from otel_quant.schema import semconv
from otel_quant.schema.readings import Reading
from tests.fixtures.git import git, new_repository

GITHUB = {
    "GITHUB_ACTIONS": "true", "GITHUB_WORKFLOW": "nightly", "GITHUB_RUN_ID": "17",
    "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "example/models",
    "GITHUB_JOB": "quantize", "GITHUB_SHA": "ab" * 20, "GITHUB_REF_NAME": "main",
    "GITHUB_TOKEN": "secret-token", "HOME": "/home/me",
}  # fmt: skip


def test_ci_attributes_have_the_names_of_the_semantic_conventions() -> None:
    run = new_run_info(GITHUB)
    found = origin_of(run, Reading(0, 0))
    assert {name: found[name] for name in found if name.startswith(("cicd.", "vcs."))} == {
        "cicd.pipeline.name": "nightly", "cicd.pipeline.run.id": "17",
        "cicd.pipeline.run.url.full": "https://github.com/example/models/actions/runs/17",
        "cicd.pipeline.task.name": "quantize", "vcs.ref.head.revision": "ab" * 20,
        "vcs.ref.head.name": "main", "vcs.repository.url.full": "https://github.com/example/models",
    }  # fmt: skip
    assert "secret" not in str(found)
    assert found.keys() <= semconv.ORIGIN


@pytest.mark.parametrize("system", SYSTEMS)
def test_only_the_listed_variables_of_each_ci_system_are_read(system: str) -> None:
    read: set[str] = set()

    class Environment(dict[str, str]):
        def get(self, name: str, default: str | None = None) -> str | None:
            read.add(name)
            return super().get(name, default)

    named = {name for text in SYSTEMS[system].values() for name in re.findall(r"{(\w+)}", text)}
    environ = Environment({system: "1", **{name: f"<{name}>" for name in named}})
    assert ci_of(environ).keys() == SYSTEMS[system].keys()
    assert read - SYSTEMS.keys() == named


def test_a_password_is_removed_from_an_address() -> None:
    environ = {"JENKINS_URL": "x", "GIT_URL": "https://me:secret@example.com/a.git"}
    assert ci_of(environ) == {"vcs.repository.url.full": "https://example.com/a.git"}


def test_a_run_outside_of_ci_has_no_ci_attributes() -> None:
    assert ci_of({"GITHUB_SHA": "ab", "CI_COMMIT_SHA": "cd"}) == {}


def test_arguments_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["/usr/bin/python", "x.py", "--mine", "7"])
    with_arguments, without = (
        new_run_info({}, arguments=arguments).origin for arguments in (True, False)
    )
    name = semconv.PROCESS_COMMAND_LINE
    assert (with_arguments[name], without[name]) == ("python x.py --mine 7", "python")


def test_libraries_and_cpu_limits_are_added_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_run_info({})
    monkeypatch.setitem(
        PACKAGES, "a-library", "a_library.quantize"
    )  # a line of its table is enough
    for name in ("numpy", "a_library"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(__version__="9.8"))
    attributes = origin_of(completed(run), Reading(0, 0))
    libraries = attributes[semconv.LIBRARIES]
    assert isinstance(libraries, tuple)
    assert {"numpy 9.8", "a-library 9.8"} <= set(libraries)
    assert attributes[semconv.CPU_COUNT] == os.cpu_count()
    limit = attributes[semconv.CPU_LIMIT]
    assert isinstance(limit, float)
    assert 0 < limit <= (os.cpu_count() or 1)


# --- the command ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ([], ""),
        (["/usr/bin/python3", "quantize.py", "--out", "a b"], "python3 quantize.py --out 'a b'"),
        (["python", "-c", "import x\nx.run()"], "python -c 'import x x.run()'"),
        (["python", "a.py", "--hf-token", "hf_abc", "x"], "python a.py --hf-token *** x"),
        (["python", "a.py", "--API_KEY=1234", "--token"], "python a.py --API_KEY=*** --token"),
        (["python", "a.py", "--token", "--verbose"], "python a.py --token --verbose"),
        (["python", "a.py", "--tokenizer", "gpt2", "--max-tokens=9"], "python a.py --tokenizer gpt2 --max-tokens=9"),
        (["python", "a.py", "https://me:secret@hub/x", "--url=http://t@h"],
         "python a.py https://***@hub/x --url=http://***@h"),
        (["python", "a.py", "hf_token=abc", "AWS_SECRET_ACCESS_KEY=x y", "+hub.token=t", "lr=1"],
         "python a.py hf_token=*** AWS_SECRET_ACCESS_KEY=*** +hub.token=*** lr=1"),
        (["python", "a.py", "-H", "Authorization: Bearer abc", "--header=authorization=Basic x"],
         "python a.py -H 'Authorization:***' --header='authorization=***'"),
        (["python", "a.py", "hf_" + "a" * 34, "--as=AKIA" + "B" * 16, "-c", f"f('ghp_{'c' * 36}')"],
         "python a.py *** --as=*** -c 'f('\"'\"'***'\"'\"')'"),
        (["python", "a.py", "hf_llama_quantized.onnx", "--out=sk-learn-distilled", "eyJ"],
         "python a.py hf_llama_quantized.onnx --out=sk-learn-distilled eyJ"),
        (["python", "a.py", "-H", "X-Api-Key: v", "h?token=v&x=1", '{"db_password": "v", "n": 1}', "tokenizer: v"],
         """python a.py -H 'X-Api-Key: ***' 'h?token=***&x=1' '{"db_password": "***", "n": 1}' 'tokenizer: v'"""),
        (["python", "a.py", "--pw", "abc", "-p", "8080", "sk-abcd1234efgh5678"], "python a.py --pw *** -p 8080 ***"),
        (["python", "x" * 2000], "python " + "x" * 992 + "…"),
    ],
)  # fmt: skip
def test_secrets_are_hidden(arguments: list[str], shown: str) -> None:
    assert shown_command(arguments, paths=True) == shown


def test_arguments_that_may_be_paths_are_hidden_if_paths_are_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    arguments = [
        "/opt/python", "quantize.py", "-c", "open('/etc/passwd')", "models", "--model=out/m.onnx",
        "--method", "minmax", "--percentile", "99.9", "--samples=128", "--token=t", "C:\\m", "hf_" + "a" * 34, "-v",
    ]  # fmt: skip

    assert shown_command(arguments, paths=False) == (
        "python <path> -c <path> <path> --model=<path> --method minmax --percentile 99.9 "
        "--samples=128 --token=*** <path> *** -v"
    )


# --- the commit -----------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "repository")


def test_commit_and_branch_are_recorded(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    assert git_head(repository / "inner") == (commit, "main")

    git(repository, "gc", "-q", "--aggressive", "--prune=now")
    assert (repository / ".git" / "packed-refs").exists()
    assert git_head(repository) == (commit, "main")

    git(repository, "worktree", "add", "-q", "-b", "other/branch", "../second")
    assert git_head(repository.parent / "second") == (commit, "other/branch")
    git(repository.parent, "clone", "-q", str(repository), "clone")
    assert git_head(repository.parent / "clone") == (commit, "main")

    git(repository, "checkout", "-q", "--detach")
    assert git_head(repository) == (commit, None)


def test_a_folder_without_a_repository_or_commit_has_no_commit(tmp_path: Path) -> None:
    assert git_head(Path("/proc")) == (None, None)
    git(tmp_path, "init", "-q", "-b", "main")
    assert git_head(tmp_path) == (None, "main")


RDZV = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "node-a", "MASTER_PORT": "29500"}
SRUN = {"SLURM_JOB_ID": "71", "SLURM_STEP_ID": "2", "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4"}  # fmt: skip


@pytest.mark.parametrize(
    ("environ", "host", "expected"),
    [
        ({}, "h", ""),
        ({**RDZV, "TORCHELASTIC_RUN_ID": "none"}, "h", "node-a:29500"),
        ({**RDZV, "TORCHELASTIC_RUN_ID": "q7"}, "h", "torchrun q7"),
        ({**RDZV, **SRUN, "TORCHELASTIC_RUN_ID": "q7"}, "h", "slurm 71, torchrun q7"),
        (SRUN, "h", "slurm 71.2"),
        ({"RAY_JOB_ID": "02000000", **RDZV}, "h", "ray 02000000"),
        ({"JOB_COMPLETION_INDEX": "3", **RDZV}, "quantize-3", "kubernetes quantize"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "a=b,k8s.job.name=quantize,c=d"}, "h", "kubernetes quantize"),
    ],
)
def test_a_job_has_the_same_id_on_all_of_its_nodes(
    environ: dict[str, str], host: str, expected: str
) -> None:
    assert job_of(environ, host) == expected


def test_a_task_of_srun_is_a_rank_unless_it_starts_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    def ranks(environ: dict[str, str]) -> tuple[int | None, int | None]:
        run = new_run_info(environ)
        return run.rank, run.world_size

    monkeypatch.setattr("sys.orig_argv", ["python", "q.py"])
    assert ranks(SRUN) == (3, 4)
    assert ranks({**SRUN, **RDZV}) == (1, 4)
    assert ranks({**SRUN, "SLURM_STEP_NUM_TASKS": "1"}) == (None, None)  # of a script of sbatch
    monkeypatch.setattr("sys.orig_argv", ["python", "/env/bin/torchrun", "q.py"])
    assert ranks(SRUN) == (None, None)
