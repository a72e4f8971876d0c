"""A failure of ours is printed once, whoever else gets log records."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from otel_quant.base.fault_boundary import message_of
from tests.fixtures.programs import run_script

OPENTELEMETRY = """
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
records = InMemoryLogRecordExporter()
provider = LoggerProvider()
provider.add_log_record_processor(SimpleLogRecordProcessor(records))
logging.getLogger().addHandler(LoggingHandler(logger_provider=provider))
"""
FAILURE = """
import otel_quant
from otel_quant.base.fault_boundary import FAULTS
for _ in range(2):
    with FAULTS.kept_in("sink quark_yaml"):
        raise OSError("disk full")
"""
END = """
import os, sys
sys.stdout.flush()
os._exit(0)  # the SDK's handler starts a thread at exit, which Python 3.12 reports
"""
LINE = "sink quark_yaml failed and is skipped; the program goes on without it: OSError: disk full\n"


@pytest.mark.parametrize(
    ("configured", "printed"),
    [
        ("", LINE),
        (OPENTELEMETRY, LINE),
        ("logging.basicConfig(format='program: %(message)s')", "program: " + LINE),
        (OPENTELEMETRY + "logging.getLogger().addHandler(logging.StreamHandler())", LINE),
        (OPENTELEMETRY + "logging.getLogger('otel_quant').addHandler(logging.NullHandler())", ""),
        (OPENTELEMETRY + "logging.lastResort = None", ""),
        (OPENTELEMETRY + "logging.getLogger('otel_quant').setLevel(logging.ERROR)", ""),
    ],
    ids=[
        "no handler", "opentelemetry's", "the program's", "both", "the program wants none",
        "python's last resort is off", "the level is above it",
    ],
)  # fmt: skip
def test_a_failure_is_logged_once_or_as_the_program_configured(
    tmp_path: Path, configured: str, printed: str
) -> None:
    script = f"import logging\n{configured}\n{FAILURE}{END}"

    assert run_script(tmp_path, script, PYTHONWARNINGS="ignore") == ("", printed)


def test_opentelemetrys_handler_gets_the_failure_as_well(tmp_path: Path) -> None:
    script = (
        f"import logging\n{OPENTELEMETRY}\n{FAILURE}\n"
        "print([item.log_record.body for item in records.get_finished_logs()])\n" + END
    )

    output, errors = run_script(tmp_path, script, PYTHONWARNINGS="ignore")

    assert (output, errors) == (f"{[LINE.removesuffix(chr(10))]}\n", LINE)


class Unreadable(ValueError):
    def __str__(self) -> str:
        raise RuntimeError("no text")


OF_A_WORKER = (
    "Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
    + '  File "worker.py", line 1, in _worker_loop\n    data = fetcher.fetch(index)\n           ^^^^^\n'
    * 20
    + "ValueError: bad\nsample\n"
)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no such\n\n  layer"), "no such layer"),
        (ValueError("x" * 600), "x" * 499 + "…"),
        (ValueError(), None),
        (Unreadable(), None),
        (
            ValueError(OF_A_WORKER),
            "Caught ValueError in DataLoader worker process 0. ValueError: bad sample",
        ),
        (
            ValueError(
                "https://me:word@host: password=word, db_password: 'word'; ['--token', 'word'] --pw word"
            ),
            "https://***@host: password=***, db_password: '***'; ['--token', '***'] --pw ***",
        ),
        (ValueError("sk-proj-abcd1234efgh5678 of hf_" + "a" * 34), "*** of ***"),
        (
            ValueError(
                "unknown key: conv1; unexpected token: ]; sk-learn-classifier-v2; --tokenizer gpt2"
            ),
            "unknown key: conv1; unexpected token: ]; sk-learn-classifier-v2; --tokenizer gpt2",
        ),
        (ValueError("Traceback (most recent call last):\n  all is cut"), None),
    ],
)
def test_the_message_of_an_exception_is_one_line_of_bounded_length_and_may_be_left_out(
    error: BaseException, message: str | None
) -> None:
    assert message_of(error, paths=True) == message
    assert message_of(error, paths=False) is None


def test_the_message_of_an_exception_has_the_first_that_others_were_raised_from() -> None:
    def raised_from(message: str, cause: BaseException | None) -> Exception:
        error = RuntimeError(message)
        error.__cause__ = cause
        return error

    first = KeyError("lost.onnx")
    first.__context__ = OSError("handled long before")
    because = "because of KeyError: 'lost.onnx'"
    last = raised_from("cannot quantize", raised_from("cannot load", first))
    assert message_of(last, paths=True) == f"cannot quantize; {because}"
    assert message_of(raised_from("no 'lost.onnx'", first), paths=True) == "no 'lost.onnx'"
    last.__cause__ = None
    last.__context__ = first
    assert message_of(last, paths=True) == "cannot quantize"


def test_the_message_of_a_group_has_the_first_of_its_exceptions() -> None:
    group = ExceptionGroup(
        "unhandled errors", [ExceptionGroup("within", [ValueError("no images")])]
    )
    text = "unhandled errors (1 sub-exception); because of ValueError: no images"
    assert message_of(group, paths=True) == text


def test_an_exception_without_a_message_has_the_line_that_raised_it() -> None:
    with pytest.raises(AssertionError) as raised:
        raise AssertionError
    message = message_of(raised.value, paths=True)
    assert message is not None
    assert re.fullmatch(r"raised at test_an_exception\w+ \(test_log.py:\d+\)", message)


def test_the_message_of_an_exception_has_the_full_disk_that_led_to_it() -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    wrapped = RuntimeError("could not save")
    wrapped.__cause__ = full
    within = ValueError("while it was handled")
    within.__context__ = wrapped
    because = "; because of OSError: [Errno 28] No space left on device"
    assert message_of(wrapped, paths=True) == f"could not save{because}"
    assert message_of(within, paths=True) == f"while it was handled{because}"
    within.__context__ = FileNotFoundError(errno.ENOENT, "No such file")
    assert message_of(within, paths=True) == "while it was handled"
    assert message_of(full, paths=True) == "[Errno 28] No space left on device"
    full.__cause__ = wrapped  # a circle ends
    assert message_of(wrapped, paths=True) == f"could not save{because}"
