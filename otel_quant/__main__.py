"""``python -m otel_quant``: the ``otel-quant`` command where its script is not on the path."""

from __future__ import annotations

import sys

from otel_quant.cli import main

sys.exit(main())
