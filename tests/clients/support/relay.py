"""The development relay behind a recording proxy; tinyagent is given the proxy's URL.

As a program (`python3 -m support.relay [TOOL=SECONDS …]`) it prints that URL and serves until its stdin ends,
for suites in other languages.
"""

import json
import os
import subprocess
import sys
from urllib.parse import urlsplit

from support.proxy import Proxy


class Relay(Proxy):
    """A running relay program with its options, and the proxy in front of it."""

    def __init__(self, *options):
        self._process = subprocess.Popen(
            [os.environ["TINYAGENT_RELAY"], *options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        url = json.loads(self._process.stdout.readline())["url"]
        super().__init__(urlsplit(url).netloc)

    def stop(self):
        """Ends relay and proxy: from now on nothing answers at the URL."""
        super().stop()
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


def main():
    """Serves until stdin ends."""
    with Relay() as relay:
        for argument in sys.argv[1:]:
            tool, seconds = argument.split("=")
            relay.delay(tool, float(seconds))
        print(json.dumps({"url": relay.url}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
