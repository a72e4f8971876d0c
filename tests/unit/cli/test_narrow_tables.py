"""Tables in a terminal that is too narrow for them."""

from __future__ import annotations

import pytest

from otel_quant.views.former_document import Table, as_text

TABLE = Table(
    ("STEP", "START", "TIME", "READ", "STATUS"),
    ("", "s", "s", "MiB", ""),
    (("Calibration", "0.00", "11.25", "1.00", "ok"), ("Export", "11.25", "0.50", "-", "failed")),
    spare=("GPU START", "START", "READ"),
)


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (
            39,
            """\
STEP         START   TIME  READ  STATUS
                 s      s   MiB
-----------  -----  -----  ----  ------
Calibration   0.00  11.25  1.00  ok
Export       11.25   0.50     -  failed
""",
        ),
        (
            38,
            """\
STEP          TIME  READ  STATUS
                 s   MiB
-----------  -----  ----  ------
Calibration  11.25  1.00  ok
Export        0.50     -  failed
(START: in a wider terminal)
""",
        ),
        (
            10,
            """\
STEP          TIME  STATUS
                 s
-----------  -----  ------
Calibration  11.25  ok
Export        0.50  failed
(START, READ: in a wider terminal)
""",
        ),
    ],
)
def test_spare_columns_are_left_out_until_the_table_fits(width: int, expected: str) -> None:
    assert as_text([TABLE], width) == expected


def test_texts_stay_on_the_left_where_one_of_them_is_left_out() -> None:
    table = Table(
        ("MODEL", "CONFIG", "STATUS", "TIME"),
        ("",) * 4,
        (("a", "long", "ok", "1"), ("bert", "-", "failed", "2")),
        left=3,
        spare=("CONFIG",),
    )
    assert as_text([table], 20) == (
        """\
MODEL  STATUS  TIME
-----  ------  ----
a      ok      1
bert   failed  2
(CONFIG: in a wider terminal)
"""
    )
