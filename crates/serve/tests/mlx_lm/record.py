"""Records what mlx_lm.server 0.32.2 answers to the requests in `requests.json`, into `answers.json`.

    python3 -m venv V && V/bin/pip install 'mlx-lm==0.32.2' 'mlx[cpu]' && V/bin/python record.py

The model is the scripted one of the tests of HTTP, in MLX: the vocabulary is bytes (and the marks of reasoning and calls,
which mlx-lm looks for there); a prompt with `say: TEXT` and a line's end is answered with that text and the end token,
every other one with the alphabet. Its caches hold the tokens themselves. What differs from run to run is left out: ids,
times, fingerprints, the counts of cached tokens; so are comments, which depend on time.
"""
import http.client, json, os, pathlib, re, sys, tempfile, threading, time, types
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
import numpy as np

HERE = pathlib.Path(__file__).parent
END = 256
MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
WIDTH = END + 1 + len(MARKS)
TEMPLATE = json.loads((HERE / "requests.json").read_text())["template"]


def spelling(byte):
    """A byte as byte-level vocabularies spell it."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    rest = [other for other in range(256) if other not in plain]
    return chr(byte) if byte in plain else chr(256 + rest.index(byte))


def answer(tokens):
    """What follows the tokens of a row."""
    marks = lambda token: MARKS[token - END - 1].encode("latin-1") if token > END else b""
    parts = [bytes([token]) if token < END else marks(token) for token in tokens]
    text = b"".join(parts)
    said = re.search(rb".*say: ([^\n]*)\n(.*)", text, re.S)
    if said:
        before, after = said.start(2), said.group(2)
        begin = before + (after.index(b"assistant: ") + len(b"assistant: ") if b"assistant: " in after else 0)
        rest = said.group(1)[len(text) - begin:]
        if not rest:
            return END
        for index, mark in enumerate(MARKS):
            if rest.startswith(mark.encode()):
                return END + 1 + index
        return rest[0]
    last = text[-1:]
    return ord("a") + (ord(last) - ord("a") + 1) % 26 if last.islower() else ord("a")


@dataclass
class ModelArgs:
    model_type: str

    @classmethod
    def from_dict(cls, config):
        return cls(config["model_type"])


class Model(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.args, self.model_type, self.unused, self.layers = args, args.model_type, mx.zeros((1,)), [nn.Identity()]

    def __call__(self, inputs, cache=None, **_):
        keys = (inputs + 1).astype(mx.float32)[:, None, :, None]
        past, _ = cache[0].update_and_fetch(keys, keys)
        rows = np.array(past)[:, 0, :, 0].astype(np.int64)
        logits = np.zeros((*inputs.shape, WIDTH), dtype=np.float32)
        for row, tokens in enumerate(rows):
            logits[row, -1, answer([int(token) - 1 for token in tokens if token > 0])] = 50
        return mx.array(logits)


def folder():
    """A model's folder."""
    path = pathlib.Path(tempfile.mkdtemp())
    special = lambda index, text: {"id": index, "content": text, "special": index == END, "single_word": False,
                                   "lstrip": False, "rstrip": False, "normalized": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    added = [special(END, "<|end|>")] + [special(END + 1 + index, mark) for index, mark in enumerate(MARKS)]
    vocabulary = {spelling(byte): byte for byte in range(256)}
    files = {
        "config.json": {"model_type": "scripted", "eos_token_id": END},
        "tokenizer.json": {"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": level,
                           "post_processor": None, "decoder": level,
                           "model": {"type": "BPE", "vocab": vocabulary, "merges": []}},
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>",
                                  "chat_template": TEMPLATE},
    }
    for name, value in files.items():
        (path / name).write_text(json.dumps(value))
    mx.save_safetensors(str(path / "model.safetensors"), {"unused": mx.zeros((1,))})
    return path


def stable(value):
    """Leaves out what differs from run to run."""
    if isinstance(value, list):
        return [stable(item) for item in value]
    if isinstance(value, dict):
        dropped = {"id": str, "created": int, "system_fingerprint": str, "cached_tokens": int}
        return {key: None if key in dropped and isinstance(item, dropped[key]) else stable(item)
                for key, item in value.items()}
    return value


def exchange(port, request):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = request.get("text") or (json.dumps(request["body"]) if "body" in request else None)
    connection.request(request.get("method", "POST"), request["path"], body)
    response = connection.getresponse()
    data = response.read().decode()
    result = {"status": response.status, "type": response.getheader("Content-Type")}
    if result["type"] == "text/event-stream":
        events = [event[6:] for event in data.split("\n\n") if event.startswith("data: ")]
        result["events"] = [event if event == "[DONE]" else stable(json.loads(event)) for event in events]
    else:
        try:
            result["json"] = stable(json.loads(data))
        except ValueError:
            result["text"] = data
    return result


def main():
    module = types.ModuleType("mlx_lm.models.scripted")
    module.Model, module.ModelArgs = Model, ModelArgs
    sys.modules[module.__name__] = module
    os.environ["HF_HUB_OFFLINE"] = "1"
    from mlx_lm import server
    from mlx_lm._version import __version__
    assert __version__ == "0.32.2", __version__
    port = 18480
    sys.argv = ["mlx_lm.server", "--model", str(folder()), "--port", str(port), "--log-level", "ERROR"]
    threading.Thread(target=server.main, daemon=True).start()
    for _ in range(100):
        try:
            exchange(port, {"method": "GET", "path": "/health"})
            break
        except OSError:
            time.sleep(0.2)
    requests = json.loads((HERE / "requests.json").read_text())["requests"]
    answers = [exchange(port, request) for request in requests]
    lines = ",\n".join(json.dumps(answer, ensure_ascii=False, separators=(",", ":")) for answer in answers)
    (HERE / "answers.json").write_text(f"[\n{lines}\n]\n")
    os._exit(0)


main()
