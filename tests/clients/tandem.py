"""A tiny model and a running server, for the tours in this folder.

`Server` is a context; from the command line it runs another program beside two servers, whose addresses that program finds
in `TANDEM_URL` and, of one that wants the key `KEY`, in `TANDEM_KEYED_URL`:

    python tandem.py COMMAND [ARGUMENT...]

The program under test is `TANDEM_PROGRAM`. The model is of random weights with a tokeniser whose token `i` below 256 is
byte `i`: what it says means nothing, and is the same each time at temperature 0.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

FIXTURE = pathlib.Path(__file__).parents[2] / "fixtures" / "tiny" / "llama"

KEY = "sk-tour"

TEMPLATE = """\
{%- for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor %}
{%- if add_generation_prompt %}assistant: {% endif %}"""


def tokenizer():
    """Byte-level without merges; ids from 256 on are filler words."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain} | {byte: chr(256 + rank) for rank, byte in enumerate(others)}
    vocabulary = {letters[byte]: byte for byte in range(256)} | {f"word{id}": id for id in range(256, 512)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": vocabulary, "merges": []},
    }


def make_model(folder):
    """Writes the model's files."""
    for name in ["config.json", "model.safetensors"]:
        shutil.copy(FIXTURE / name, folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (folder / "chat_template.jinja").write_text(TEMPLATE)


class Server:
    """`tandem serve` of the tiny model on a free port of this machine, until the context is left."""

    def __init__(self, *arguments):
        self.arguments = arguments

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tandem-clients-")
        model = pathlib.Path(self.folder.name) / "tiny"
        model.mkdir()
        make_model(model)
        program = [os.environ["TANDEM_PROGRAM"], "serve", "--backend", "cpu", "--port", "0", "--model", str(model)]
        self.process = subprocess.Popen([*program, *self.arguments], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if found := re.search(r"http://\S+", line):
                self.url = found[0]
                # Read on, so that the server never meets a closed pipe.
                threading.Thread(target=lambda: list(self.process.stdout), daemon=True).start()
                return self
        raise RuntimeError("the server did not say where it listens")

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.folder.cleanup()


if __name__ == "__main__":
    with Server() as server, Server("--api-key", KEY) as keyed:
        environment = {**os.environ, "TANDEM_URL": server.url, "TANDEM_KEYED_URL": keyed.url, "TANDEM_KEY": KEY}
        sys.exit(subprocess.run(sys.argv[1:], env=environment).returncode)
