#!/bin/sh
# tool_calls.sh: a model that has learned to call a tool: `nrl chat --tools` and `nrl serve` show its calls.
. "$(dirname "$0")/e2e.sh"
tools='[{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}]'
echo "$tools" >tools.json
awk 'BEGIN {
    for (i = 0; i < 64; i++)
        print "{\"messages\": [{\"role\": \"user\", \"content\": \"Weather in Paris?\"}, {\"role\": \"assistant\", \"content\": \"I look.\\n" \
            "<tool_call>\\n{\\\"name\\\": \\\"weather\\\", \\\"arguments\\\": {\\\"city\\\": \\\"Paris\\\"}}\\n</tool_call>\"}]}"
}' >calls.jsonl
cat >tools.jinja <<'END'
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}
{%- for c in m.tool_calls %}{{ '\n<tool_call>\n' + c.function | tojson + '\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}
{%- endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
END
run 0 run "$source/configs/sft.yaml" data.template=tools.jinja data.train=calls.jsonl data.eval=null eval.every=0 optimizer.lr=0.01 train.epochs=8 \
    checkpoint.export=none out=model "$one_thread"

printf '%s\n' 'Weather in Paris?' '/result {"celsius": 20}' '/result again' '/save talk.jsonl' |
    "$nrl" chat model --tools tools.json --temperature 0 --max-tokens 90 >talk 2>err
is "the exit code with a wrong /result" $? 2
is "the answer" "$(sed -n 1p talk)" "I look."
is "the call" "$(sed -n 2p talk)" '[call weather({"city": "Paris"})]'
has err "/result: no tool call waits for a result"
printf '%s\n' 'Weather in Paris?' '/result {"celsius": 20}' '/save talk.jsonl' |
    "$nrl" chat model --tools tools.json --temperature 0 --max-tokens 90 >talk 2>err
has talk.jsonl '"tool_calls": [{"id": "'
has talk.jsonl '"function": {"name": "weather", "arguments": {"city": "Paris"}}'
has talk.jsonl '{"role": "tool", "content": "{\"celsius\": 20}", "name": "weather", "tool_call_id": "'
run 2 chat model --tools nowhere.json
echo '{}' >odd.json
run 2 chat model --tools odd.json
has err "odd.json: expected a list of tools"

[ -x "$NRL_TEST_BUILD/libexec/nrl/nrl-serve" ] || { echo "skipped: tools of a server: nrl serve is not built"; exit $failed; }
command -v curl >curl || { echo "skipped: tools of a server: curl is not installed"; exit $failed; }
server=
trap '[ -z "$server" ] || kill -9 $server; rm -rf "$work"' EXIT
"$nrl" serve model --port 0 --grace 0 >log 2>errors &
server=$!
tries=0
until grep -q "^serving" log || [ $tries -gt 300 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
url=$(sed -n 's/.* at \(http.*\)$/\1/p' log)
# ask MEMBERS: the answer in out
ask() {
    curl -sN -m 60 -d "{\"messages\":[{\"role\":\"user\",\"content\":\"Weather in Paris?\"}],\"temperature\":0,\"max_tokens\":90$1}" \
        "$url/chat/completions" >out
}
ask ",\"tools\":$tools"
truth "a call" "d.choices[1].finish_reason == 'tool_calls' and d.choices[1].message.content == 'I look.' and
    d.choices[1].message.tool_calls[1].type == 'function' and #d.choices[1].message.tool_calls[1].id == 9 and
    d.choices[1].message.tool_calls[1]['function'].name == 'weather' and
    d.choices[1].message.tool_calls[1]['function'].arguments == '{\"city\": \"Paris\"}'"
for i in 1 2; do
    ask ",\"tools\":$tools,\"seed\":7"
    sed 's/.*"tool_calls":\[{"index":0,"id":"\([a-z0-9]*\)".*/\1/' out
done | sort -u >ids
is "ids of calls with the same seed" "$(grep -c '^.........$' ids)" 2
ask ",\"tools\":$tools,\"stream\":true"
is "text of a stream with a call" "$(sed -n 's/.*"delta":{"content":"\([^"]*\)"[,}].*/\1/p' out | tr -d '\n')" "I look."
has out '"delta":{"content":null,"tool_calls":[{"index":0,"id":"'
has out '"function":{"name":"weather","arguments":"{\"city\": \"Paris\"}"}}]}'
has out '"finish_reason":"tool_calls"'
for without in '' ",\"tools\":$tools,\"tool_choice\":\"none\""; do
    ask "$without"
    truth "a call that stays text" "d.choices[1].finish_reason == 'stop' and d.choices[1].message.tool_calls == nil and
        d.choices[1].message.content:find('</tool_call>', 1, true) ~= nil"
done
for choice in '"required"' 5 true; do
    ask ",\"tools\":$tools,\"tool_choice\":$choice"
    has out "tool_choice: expected auto or none"
done
ask ',"tools":[{"name":"weather"}]'
has out '"param":"tools"'

# a page for browsers, and the end of an answer that nobody waits for
curl -s -m 60 -D headers "${url%/v1}/" >page
has page "<!doctype html>"
has headers "Content-Security-Policy: default-src 'none'"
curl -s -m 60 -d '{"prompt":"One","n":100,"max_tokens":900,"temperature":2}' "$url/completions" >last &
client=$!
await eval '[ -s last ] || curl -s "${url%/v1}/health" | grep -q "\"running\":1"'
kill -TERM "$server"
wait "$server"
is "exit code of the server" $? 0
server=
wait $client
has last "the server is shutting down"
exit $failed
