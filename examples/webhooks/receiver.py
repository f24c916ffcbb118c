"""The customers' side: a web server that is sometimes busy, and refuses one event for good."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import threading
import time
from collections import Counter, defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from jobs import SECRET

PORT = int(os.environ.get("PORT", "8000"))

one_at_a_time = threading.Lock()
tries: Counter[str] = Counter()
accepted: dict[str, list[int]] = defaultdict(list)
known: set[str] = set()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        signature = "sha256=" + hmac.new(SECRET, body, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(signature, self.headers["Webhook-Signature"]):
            return self._answer(401)
        time.sleep(0.1)  # process the event
        with one_at_a_time:
            status = self._receive(self.headers["Webhook-Id"], self.path.strip("/"), json.loads(body)["number"])
        return self._answer(status)

    def _receive(self, id: str, customer: str, number: int) -> int:
        tries[id] += 1
        if customer == "bob" and number % 3 == 0 and tries[id] <= 2:
            print(f"{customer} #{number}: busy")
            return 503
        if customer == "eve" and number == 4:
            print(f"{customer} #{number}: not wanted")
            return 422
        if id in known:
            print(f"{customer} #{number}: had it already")  # the sender died before it got the answer
        else:
            known.add(id)
            accepted[customer].append(number)
            print(f"{customer} #{number}: accepted")
        return 200

    def do_GET(self) -> None:
        """Answer with the accepted numbers by customer, in order."""
        self._answer(200, json.dumps(accepted).encode())

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print no line for each request."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", PORT), Receiver).serve_forever()
