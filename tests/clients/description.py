"""Holds a server of the tiny model to its own description: Schemathesis makes requests of `/openapi.json`, right and wrong
ones, the same each time. Every answer has a status that is described, and none but 501 is a failure of the server.
"""

import pathlib
import subprocess
import sys
import tempfile

from tandem import Server

SETTINGS = """\
[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "501"]
"""

OPTIONS = ["--seed", "20262", "--max-examples", "20", "--phases", "coverage,fuzzing",
           "--checks", "not_a_server_error,status_code_conformance", "--request-timeout", "30",
           "--suppress-health-check", "all", "--warnings", "off", "--no-color"]

if __name__ == "__main__":
    # Answers of a few tokens tell as much as long ones.
    with Server("--max-tokens", "8") as server, tempfile.TemporaryDirectory(prefix="tandem-description-") as folder:
        settings = pathlib.Path(folder) / "schemathesis.toml"
        settings.write_text(SETTINGS)
        tool = pathlib.Path(sys.executable).with_name("schemathesis")
        command = [tool, "--config-file", settings, "run", f"{server.url}/openapi.json", *OPTIONS]
        sys.exit(subprocess.run(command, cwd=folder).returncode)
