"""Ollama's own library, on Ollama's own routes."""

import contextlib
import functools

import ollama

import same


@functools.cache
def connect(url):
    return ollama.Client(host=url, timeout=same.TIMEOUT_SECONDS)


def get_tide(harbour: str) -> str:
    """
    Tells when the water is high in a harbour.

    Args:
        harbour: The name of the harbour.
    """
    return same.TOOL_RESULT


def chat(url, job):
    client, model = connect(url), job["models"]["say"]
    first = client.chat(model=model, messages=same.conversation())
    history = same.conversation() + same.second_turn(first.message.content)
    second = client.chat(model=model, messages=history)
    prompt_tokens = [first.prompt_eval_count, second.prompt_eval_count]
    return same.saw_chat(first.message.content, second.message.content, second.done_reason, prompt_tokens)


def streaming(url, job):
    parts = list(connect(url).chat(model=job["models"]["say"], messages=same.conversation(), stream=True))
    assert parts[-1].done, "the stream ended too early"
    return same.saw_streaming([part.message.content for part in parts], parts[-1].done_reason)


def tools(url, job):
    client, model = connect(url), job["models"]["call"]
    messages = same.user(same.TOOL_QUESTION)
    asked = client.chat(model=model, messages=messages, tools=[get_tide]).message
    (made,) = asked.tool_calls
    result = {"role": "tool", "tool_name": made.function.name, "content": get_tide(**made.function.arguments)}
    answer = client.chat(model=model, messages=[*messages, asked, result], tools=[get_tide])
    parts = client.chat(model=model, messages=messages, tools=[get_tide], stream=True)
    (streamed,) = [made for part in parts for made in part.message.tool_calls or []]
    return same.saw_tools(told(made), answer.message.content, told(streamed))


def told(made):
    return made.function.name, dict(made.function.arguments)


def structured(url, job):
    answer = connect(url).chat(
        model=job["models"]["free"],
        messages=same.user(same.FREIGHT_QUESTION),
        format=same.Freight.model_json_schema(),
        options={"temperature": 0},
    )
    return same.saw_structured(same.Freight.model_validate_json(answer.message.content))


def thinking(url, job):
    client, model, messages = connect(url), job["models"]["think"], same.user(same.THINKING_QUESTION)
    plain = client.chat(model=model, messages=messages, think=True).message
    parts = [part.message for part in client.chat(model=model, messages=messages, think=True, stream=True)]
    streamed = ["".join(part.thinking or "" for part in parts), "".join(part.content or "" for part in parts)]
    return same.saw_thinking(plain.thinking, plain.content, *streamed)


def images(url, job):
    message = {"role": "user", "content": same.IMAGE_QUESTION, "images": [job["image"]]}
    answer = connect(url).chat(model=job["models"]["sight"], messages=[message])
    return same.saw_images(answer.message.content)


def embeddings(url, job):
    return same.saw_embeddings(connect(url).embed(model=job["models"]["say"], input=same.EMBEDDED).embeddings)


def list_models(url, job):
    return sorted(model.model for model in connect(url).list().models)


def show(url, job):
    shown = connect(url).show(job["models"]["say"])
    return {"family": shown.details.family, "capabilities": shown.capabilities, "template": shown.template}


def pull(url, job):
    client, model = connect(url), job["models"]["pull"]
    with contextlib.suppress(ollama.ResponseError):
        client.delete(model)
    words, total, completed = [], 0, 0
    for progress in client.pull(model, insecure=True, stream=True):
        word = progress.status.split()[0]
        if word not in words:
            words.append(word)
        if progress.total and progress.total >= total:
            total, completed = progress.total, progress.completed or 0
    client.delete(model)
    return {"words": words, "complete": total > 0 and completed == total}


def tell(error):
    return {"status": error.status_code, "message": error.error}


def thrown_by(url, **request):
    return same.thrown(lambda: connect(url).chat(**request), ollama.ResponseError, tell)


def unknown_model(url, job):
    return thrown_by(url, model=same.UNKNOWN_MODEL, messages=same.conversation())


def bad_request(url, job):
    return thrown_by(url, model=job["models"]["say"], messages=same.conversation(), options={"temperature": "hot"})


def refused(url, job):
    return same.names_count_and_limit(thrown_by(url, model=job["models"]["small"], messages=same.user(job["giant"])))


def cancel(url, job):
    stream = connect(url).chat(model=job["models"]["endless"], messages=same.user(same.CANCEL_QUESTION), stream=True)
    with contextlib.closing(stream):
        return same.first_pieces(part.message.content for part in stream)


def ladder(url, job):
    client, model = connect(url), job["models"]["small"]

    def plain(history):
        return client.chat(model=model, messages=history).message.content

    def streamed(history):
        return "".join(part.message.content for part in client.chat(model=model, messages=history, stream=True))

    return same.climb(job["ladder"], plain, streamed)


ABSENT = {}

FEATURES = {
    "chat": chat,
    "streaming": streaming,
    "tools": tools,
    "structured": structured,
    "thinking": thinking,
    "images": images,
    "embeddings": embeddings,
    "list": list_models,
    "show": show,
    "pull": pull,
    "unknown model": unknown_model,
    "bad request": bad_request,
    "refused": refused,
    "cancel": cancel,
    "ladder": ladder,
}
