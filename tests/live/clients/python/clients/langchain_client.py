"""LangChain's library for Ollama, on Ollama's own routes. It streams every answer, also those that it gives whole."""

import contextlib

import langchain_ollama
import ollama
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool

import same


def connect(url, model, **settings):
    timeout = {"timeout": same.TIMEOUT_SECONDS}
    return langchain_ollama.ChatOllama(base_url=url, model=model, client_kwargs=timeout, **settings)


@tool
def get_tide(harbour: str) -> str:
    """Tells when the water is high in a harbour."""
    return same.TOOL_RESULT


def chat(url, job):
    model = connect(url, job["models"]["say"])
    first = model.invoke(same.conversation())
    second = model.invoke(same.conversation() + same.second_turn(first.content))
    prompt_tokens = [answer.usage_metadata["input_tokens"] for answer in (first, second)]
    return same.saw_chat(first.content, second.content, second.response_metadata["done_reason"], prompt_tokens)


def streaming(url, job):
    parts = list(connect(url, job["models"]["say"]).stream(same.conversation()))
    (reason,) = [part.response_metadata["done_reason"] for part in parts if "done_reason" in part.response_metadata]
    return same.saw_streaming([part.content for part in parts], reason)


def tools(url, job):
    model = connect(url, job["models"]["call"]).bind_tools([get_tide])
    messages = [HumanMessage(same.TOOL_QUESTION)]
    asked = model.invoke(messages)
    (made,) = asked.tool_calls
    answer = model.invoke([*messages, asked, get_tide.invoke(made)])
    (streamed,) = joined(model.stream(messages)).tool_calls
    return same.saw_tools((made["name"], made["args"]), answer.content, (streamed["name"], streamed["args"]))


def joined(parts):
    """A streamed message put together, as LangChain has it: by adding its parts."""
    whole = None
    for part in parts:
        whole = part if whole is None else whole + part
    return whole


def structured(url, job):
    model = connect(url, job["models"]["free"], temperature=0).with_structured_output(same.Freight)
    return same.saw_structured(model.invoke(same.FREIGHT_QUESTION))


def thinking(url, job):
    model = connect(url, job["models"]["think"], reasoning=True)
    plain = model.invoke(same.THINKING_QUESTION)
    streamed = joined(model.stream(same.THINKING_QUESTION))
    return same.saw_thinking(thoughts(plain), plain.content, thoughts(streamed), streamed.content)


def thoughts(message):
    return message.additional_kwargs.get("reasoning_content")


def images(url, job):
    picture = {"type": "image", "base64": job["image"], "mime_type": "image/png"}
    message = HumanMessage([{"type": "text", "text": same.IMAGE_QUESTION}, picture])
    return same.saw_images(connect(url, job["models"]["sight"]).invoke([message]).content)


def embeddings(url, job):
    timeout = {"timeout": same.TIMEOUT_SECONDS}
    model = langchain_ollama.OllamaEmbeddings(base_url=url, model=job["models"]["say"], client_kwargs=timeout)
    return same.saw_embeddings(model.embed_documents(same.EMBEDDED))


def tell(error):
    return {"status": error.status_code, "message": error.error}


def thrown_by(url, model, messages, **settings):
    return same.thrown(lambda: connect(url, model).invoke(messages, **settings), ollama.ResponseError, tell)


def unknown_model(url, job):
    return thrown_by(url, same.UNKNOWN_MODEL, same.conversation())


def bad_request(url, job):
    return thrown_by(url, job["models"]["say"], same.conversation(), options={"temperature": "hot"})


def refused(url, job):
    return same.names_count_and_limit(thrown_by(url, job["models"]["small"], same.user(job["giant"])))


def cancel(url, job):
    stream = connect(url, job["models"]["endless"]).stream(same.CANCEL_QUESTION)
    with contextlib.closing(stream):
        return same.first_pieces(part.content for part in stream)


def ladder(url, job):
    model = connect(url, job["models"]["small"])

    def plain(history):
        return model.invoke(history).content

    def streamed(history):
        return joined(model.stream(history)).content

    return same.climb(job["ladder"], plain, streamed)


ABSENT = {
    "list": "LangChain has no such call",
    "show": "LangChain has no such call",
    "pull": "LangChain has no such call",
}

FEATURES = {
    "chat": chat,
    "streaming": streaming,
    "tools": tools,
    "structured": structured,
    "thinking": thinking,
    "images": images,
    "embeddings": embeddings,
    "unknown model": unknown_model,
    "bad request": bad_request,
    "refused": refused,
    "cancel": cancel,
    "ladder": ladder,
}
