"""An HTTP proxy that records each exchange and can make an answer wait.

It passes requests on byte for byte, Host included, so that a proof for its own URL still fits behind it. It
never makes an answer of its own: what is behind it and gone is gone for the client too.
"""

import http.client
import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Headers of one connection alone (RFC 9110, 7.6.1), and those that the proxy writes itself.
_NOT_PASSED_ON = {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}


@dataclass
class Exchange:
    """One request as it came, and the answer to it."""

    method: str
    path: str
    headers: list
    body: bytes
    status: int = 0
    answer: bytes = b""

    def header(self, name):
        """The value of the one header with this name, whatever its case."""
        (value,) = [v for n, v in self.headers if n.lower() == name.lower()]
        return value

    @property
    def message(self):
        """The JSON body, or an empty object."""
        return json.loads(self.body) if self.body else {}

    @property
    def tool(self):
        """The called tool, or None."""
        message = self.message
        return message["params"]["name"] if message.get("method") == "tools/call" else None

    @property
    def arguments(self):
        """The arguments of the called tool."""
        return self.message["params"]["arguments"]

    @property
    def is_published(self):
        """Whether it is a call that carries a signed event."""
        return self.tool is not None and "event" in self.arguments


class Proxy:
    """A running proxy before `upstream`, a host and port; a context manager."""

    def __init__(self, upstream):
        self.exchanges = []
        self._upstream = upstream
        self._delays = {}
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Ends the proxy: from now on nothing answers at its URL."""
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    def delay(self, tool, seconds, published=False):
        """Holds each answer to this tool back for so long, or until `release`; either the answers to its
        plain calls, or those to calls with a signed event."""
        self._released.clear()
        self._delays[tool, published] = seconds

    def release(self):
        """Lets every answer go, and ends the delays."""
        self._delays.clear()
        self._released.set()

    def calls(self, tool):
        """The calls of one tool so far."""
        return [exchange for exchange in list(self.exchanges) if exchange.tool == tool]

    def published(self, tool):
        """The calls of one tool that carried a signed event."""
        return [call for call in self.calls(tool) if call.is_published]

    def outgoing(self, exchange):
        """Path, headers and body of what is sent upstream."""
        return exchange.path, exchange.headers, exchange.body

    def incoming(self, answer):
        """The body that the client gets."""
        return answer

    def pass_on(self, exchange):
        """Asks upstream, fills in status and answer, and returns the answer's headers."""
        path, headers, body = self.outgoing(exchange)
        connection = http.client.HTTPConnection(self._upstream, timeout=60)
        try:
            connection.putrequest(exchange.method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                connection.putheader(name, value)
            connection.endheaders(body)
            response = connection.getresponse()
            exchange.status, exchange.answer = response.status, self.incoming(response.read())
            headers = [(n, v) for n, v in response.getheaders() if n.lower() not in _NOT_PASSED_ON]
        finally:
            connection.close()
        wait = self._delays.get((exchange.tool, exchange.is_published))
        if wait:
            self._released.wait(wait)
        return headers


def _handler(proxy):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _serve(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            exchange = Exchange(self.command, self.path, self.headers.items(), body)
            proxy.exchanges.append(exchange)
            try:
                headers = proxy.pass_on(exchange)
                self.send_response_only(exchange.status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(exchange.answer)))
                self.end_headers()
                self.wfile.write(exchange.answer)
            except OSError:
                self.close_connection = True

        do_GET = do_POST = _serve

        def log_message(self, *_):
            pass

    return Handler
