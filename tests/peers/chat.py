"""Conversations become the ids that transformers' apply_chat_template gives, for templates of real models and for some
written here, and the masks that it gives where a template marks its assistant turns with {% generation %}. A template
without marks trains what the same one trains with them, unless it is refused.

usage: chat.py PEERS_CHAT (tokenizers and templates of real models come from NRL_TEST_SHARED; without it, skipped)
"""
import json, os, subprocess, sys, tempfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", OMP_NUM_THREADS="1")
from transformers import PreTrainedTokenizerFast

SKIPPED = 77

CHATML = """{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' %}BEGIN{{- m.content + '<|im_end|>' }}END{%- else %}{{- m.content + '<|im_end|>' }}{%- endif %}
{{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
BARE = """{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}BEGIN {{ m.content | trim }}{{ eos_token }}END
{% else %}[{{ m.role }}] {{ m.content }}:{% endif %}{% endfor %}"""
TOOLS = """{% if tools %}{{ tools | tojson(indent=2) }}
{% endif %}{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}BEGIN{{ m.content or '' }}{% for c in m.tool_calls %}
{{ c.function.name }}({{ c.function.arguments | tojson }}){% endfor %}<|im_end|>END{% else %}{{ m.content }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""

CALLS = [{"role": "user", "content": "Weather in Köln?"},
         {"role": "assistant", "content": None, "tool_calls": [
             {"type": "function", "function": {"name": "weather", "arguments": {"place": "Köln", "days": [1, 2.5, None]}}}]},
         {"role": "tool", "name": "weather", "content": "{\"t\": 3}"},
         {"role": "assistant", "content": " 3 degrees 🥶. "}]
TOOL = [{"type": "function", "function": {"name": "weather", "description": "<b>it's</b>", "parameters": {"type": "object"}}}]


def marked(template, marks):
    begin, end = ("{% generation %}", "{% endgeneration %}") if marks else ("", "")
    return template.replace("BEGIN", begin).replace("END", end)


def add_tokens(tokenizer, texts):
    """As a chat model has them over its base."""
    n = max(list(tokenizer["model"]["vocab"].values()) + [t["id"] for t in tokenizer["added_tokens"]]) + 1
    for i, text in enumerate(texts):
        tokenizer["added_tokens"].append({"id": n + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                                          "normalized": False, "special": True})


def make_folder(folder, source, template, tokens):
    """A tokenizer's folder with this template. Returns the same in transformers."""
    with open(source, encoding="utf-8") as f:
        tokenizer = json.load(f)
    add_tokens(tokenizer, ["<|im_start|>", "<|im_end|>"])
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(tokenizer, f)
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump({**tokens, "chat_template": template}, f)
    auto = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"), **tokens)
    auto.chat_template = template
    return auto


def ours(program, folder, rows):
    path = os.path.join(folder, "rows.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(rows, f)
    return json.loads(subprocess.run([program, folder, "auto", path], check=True, stdout=subprocess.PIPE).stdout)


def theirs(auto, row, marks):
    """ids, mask or None where it raises."""
    try:
        out = auto.apply_chat_template(row["messages"], tools=row.get("tools"), add_generation_prompt=row.get("prompt", False),
                                       tokenize=True, return_dict=True, return_assistant_tokens_mask=marks)
    except Exception:
        return None
    return out["input_ids"], out.get("assistant_masks")


def compare(program, source, template, tokens, rows, marks):
    """Rows whose ids and masks are theirs; rows that nrl refuses although they render; all rows."""
    same = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        auto = make_folder(folder, source, template, tokens)
        for row, mine in zip(rows, ours(program, folder, rows)):
            other = theirs(auto, row, marks and not row.get("prompt"))
            if "error" in mine:
                prefix = "cannot be located" in mine["error"]  # where turns end
                assert other is None or prefix or not row["messages"] or "what comes before it" in mine["error"], (row, mine, template)
                refused += other is not None
                same += other is None
                continue
            assert other is not None, (row, mine)
            assert mine["ids"] == other[0], (template, row, mine["ids"], other[0], auto.decode(mine["ids"]), auto.decode(other[0]))
            if marks and not row.get("prompt"):
                assert mine["trained"] == other[1], (template, row, mine["trained"], other[1])
            same += 1
    return same, refused


def conversations(shared):
    with open(os.path.join(shared, "data/templates/golden_rendered.json"), encoding="utf-8") as f:
        all = json.load(f)
    rows = [{"messages": m, "prompt": p} for m in all["conversations"].values() if m for p in (False, True)]
    return all["templates"], rows


def main():
    program, shared = sys.argv[1], os.environ.get("NRL_TEST_SHARED", "")
    source = {n: os.path.join(shared, "data/tokenizers", n, "tokenizer.json") for n in ("qwen2", "gpt2", "llama2")}
    if not all(os.path.exists(p) for p in source.values()):
        print("skipped: NRL_TEST_SHARED has no tokenizers")
        return SKIPPED
    templates, rows = conversations(shared)
    calls = [{"messages": CALLS, "tools": TOOL}, {"messages": CALLS}, {"messages": CALLS[:1], "tools": TOOL, "prompt": True}]
    n = 0
    for name, tokens in (("qwen2", {"eos_token": "<|im_end|>"}), ("gpt2", {"eos_token": "<|endoftext|>"}),
                         ("llama2", {"bos_token": "<s>", "eos_token": "</s>"})):
        for template in (CHATML, BARE, TOOLS):
            given = rows + calls if template is TOOLS else rows
            for marks in (True, False):
                same, refused = compare(program, source[name], marked(template, marks), tokens, given, marks)
                assert same == len(given) and not refused, (name, template, marks, same, refused)
                n += same
    print(f"{n} conversations by templates of our own: ids and masks agree")
    n = refused = 0
    for name, template in templates.items():
        tokens = {"bos_token": "<s>", "eos_token": "</s>"}
        a, b = compare(program, source["llama2"], template["template"], tokens, rows, False)
        n, refused = n + a, refused + b
        if b:
            print(f"  {name}: {b} conversations cannot be trained")
    print(f"{n} conversations by {len(templates)} templates of real models: ids agree; {refused} refused for training")
    return 0


sys.exit(main())
