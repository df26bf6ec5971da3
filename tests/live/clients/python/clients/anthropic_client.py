"""Anthropic's library, on the route `/v1/messages` that Ollama speaks."""

import functools

import anthropic

import same

# The library insists on a limit. It is far above what the models say, and far below the window of `small`.
MAX_TOKENS = 256

# Ollama takes only the wish to think from this, but the library's own API wants at least 1024, below the limit.
THINKING = {"type": "enabled", "budget_tokens": 1024}
MAX_TOKENS_THINKING = 2048


@functools.cache
def connect(url):
    return anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0, timeout=same.TIMEOUT_SECONDS)


def create(url, max_tokens=MAX_TOKENS, **request):
    return connect(url).messages.create(max_tokens=max_tokens, **request)


def stream(url, max_tokens=MAX_TOKENS, **request):
    return connect(url).messages.stream(max_tokens=max_tokens, **request)


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def thinking_of(message):
    return "".join(block.thinking for block in message.content if block.type == "thinking")


def chat(url, job):
    request = {"model": job["models"]["say"], "system": same.SYSTEM}
    first = create(url, messages=same.user(same.QUESTION), **request)
    history = same.user(same.QUESTION) + same.second_turn(text_of(first))
    second = create(url, messages=history, **request)
    prompt_tokens = [first.usage.input_tokens, second.usage.input_tokens]
    return same.saw_chat(text_of(first), text_of(second), second.stop_reason, prompt_tokens)


def streaming(url, job):
    request = {"model": job["models"]["say"], "system": same.SYSTEM, "messages": same.user(same.QUESTION)}
    with stream(url, **request) as answer:
        pieces = list(answer.text_stream)
        last = answer.get_final_message()
    assert "".join(pieces) == text_of(last), "the pieces are not the message"
    return same.saw_streaming(pieces, last.stop_reason)


def tools(url, job):
    tool = {"name": same.TOOL, "description": same.TOOL_ABOUT, "input_schema": same.TOOL_PARAMETERS}
    request = {"model": job["models"]["call"], "tools": [tool]}
    messages = same.user(same.TOOL_QUESTION)
    asked = create(url, messages=messages, **request)
    made = tool_use(asked)
    result = [{"type": "tool_result", "tool_use_id": made.id, "content": same.TOOL_RESULT}]
    history = [*messages, {"role": "assistant", "content": asked.content}, *same.user(result)]
    answer = create(url, messages=history, **request)
    with stream(url, messages=messages, **request) as parts:
        streamed = tool_use(parts.get_final_message())
    return same.saw_tools((made.name, made.input), text_of(answer), (streamed.name, streamed.input))


def tool_use(message):
    (made,) = [block for block in message.content if block.type == "tool_use"]
    return made


def thinking(url, job):
    request = {
        "model": job["models"]["think"],
        "messages": same.user(same.THINKING_QUESTION),
        "thinking": THINKING,
        "max_tokens": MAX_TOKENS_THINKING,
    }
    plain = create(url, **request)
    with stream(url, **request) as answer:
        streamed = answer.get_final_message()
    return same.saw_thinking(thinking_of(plain), text_of(plain), thinking_of(streamed), text_of(streamed))


def images(url, job):
    source = {"type": "base64", "media_type": "image/png", "data": job["image"]}
    content = [{"type": "image", "source": source}, {"type": "text", "text": same.IMAGE_QUESTION}]
    return same.saw_images(text_of(create(url, model=job["models"]["sight"], messages=same.user(content))))


def list_models(url, job):
    return sorted(model.id for model in connect(url).models.list())


def tell(error):
    told = error.body["error"]
    return {"status": error.status_code, "message": told["message"], "type": told["type"]}


def thrown_by(url, **request):
    return same.thrown(lambda: create(url, **request), anthropic.APIStatusError, tell)


def unknown_model(url, job):
    return thrown_by(url, model=same.UNKNOWN_MODEL, messages=same.user(same.QUESTION))


def bad_request(url, job):
    # The library knows no temperature any more, but sends what it does not know.
    hot = {"temperature": "hot"}
    return thrown_by(url, model=job["models"]["say"], messages=same.user(same.QUESTION), extra_body=hot)


def refused(url, job):
    return same.names_count_and_limit(thrown_by(url, model=job["models"]["small"], messages=same.user(job["giant"])))


def cancel(url, job):
    with stream(url, model=job["models"]["endless"], messages=same.user(same.CANCEL_QUESTION)) as answer:
        return same.first_pieces(answer.text_stream)


def ladder(url, job):
    model = job["models"]["small"]

    def plain(history):
        return text_of(create(url, model=model, messages=history))

    def streamed(history):
        with stream(url, model=model, messages=history) as answer:
            return answer.get_final_text()

    return same.climb(job["ladder"], plain, streamed)


ABSENT = {
    "structured": "the library asks with output_config, which Ollama's Anthropic route ignores",
    "embeddings": "Anthropic's API has no such call",
    "show": "Anthropic's API has no such call: it tells a model's name and date only",
    "pull": "Anthropic's API has no such call",
}

FEATURES = {
    "chat": chat,
    "streaming": streaming,
    "tools": tools,
    "thinking": thinking,
    "images": images,
    "list": list_models,
    "unknown model": unknown_model,
    "bad request": bad_request,
    "refused": refused,
    "cancel": cancel,
    "ladder": ladder,
}
