"""Drives one library through every feature, straight at Ollama and through Loadline, and prints what it saw.

`drive.py CLIENT [FEATURE...]` reads a job from standard input and writes JSON lines to standard output; the README of
the directory above says what is in both. It judges nothing: whether the places agree is for whoever reads the lines.
"""

import importlib
import importlib.metadata
import json
import logging
import os
import re
import signal
import sys
import traceback

# Compiled files have no place in a source tree.
sys.dont_write_bytecode = True

CLIENTS = {
    "ollama": "clients.ollama_client",
    "openai": "clients.openai_client",
    "anthropic": "clients.anthropic_client",
    "langchain-ollama": "clients.langchain_client",
    "litellm": "clients.litellm_client",
}

FEATURES = [
    "chat",
    "streaming",
    "tools",
    "structured",
    "thinking",
    "images",
    "embeddings",
    "list",
    "show",
    "pull",
    "unknown model",
    "bad request",
    "refused",
    "cancel",
    "ladder",
]

# What Ollama alone does not refuse, would never end by itself, or would cut without a word.
ONLY_THROUGH = {"refused", "cancel", "ladder"}

# A feature that takes longer than this is stuck: everything here takes seconds.
LIMIT_SECONDS = 120

# An error may quote a whole request; the beginning says what is wrong.
ERROR_CHARACTERS = 2000

# Settings of whoever runs this, which the libraries would pick up by themselves: addresses, keys, tracing.
FOREIGN_SETTINGS = ("OLLAMA_", "OPENAI_", "ANTHROPIC_", "LANGCHAIN_", "LANGSMITH_", "LITELLM_")


class TookTooLong(BaseException):
    """The time limit of a feature. Not an `Exception`, so that no library takes it for an error of its own."""


def main():
    wanted = sys.argv[2:] or FEATURES
    if len(sys.argv) < 2 or sys.argv[1] not in CLIENTS or not set(wanted) <= set(FEATURES):
        names = f"clients: {', '.join(CLIENTS)}\nfeatures: {', '.join(FEATURES)}"
        sys.exit(f"usage: drive.py CLIENT [FEATURE...] < job\n{names}")
    name = sys.argv[1]
    lines = keep_noise_off_standard_output()
    forget_foreign_settings()
    signal.signal(signal.SIGALRM, on_alarm)
    job = json.load(sys.stdin)
    client = importlib.import_module(CLIENTS[name])

    def put(line):
        lines.write(json.dumps(line, ensure_ascii=False) + "\n")
        lines.flush()

    put({"client": name, "language": "Python", "version": importlib.metadata.version(name)})
    for feature in wanted:
        if feature in client.ABSENT:
            put({"feature": feature, "absent": client.ABSENT[feature]})
            continue
        for at in ["through"] if feature in ONLY_THROUGH else ["direct", "through"]:
            put({"feature": feature, "at": at, **run(client.FEATURES[feature], job[at], job)})


def run(feature, url, job):
    """What one feature saw at one place, or what it threw."""
    try:
        signal.alarm(LIMIT_SECONDS)
        try:
            saw = feature(url, job)
        finally:
            signal.alarm(0)
        return {"ok": True, "saw": saw}
    except (Exception, TookTooLong) as error:
        traceback.print_exc()
        return {"ok": False, "error": comparable(f"{type(error).__name__}: {error}", url)}


def comparable(text, url):
    """An error without what is different each time: the address and the number that a request was given."""
    return re.sub(r"\breq_\w+", "req_", text.replace(url, "ADDRESS"))[:ERROR_CHARACTERS]


def on_alarm(_signal, _frame):
    raise TookTooLong(f"not done after {LIMIT_SECONDS} seconds")


def keep_noise_off_standard_output():
    """Sends what libraries print to standard error, and returns the real standard output for our own lines."""
    ours = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    return ours


def forget_foreign_settings():
    for name in list(os.environ):
        if name.startswith(FOREIGN_SETTINGS) or name.lower().endswith("_proxy"):
            del os.environ[name]


if __name__ == "__main__":
    main()
