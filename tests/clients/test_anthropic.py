"""A tour of Anthropic's client for Python, which checks every answer against its own types."""

import anthropic
import pytest

from tandem import KEY

ASKED = [{"role": "user", "content": "Tell me about owls."}]
# The client has no field for the temperature any more; servers do.
GREEDY = {"model": "tiny", "messages": ASKED, "max_tokens": 24, "extra_body": {"temperature": 0}}

WEATHER = {
    "name": "weather",
    "description": "The weather in a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}, "today": {"type": "boolean"}},
        "required": ["city", "today"],
        "additionalProperties": False,
    },
}


@pytest.fixture
def client(url):
    with anthropic.Anthropic(
        base_url=url, api_key="none", max_retries=0, timeout=60, _strict_response_validation=True
    ) as client:
        yield client


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def test_a_message(client):
    message = client.messages.create(**GREEDY, system="Be short.")
    assert message.role == "assistant" and message.type == "message" and text_of(message)
    assert message.stop_reason in ("end_turn", "max_tokens")
    assert message.usage.output_tokens == 24 and message.usage.input_tokens > 0


def test_a_stream_says_what_a_whole_message_says(client):
    whole = client.messages.create(**GREEDY)
    with client.messages.stream(**GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == text_of(final) == text_of(whole)
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    kinds = [event.type for event in client.messages.create(**GREEDY, stream=True) if event.type != "ping"]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]


def test_tokens_are_counted_as_they_are_used(client):
    asked = {"model": "tiny", "messages": ASKED, "system": "Be short.", "tools": [WEATHER]}
    counted = client.messages.count_tokens(**asked).input_tokens
    used = client.messages.create(**asked, max_tokens=1).usage
    cached = (used.cache_read_input_tokens or 0) + (used.cache_creation_input_tokens or 0)
    assert counted == used.input_tokens + cached


def test_stop_sequences(client):
    whole = text_of(client.messages.create(**GREEDY))
    stop = whole[5:8]
    message = client.messages.create(**GREEDY, stop_sequences=[stop])
    assert text_of(message) == whole[: whole.index(stop)]
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}])
def test_tools_and_their_results(client, choice):
    asked = {**GREEDY, "max_tokens": 200, "tools": [WEATHER]}
    message = client.messages.create(**asked, tool_choice=choice)
    (use,) = [block for block in message.content if block.type == "tool_use"]
    assert message.stop_reason == "tool_use" and use.name == "weather"
    assert use.input["city"] in ("Oslo", "Rome") and isinstance(use.input["today"], bool)

    with client.messages.stream(**asked, tool_choice=choice) as stream:
        (streamed,) = [block for block in stream.get_final_message().content if block.type == "tool_use"]
    assert (streamed.name, streamed.input) == (use.name, use.input)

    result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "Sunny."}]}
    told = [*ASKED, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    after = client.messages.create(**{**asked, "messages": told}, tool_choice={"type": "none"})
    assert text_of(after) and all(block.type == "text" for block in after.content)


def test_a_message_that_is_begun_is_continued(client):
    begun = [*ASKED, {"role": "assistant", "content": "Owls are"}]
    assert text_of(client.messages.create(**{**GREEDY, "messages": begun}))


def test_errors_have_the_clients_types(client):
    def fails(kind, **fields):
        with pytest.raises(kind) as error:
            client.messages.create(**{**GREEDY, **fields})
        return error.value.body["error"]

    assert fails(anthropic.BadRequestError, extra_body={"temperature": 9})["type"] == "invalid_request_error"
    assert fails(anthropic.BadRequestError, messages=[])["type"] == "invalid_request_error"
    assert "gpt-17" in fails(anthropic.NotFoundError, model="gpt-17")["message"]
    long = [{"role": "user", "content": "a" * 5000}]
    assert "4096" in fails(anthropic.BadRequestError, messages=long)["message"]
    assert client.messages.create(**GREEDY).content


def test_a_key_that_is_asked_for(keyed_url):
    for key in ["sk-wrong", KEY]:
        with anthropic.Anthropic(base_url=keyed_url, api_key=key, max_retries=0) as client:
            if key == KEY:
                assert client.messages.create(**GREEDY).content
            else:
                with pytest.raises(anthropic.AuthenticationError):
                    client.messages.create(**GREEDY)


def test_a_stream_that_is_closed_midway_ends_its_row(client, falls_idle):
    with client.messages.create(**{**GREEDY, "max_tokens": 4000}, stream=True) as stream:
        for _ in zip(range(4), stream):
            pass
    falls_idle()

