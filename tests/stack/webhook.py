"""A webhook that Alertmanager tells."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Webhook:
    """Somebody whom Alertmanager tells.

    Attributes:
        url: Where.
        told: What it was told: names and services of alerts that fire.
    """

    def __init__(self) -> None:
        told: set[tuple[str, str]] = set()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                for alert in message["alerts"]:
                    if alert["status"] == "firing":
                        told.add((alert["labels"]["alertname"], alert["labels"]["job"]))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.told = told
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
