"""OpenAI's library, on the routes under `/v1` that Ollama speaks: chat completions, and responses for plain text."""

import functools
import json

import openai

import same


@functools.cache
def connect(url):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=same.TIMEOUT_SECONDS)


def create(url, **request):
    return connect(url).chat.completions.create(**request)


def deltas(stream):
    """What the pieces of a streamed answer carry. The last one may have no choice in it."""
    for chunk in stream:
        for choice in chunk.choices:
            yield choice.delta


def chat(url, job):
    model = job["models"]["say"]
    first = create(url, model=model, messages=same.conversation())
    text = first.choices[0].message.content
    second = create(url, model=model, messages=same.conversation() + same.second_turn(text))
    choice, prompt_tokens = second.choices[0], [first.usage.prompt_tokens, second.usage.prompt_tokens]
    response = connect(url).responses.create(model=model, instructions=same.SYSTEM, input=same.QUESTION)
    return {
        **same.saw_chat(text, choice.message.content, choice.finish_reason, prompt_tokens),
        "responses_text": response.output_text,
    }


def streaming(url, job):
    model = job["models"]["say"]
    chunks = create(url, model=model, messages=same.conversation(), stream=True)
    choices = [choice for chunk in chunks for choice in chunk.choices]
    (reason,) = [choice.finish_reason for choice in choices if choice.finish_reason]
    return {
        **same.saw_streaming([choice.delta.content for choice in choices], reason),
        "responses_text": streamed_response(url, model),
    }


def streamed_response(url, model):
    events = connect(url).responses.create(model=model, instructions=same.SYSTEM, input=same.QUESTION, stream=True)
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


def tools(url, job):
    request = {"model": job["models"]["call"], "tools": [same.function_tool()]}
    messages = same.user(same.TOOL_QUESTION)
    asked = create(url, messages=messages, **request).choices[0].message
    (made,) = asked.tool_calls
    result = {"role": "tool", "tool_call_id": made.id, "content": same.TOOL_RESULT}
    answer = create(url, messages=[*messages, asked, result], **request).choices[0].message.content
    call = made.function.name, json.loads(made.function.arguments)
    return same.saw_tools(call, answer, streamed_call(create(url, messages=messages, stream=True, **request)))


def streamed_call(stream):
    """Puts one streamed call together: the name comes once, the arguments may come in pieces."""
    name, arguments = "", ""
    for delta in deltas(stream):
        for part in delta.tool_calls or []:
            name += part.function.name or ""
            arguments += part.function.arguments or ""
    return name, json.loads(arguments)


def structured(url, job):
    answer = connect(url).chat.completions.parse(
        model=job["models"]["free"],
        messages=same.user(same.FREIGHT_QUESTION),
        response_format=same.Freight,
        temperature=0,
    )
    return same.saw_structured(answer.choices[0].message.parsed)


def reasoning(message):
    """Ollama's addition to the messages of this API: the library keeps it without having a name for it."""
    return (message.model_extra or {}).get("reasoning") or ""


def thinking(url, job):
    request = {"model": job["models"]["think"], "messages": same.user(same.THINKING_QUESTION)}
    plain = create(url, **request).choices[0].message
    parts = list(deltas(create(url, stream=True, **request)))
    streamed = ["".join(map(reasoning, parts)), "".join(part.content or "" for part in parts)]
    return same.saw_thinking(reasoning(plain), plain.content, *streamed)


def images(url, job):
    picture = {"type": "image_url", "image_url": {"url": same.data_url(job["image"])}}
    content = [{"type": "text", "text": same.IMAGE_QUESTION}, picture]
    answer = create(url, model=job["models"]["sight"], messages=same.user(content))
    return same.saw_images(answer.choices[0].message.content)


def embeddings(url, job):
    made = connect(url).embeddings.create(model=job["models"]["say"], input=same.EMBEDDED)
    return same.saw_embeddings([item.embedding for item in made.data])


def list_models(url, job):
    return sorted(model.id for model in connect(url).models.list())


def tell(error):
    return {"status": error.status_code, "message": error.body["message"], "type": error.body["type"]}


def thrown_by(url, **request):
    return same.thrown(lambda: create(url, **request), openai.APIStatusError, tell)


def unknown_model(url, job):
    return thrown_by(url, model=same.UNKNOWN_MODEL, messages=same.conversation())


def bad_request(url, job):
    return thrown_by(url, model=job["models"]["say"], messages=same.conversation(), temperature="hot")


def refused(url, job):
    return same.names_count_and_limit(thrown_by(url, model=job["models"]["small"], messages=same.user(job["giant"])))


def cancel(url, job):
    request = {"model": job["models"]["endless"], "messages": same.user(same.CANCEL_QUESTION)}
    with create(url, stream=True, **request) as stream:
        return same.first_pieces(delta.content for delta in deltas(stream))


def ladder(url, job):
    model = job["models"]["small"]

    def plain(history):
        return create(url, model=model, messages=history).choices[0].message.content

    def streamed(history):
        return "".join(delta.content or "" for delta in deltas(create(url, model=model, messages=history, stream=True)))

    return same.climb(job["ladder"], plain, streamed)


ABSENT = {
    "show": "OpenAI's API has no such call: it tells a model's name and owner only",
    "pull": "OpenAI's API has no such call",
}

FEATURES = {
    "chat": chat,
    "streaming": streaming,
    "tools": tools,
    "structured": structured,
    "thinking": thinking,
    "images": images,
    "embeddings": embeddings,
    "list": list_models,
    "unknown model": unknown_model,
    "bad request": bad_request,
    "refused": refused,
    "cancel": cancel,
    "ladder": ladder,
}
