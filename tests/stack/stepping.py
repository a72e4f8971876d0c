"""Takes short steps until its standard input ends: what an outage interrupts in the stack's tests."""

import sys
import threading
import time

import otel_quant


def main() -> None:
    """Prints at the end how many steps there were."""
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    count = 0
    while not over.is_set():
        with otel_quant.step("short"):
            time.sleep(0.5)
        count += 1
    print(count, flush=True)


if __name__ == "__main__":
    main()
