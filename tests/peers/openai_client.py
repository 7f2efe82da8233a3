"""openai_client.py NRL: the pip package openai as a client of `nrl serve`: answers, streams, log-probs, calls of tools, errors."""
import json
import os
import re
import subprocess
import sys
import tempfile

try:
    import openai
except ImportError:
    print("skipped: this Python has no package openai")
    sys.exit(77)

nrl, source = sys.argv[1], os.environ["NRL_TEST_SOURCE"]
asked = {"role": "user", "content": "Weather in Paris?"}
call = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
with tempfile.TemporaryDirectory() as place:
    with open(f"{place}/calls.jsonl", "w") as f:
        f.write(64 * (json.dumps({"messages": [asked, {"role": "assistant", "content": "I look.\n" + call}]}) + "\n"))
    with open(f"{place}/tools.jinja", "w") as f:
        f.write("""{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content }}
{%- for c in m.tool_calls %}{{ '\\n<tool_call>\\n' + c.function | tojson + '\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}
{%- endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""")
    subprocess.run([nrl, "run", f"{source}/configs/sft.yaml", f"data.template={place}/tools.jinja", f"data.train={place}/calls.jsonl", "data.eval=null",
                    "eval.every=0", "optimizer.lr=0.01", "train.epochs=8", f"out={place}/model", "backend={name: cpu, threads: 1}"], check=True,
                   capture_output=True)
    server = subprocess.Popen([nrl, "serve", f"{place}/model", "--port", "0", "--api-key", "secret"], stdout=subprocess.PIPE,
                              text=True)
    try:
        url = re.search(r"http\S+", server.stdout.readline()).group()
        client = openai.OpenAI(base_url=url, api_key="secret", max_retries=0)
        assert [model.id for model in client.models.list()] == ["model"]
        ask = dict(model="model", messages=[{"role": "user", "content": "What is two plus two?"}], max_tokens=12, temperature=0)
        whole = client.chat.completions.create(**ask, logprobs=True, top_logprobs=2)
        choice = whole.choices[0]
        assert whole.usage.completion_tokens == len(choice.logprobs.content) and len(choice.logprobs.content[0].top_logprobs) == 2
        assert choice.finish_reason in ("stop", "length") and choice.message.role == "assistant"
        pieces, usage = "", None
        for chunk in client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
            pieces += "".join(c.delta.content or "" for c in chunk.choices)
            usage = chunk.usage or usage
        assert pieces == choice.message.content and usage == whole.usage, (pieces, whole)
        wants = dict(model="model", messages=[asked], max_tokens=90, temperature=0, tools=tools)
        answer = client.chat.completions.create(**wants).choices[0]
        made = answer.message.tool_calls[0].function
        assert answer.finish_reason == "tool_calls" and answer.message.content == "I look.", answer
        assert made.name == "weather" and json.loads(made.arguments) == {"city": "Paris"}
        with client.chat.completions.stream(**wants) as stream:
            for event in stream:
                pass
            streamed = stream.get_final_completion().choices[0]
        assert streamed.message.tool_calls[0].function.arguments == made.arguments and streamed.finish_reason == "tool_calls"
        result = {"role": "tool", "tool_call_id": answer.message.tool_calls[0].id, "content": "20 degrees"}
        client.chat.completions.create(**dict(wants, messages=[asked, answer.message, result]))
        texts = client.completions.create(model="model", prompt=["One", "Two"], n=2, max_tokens=4, seed=1, logprobs=1).choices
        assert [text.index for text in texts] == [0, 1, 2, 3] and texts[0].logprobs.tokens
        for wrong, error in ((dict(ask, model="other"), openai.NotFoundError), (dict(ask, max_tokens=0), openai.BadRequestError),
                             (dict(ask, logit_bias={"1": 5}), openai.BadRequestError)):
            try:
                client.chat.completions.create(**wrong)
                raise SystemExit(f"accepted: {wrong}")
            except error:
                pass
        try:
            openai.OpenAI(base_url=url, api_key="other", max_retries=0).models.list()
            raise SystemExit("accepted a wrong key")
        except openai.AuthenticationError:
            pass
    finally:
        server.terminate()
    assert server.wait(30) == 0
