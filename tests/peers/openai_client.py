"""openai_client.py NRL: the pip package openai as a client of `nrl serve`: answers, streams, log-probs, errors."""
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
with tempfile.TemporaryDirectory() as place:
    subprocess.run([nrl, "run", f"{source}/configs/sft.yaml", "train.epochs=1", f"out={place}/model",
                    "backend={name: cpu, threads: 1}"], check=True, capture_output=True)
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
