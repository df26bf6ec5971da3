"""What is the same for every library: the questions, the tool, the schema, and how what was seen is told.

Each library asks in its own way (`clients/`); here is only what would otherwise be written five times and drift apart.
"""

import re

import pydantic

TIMEOUT_SECONDS = 120

SYSTEM = "You are the harbour master. Answer in one sentence."
QUESTION = "What do you wish a crew that sails at dawn?"
SECOND_QUESTION = "And one that comes home at night?"

TOOL = "get_tide"
TOOL_ABOUT = "Tells when the water is high in a harbour."
TOOL_QUESTION = "When is the water high in Brest?"
TOOL_ARGUMENTS = {"harbour": "Brest"}
TOOL_RESULT = "High water at 06:42."
TOOL_PARAMETERS = {
    "type": "object",
    "properties": {"harbour": {"type": "string", "description": "The name of the harbour."}},
    "required": ["harbour"],
}

THINKING_QUESTION = "Is it wise to sail today?"
IMAGE_QUESTION = "What is in this picture?"
EMBEDDED = ["The tide turns at noon", "Nets are mended ashore"]
CANCEL_QUESTION = "Tell me about the sea, and do not stop."
PIECES_BEFORE_LEAVING = 3

FREIGHT_QUESTION = "The boat Marlin carries 12 crates. Answer in JSON: the name of the boat, the number of crates."

UNKNOWN_MODEL = "no-such-model"


class Freight(pydantic.BaseModel):
    """The schema of `structured`."""

    boat: str
    crates: int


def conversation():
    """The first turn of `chat`; OpenAI's shape of it is understood by nearly all."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]


def second_turn(answer):
    return [{"role": "assistant", "content": answer}, {"role": "user", "content": SECOND_QUESTION}]


def user(text):
    return [{"role": "user", "content": text}]


def function_tool():
    """The tool as OpenAI describes one."""
    return {"type": "function", "function": {"name": TOOL, "description": TOOL_ABOUT, "parameters": TOOL_PARAMETERS}}


def saw_chat(first, second, reason, prompt_tokens):
    assert first and second, "an answer was empty"
    return {"first": first, "second": second, "reason": reason, "prompt_tokens": prompt_tokens}


def saw_streaming(pieces, reason):
    """Some pieces carry no text but something else, and are not counted."""
    texts = [piece for piece in pieces if piece]
    assert texts, "nothing was said"
    return {"text": "".join(texts), "pieces": len(texts), "reason": reason}


def saw_tools(call, text, streamed_call):
    """Calls are pairs of a name and arguments. The model always makes the same one."""
    for made in (call, streamed_call):
        assert made == (TOOL, TOOL_ARGUMENTS), f"the call was {made}"
    assert text, "there was no answer after the result"
    name, arguments = call
    streamed_name, streamed_arguments = streamed_call
    return {
        "call": {"name": name, "arguments": arguments},
        "text": text,
        "streamed_call": {"name": streamed_name, "arguments": streamed_arguments},
    }


def saw_structured(freight):
    """The sorted names and types of what was parsed, but not the values: a small model makes them up."""
    assert isinstance(freight, Freight), f"it was not parsed: {freight}"
    return {name: type(value).__name__ for name, value in sorted(dict(freight).items())}


def saw_thinking(thinking, text, streamed_thinking, streamed_text):
    assert thinking and text and streamed_thinking and streamed_text, "no thinking, or no answer"
    return {
        "thinking": thinking,
        "text": text,
        "streamed_thinking": streamed_thinking,
        "streamed_text": streamed_text,
    }


def saw_images(text):
    assert text, "the answer was empty"
    return {"text": text}


def saw_embeddings(embeddings):
    assert len(embeddings) == len(EMBEDDED), f"{len(embeddings)} vectors for {len(EMBEDDED)} inputs"
    return {
        "vectors": len(embeddings),
        "length": len(embeddings[0]),
        "beginnings": [[round(number, 4) for number in vector[:2]] for vector in embeddings],
    }


def data_url(image):
    return f"data:image/png;base64,{image}"


def thrown(attempt, kind, tell):
    """What `attempt` throws: its class, and what `tell` finds in it. Whatever is not a `kind` is a failure."""
    try:
        attempt()
    except kind as error:
        return {"class": type(error).__name__, **tell(error)}
    raise AssertionError("nothing was thrown")


def names_count_and_limit(refusal):
    """Checks that a refusal says what was counted and what the limit is."""
    message = refusal["message"]
    assert re.search(r"\b\d+ tokens\b", message) and re.search(r"\blimit is \d+", message), message
    return refusal


def climb(ladder, plain, streamed):
    """One conversation that outgrows its window: each answer goes back in the history, every third turn is streamed."""
    history = []
    for turn, text in enumerate(ladder, start=1):
        history += user(text)
        answer = streamed(history) if turn % 3 == 0 else plain(history)
        assert answer, f"the answer of turn {turn} was empty"
        history += [{"role": "assistant", "content": answer}]
    return {"answers": len(ladder), "empty": 0}


def first_pieces(pieces):
    """Reads as many pieces of text as `cancel` wants, and leaves the rest where it is."""
    read = 0
    for piece in pieces:
        read += bool(piece)
        if read == PIECES_BEFORE_LEAVING:
            return {"pieces": read}
    raise AssertionError(f"the answer ended after {read} pieces")
