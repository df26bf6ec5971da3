"""One long chat in Open WebUI's own page, in a real browser: what a person with a browser would see.

    chat.py URL MODEL TURNS WORDS [SCREENSHOTS]

Opens Open WebUI at URL with MODEL, types TURNS messages of WORDS words each into one chat and waits for every
answer to be finished before it types the next. With a directory for SCREENSHOTS it keeps pictures of the start, the
middle and the end there. Prints one JSON object:

    model, chat          what the page says the model is, and the chat's id
    answers              how many messages got an answer while the chat went on
    in_page, in_store    how many of them there are after the page was loaded anew, and in Open WebUI's own store
    errors, toasts       what the page showed in place of an answer, and messages that popped up
    store_errors         what Open WebUI's store has in place of, or besides, an answer
    console              errors on the browser's console
    title                the chat's name: what the model made of it, or the first message
    seconds              for each turn, from sending to the finished answer
    last                 the text of the last answer

A run stops at the first turn without an answer: the exit code is 1 then, and 0 when every message was answered.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
import time
import urllib.parse

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service

# The messages that are drawn now, oldest first. An error stands where the answer would, but is no Markdown.
MESSAGES = """
return [...document.querySelectorAll('[id^="message-"]')]
  .filter(m => m.querySelector('.chat-user, .chat-assistant'))
  .map(m => {
    const body = m.querySelector('.chat-user, .chat-assistant');
    const prose = [...body.querySelectorAll('.markdown-prose')].map(p => p.innerText.trim()).join('\\n').trim();
    return {
      id: m.id.slice('message-'.length),
      user: body.classList.contains('chat-user'),
      text: prose,
      other: prose ? '' : body.innerText.trim(),
      finished: m.querySelector('.copy-response-button') !== null,
    };
  });
"""
TOASTS = "return [...document.querySelectorAll('[data-sonner-toast]')].map(t => t.innerText.trim())"
STORED = """
const done = arguments[arguments.length - 1];
fetch('/api/v1/chats/' + arguments[0], {headers: {Authorization: 'Bearer ' + localStorage.token}})
  .then(answer => answer.json()).then(done, error => done({error: String(error)}));
"""
WORDS = (
    "the harbour lies quiet under a grey sky while boats unload crates of salted fish rope timber and glass "
    "and the keeper writes every weight into a long book before the tide turns and the wind comes round"
).split()


def message(turn, words):
    """Plain text that differs from turn to turn and from word to word, so that nothing of it repeats exactly."""
    body = [WORDS[(turn * 7 + n * (1 + turn % 5)) % len(WORDS)] for n in range(words)]
    for n in range(11, words, 12):
        body[n] += f" {turn * 100 + n}."
    return f"Note {turn}: {' '.join(body)} What should the keeper do next?"


def wait(what, condition, seconds=180):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            found = condition()
            if found:
                return found
        except StaleElementReferenceException:
            pass  # the page was redrawn while we looked
        time.sleep(0.1)
    raise TimeoutError(f"waited {seconds} s for {what}")


class Page:
    def __init__(self, profile):
        options = webdriver.ChromeOptions()
        options.binary_location = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        for flag in (
            "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
            "disable-component-update disable-sync window-size=1280,900"
        ).split():
            options.add_argument(f"--{flag}")
        options.add_argument(f"--user-data-dir={profile}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = os.environ.get("CHROMEDRIVER", "/usr/bin/chromedriver")
        self.driver = webdriver.Chrome(options=options, service=Service(driver))

    def all(self, css):
        return self.driver.find_elements("css selector", css)

    def shown(self, css):
        return next((e for e in self.all(css) if e.is_displayed()), None)

    def messages(self):
        return self.driver.execute_script(MESSAGES)

    def busy(self):
        return self.shown('form button[aria-label="Stop"]') is not None

    def open(self, url, model):
        # Named in the address, it is chosen from the start: the menu draws only some of a long list.
        name = model if ":" in model else f"{model}:latest"
        self.driver.get(f"{url}/?models={urllib.parse.quote(name)}")
        wait("the input", lambda: self.shown("#chat-input"))
        # The news of the release, once for each new user; it comes up a moment after the page.
        end = time.monotonic() + 5
        while time.monotonic() < end:
            for button in self.driver.find_elements("xpath", "//button[contains(., 'Okay, Let')]"):
                button.click()
                wait("the news to go", lambda: not self.all("[role=dialog]"))
                return
            time.sleep(0.2)

    def chosen(self, model):
        """What the page says the model is."""
        button = wait("the choice of models", lambda: self.shown("#model-selector-model-button"))
        wait(f"the model {model} to be chosen", lambda: model in button.text)
        return button.text.strip()

    def send(self, text):
        """Types it, sends it, and returns the finished message that stands below it."""
        before = {m["id"] for m in self.messages()}
        self.shown("#chat-input").click()
        self.driver.execute_cdp_cmd("Input.insertText", {"text": text})
        wait("the button to send", lambda: self.shown("#send-message-button:not([disabled])")).click()

        def answer():
            drawn = self.messages()
            last = drawn[-1] if drawn else None
            fresh = last and not last["user"] and last["id"] not in before and last["finished"]
            return last if fresh and not self.busy() else None

        return wait("the answer", answer, 600)

    def everything(self):
        """All messages of the chat. The page has the latest only, until one scrolls up, and draws what is in sight."""
        counts = []
        while len(counts) < 3 or len(set(counts[-3:])) > 1:
            # Down and up again: it takes a movement for older ones to be loaded.
            for where in (1_000_000, 0):
                self.driver.execute_script(f"document.querySelector('#messages-container').scrollTop = {where}")
                time.sleep(0.8)
            counts.append(len(self.messages()))
        return [self.drawn(m["id"]) for m in self.messages()]

    def drawn(self, id):
        self.driver.execute_script("document.getElementById('message-' + arguments[0]).scrollIntoView()", id)

        def it():
            found = next(m for m in self.messages() if m["id"] == id)
            return found if found["text"] or found["other"] else None

        return wait(f"message {id} to be drawn", it, 10)


def drive(page, url, model, turns, words, picture):
    saw = {"answers": 0, "errors": [], "toasts": [], "seconds": []}
    page.open(url, model)
    saw["model"] = page.chosen(model)
    for turn in range(1, turns + 1):
        begun = time.monotonic()
        got = page.send(message(turn, words))
        saw["seconds"].append(round(time.monotonic() - begun, 1))
        saw["toasts"] += [text for text in page.driver.execute_script(TOASTS) if text not in saw["toasts"]]
        if turn == 1:
            picture("start")
        if turn == (turns + 1) // 2:
            picture("middle")
        if not got["text"]:
            saw["errors"].append(got["other"])
            picture("error")
            break
        saw["answers"] += 1
        saw["last"] = got["text"]
    picture("end")
    saw["chat"] = page.driver.current_url.rsplit("/c/", 1)[-1]
    page.driver.get(page.driver.current_url)
    wait("the chat to be drawn anew", page.messages)
    saw["in_page"] = sum(1 for m in page.everything() if not m["user"] and m["text"])
    stored = page.driver.execute_async_script(STORED, saw["chat"])
    history = (stored.get("chat") or {}).get("history", {}).get("messages", {}).values()
    saw["in_store"] = sum(1 for m in history if m["role"] == "assistant" and m.get("content"))
    saw["store_errors"] = [m["error"] for m in history if m.get("error")]
    saw["title"] = stored.get("title")
    saw["console"] = [line["message"] for line in page.driver.get_log("browser") if line["level"] == "SEVERE"]
    return saw


def main():
    if len(sys.argv) not in (5, 6):
        sys.exit(__doc__)
    url, model, turns, words = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    pictures = sys.argv[5] if len(sys.argv) == 6 else None
    profile = tempfile.mkdtemp(prefix="open-webui-browser-")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the browser ends with us
    page = Page(profile)

    def picture(name):
        if pictures:
            os.makedirs(pictures, exist_ok=True)
            page.driver.save_screenshot(os.path.join(pictures, f"open-webui-{name}.png"))

    try:
        saw = drive(page, url, model, turns, words, picture)
    except BaseException:
        picture("stuck")
        raise
    finally:
        page.driver.quit()
        shutil.rmtree(profile, ignore_errors=True)
    print(json.dumps(saw, ensure_ascii=False))
    return 0 if saw["answers"] == turns else 1


if __name__ == "__main__":
    sys.exit(main())
