"""What a suite needs to start tinyagent as a host does: the command, and a throw-away key."""

import json
import os
import subprocess

KEY_VARIABLE = "TINY_PRIVATE_KEY"
PROGRAM = os.environ.get("TINYAGENT", "tinyagent")
# The tools that only read, without `tiny_diagnose` (contract, section 3).
READ_TOOLS = 17


class Key:
    """A key made for one suite; its secret goes into the environment of the server and nowhere else."""

    def __init__(self):
        made = json.loads(subprocess.check_output([PROGRAM, "keygen"]))
        self.secret, self.public, self.nsec = made["secret"], made["pubkey"], made["nsec"]

    def environment(self):
        """The server's variables beside those that the host passes on."""
        return {KEY_VARIABLE: self.secret}


def arguments(url, *options):
    """The arguments of a server for this relay."""
    return ["mcp", "--relay", url, *options]
