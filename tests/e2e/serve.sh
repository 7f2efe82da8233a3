#!/bin/sh
# serve.sh: `nrl serve`, by curl: answers that equal those of nrl sample, alone and together, streams, mistakes and
# hostile requests, a full queue, clients that leave, the end.
. "$(dirname "$0")/e2e.sh"
"$nrl" serve --help >help 2>&1
[ -x "$NRL_TEST_BUILD/libexec/nrl/nrl-serve" ] || { echo "skipped: nrl serve is not built, there is no libmicrohttpd"; exit 77; }
command -v curl >curl || { echo "skipped: there is no curl"; exit 77; }
run 0 run "$source/configs/sft.yaml" train.epochs=1 data.eval=null eval.every=0 out=model "$one_thread"

server=
trap '[ -z "$server" ] || kill -9 $server; rm -rf "$work"' EXIT
served=model
# start ARGUMENT...: a server of $served with its address in $url
start() {
    rm -f log # The child truncates it only once it runs: until then, the address of the server before is in it.
    "$nrl" serve "$served" --port 0 "$@" >log 2>errors &
    server=$!
    await grep -q "^serving" log
    url=$(sed -n 's/.* at \(http.*\)$/\1/p' log)
    root=${url%/v1}
}
# stop: SIGTERM, and the exit code
stop() {
    kill -TERM "$server"
    wait "$server"
    is "exit code of a server after SIGTERM" $? 0
    server=
}
# ask PATH BODY [FLAG...]: the answer in out, the status in $status
ask() {
    path=$1 body=$2
    shift 2
    status=$(curl -s -m 60 -o out -w '%{http_code}' -H 'Content-Type: application/json' "$@" -d "$body" "$url/$path")
}
# refused PATH STATUS BODY TEXT: an error object with that text
refused() {
    ask "$1" "$3"
    is "status of $3" "$status" "$2"
    has out '{"error":{"message":'
    has out "$4"
}
hello='"messages":[{"role":"user","content":"What is two plus two?"}]'

start --max-batch 8 --max-queue 200 --name tiny
curl -s "$root/health" >out
has out '"status":"ok"'
is "the model by name" "$(curl -s "$url/models/$(curl -s "$url/models" | sed 's/.*"id":"\([^"]*\)".*/\1/')" | cut -c 1-7)" '{"id":"'
is "another model" "$(curl -s -o out -w '%{http_code}' "$url/models/other")" 404
curl -s "$url/models" >out
has out '{"object":"list","data":[{"id":"tiny","object":"model",'

# Without a key, pages of other sites are refused by their Host or Origin; other clients send neither.
short='{"prompt":"One","max_tokens":1}'
for host in evil.example 127.evil.example localhost.evil.example 127.0.0.1:evil.example 10.0.0.1; do
    ask completions "$short" -H "Host: $host"
    is "status with Host: $host" "$status" 403
    has out "\"message\":\"header Host: found '$host', expected localhost"
done
for host in 127.0.0.1 127.1.2.3:80 LocalHost '[::1]' '[::1]:8000'; do
    ask completions "$short" -H "Host: $host"
    is "status with Host: $host" "$status" 200
done
for origin in https://chat.example null "${root}1" "$root.evil.example"; do
    ask completions "$short" -H "Origin: $origin"
    is "status with Origin: $origin" "$status" 403
    has out "\"message\":\"header Origin: found '$origin', expected the address of this server"
done
ask completions "$short" -H "Origin: $root"
is "status with the server's own Origin" "$status" 200
is "health with another Host" "$(curl -s -o out -w '%{http_code}' -H 'Host: evil.example' "$root/health")" 403
is "a preflight of another site" "$(curl -s -o out -w '%{http_code}' -X OPTIONS -H 'Origin: https://chat.example' "$url/completions")" 403

# A conversation, and the same from nrl sample; log-probs of the token and of the likeliest ones.
run 0 sample model --chat --prompt 'What is two plus two?' --max-tokens 12 --json --logprobs 2
text=$(sed -n 's/.*"text":"\(.*\)","tokens".*/\1/p' out)
logprob=$(sed -n 's/.*"logprobs":\[{[^}]*"logprob": \([-0-9.e]*\).*/\1/p' out | head -n 1)
ask chat/completions "{$hello,\"max_tokens\":12,\"temperature\":0,\"logprobs\":true,\"top_logprobs\":2}"
is "status of an answer" "$status" 200
has out "\"message\":{\"role\":\"assistant\",\"content\":\"$text\"}"
truth "log-probs and usage" "#d.choices[1].logprobs.content == d.usage.completion_tokens and
    #d.choices[1].logprobs.content[1].top_logprobs == 2 and
    d.choices[1].logprobs.content[1].top_logprobs[1].logprob >= d.choices[1].logprobs.content[1].logprob and
    d.usage.total_tokens == d.usage.prompt_tokens + d.usage.completion_tokens and d.object == 'chat.completion'"

# The same as a stream, which adds up to the same text.
curl -sN -m 60 -d "{$hello,\"max_tokens\":12,\"temperature\":0,\"stream\":true,\"stream_options\":{\"include_usage\":true}}" \
    "$url/chat/completions" >stream
is "the text of a stream" "$(sed -n 's/.*"delta":{"content":"\(.*\)"},"logprobs".*/\1/p' stream | tr -d '\n')" "$text"
is "the end of a stream" "$(tail -n 2 stream | tr -d '\n')" "data: [DONE]"
has stream '"choices":[],"usage":{"prompt_tokens":'
has stream '"delta":{"role":"assistant","content":""}'

# Completions: several prompts, several texts, ids, a seed, a stop text.
ask completions '{"prompt":["One plus","Two"],"n":2,"max_tokens":6,"seed":3,"logprobs":1}'
truth "choices" "#d.choices == 4 and d.choices[4].index == 3 and #d.choices[1].logprobs.tokens <= 6 and d.object == 'text_completion'"
sed 's/"id":"[^"]*","object":"[^"]*","created":[0-9]*//' out >first
ask completions '{"prompt":["One plus","Two"],"n":2,"max_tokens":6,"seed":3,"logprobs":1}'
is "the same with the same seed" "$(sed 's/"id":"[^"]*","object":"[^"]*","created":[0-9]*//' out)" "$(cat first)"
ask completions '{"prompt":["Two","Two"],"max_tokens":12,"temperature":2,"seed":3}'
truth "texts of equal prompts" "d.choices[1].text ~= d.choices[2].text"
ask completions '{"prompt":"Two","max_tokens":90,"temperature":100,"seed":3,"logprobs":0}'
truth "offsets in characters" "utf8.len(d.choices[1].text) < #d.choices[1].text - 8 and
    d.choices[1].logprobs.text_offset[#d.choices[1].logprobs.text_offset] <= utf8.len(d.choices[1].text)"
# The sampled token is among top_logprobs, also where it is none of the likeliest.
sampled='local l, top = d.choices[1].logprobs, d.choices[1].logprobs.top_logprobs[i]'
truth "only sampled tokens with logprobs: 0" "all(d.choices[1].logprobs.tokens,
    function(text, i) $sampled return top[text] == l.token_logprobs[i] and not next(top, text) end)"
ask completions '{"prompt":"Two","max_tokens":30,"temperature":2,"seed":3,"logprobs":1}'
truth "sampled tokens with logprobs: 1" "all(d.choices[1].logprobs.tokens,
    function(text, i) $sampled return top[text] == l.token_logprobs[i] end)"
truth "likelier tokens with logprobs: 1" "not all(d.choices[1].logprobs.tokens,
    function(text, i) $sampled return not next(top, (next(top))) end)"
# Seeds have 64 bits.
for seed in 9223372036854775807 -9223372036854775808 3.0 9007199254740992 9007199254740993; do
    ask completions "{\"prompt\":\"Two\",\"max_tokens\":12,\"temperature\":2,\"seed\":$seed}"
    is "status of seed $seed" "$status" 200
    sed 's/.*"choices"//' out >"seed$seed"
done
cmp -s seed9007199254740992 seed9007199254740993 && is "texts of seeds above 2^53" equal different
for seed in 9223372036854775808 -9223372036854775809 1.5 '"3"'; do
    refused completions 400 "{\"prompt\":\"Two\",\"seed\":$seed}" \
        'seed: expected a whole number from -9223372036854775808 to 9223372036854775807'
done
ask completions '{"prompt":[70,71,72],"max_tokens":3,"temperature":0}'
truth "ids as a prompt" "d.usage.prompt_tokens == 3 and #d.choices == 1"
ask completions '{"prompt":"One plus","max_tokens":8,"temperature":0}'
truth "a text that can be stopped" "#d.choices[1].text > 4"
whole=$(sed -n 's/.*"text":"\([^"]*\)".*/\1/p' out)
end=$(printf %s "$whole" | cut -c 3-4)
ask completions "{\"prompt\":\"One plus\",\"max_tokens\":8,\"temperature\":0,\"stop\":[\"$end\"]}"
has out "\"text\":\"${whole%%"$end"*}\",\"logprobs\":null,\"finish_reason\":\"stop\""

# Limits: one that is null is not set; without one, as many tokens as fit into the 1024 positions.
for limits in '"max_completion_tokens":null,"max_tokens":5' '"max_completion_tokens":5,"max_tokens":900000' '"max_tokens":5'; do
    ask chat/completions "{$hello,\"temperature\":2,$limits}"
    is "status of $limits" "$status" 200
    truth "tokens of $limits" "d.usage.completion_tokens <= 5"
done
long=$(seq 1020 | sed 's/.*/70/' | paste -sd ,)
for limit in '' ',"max_tokens":null'; do
    ask completions "{\"prompt\":[$long],\"temperature\":0$limit}"
    is "status of a long prompt without a limit $limit" "$status" 200
    truth "tokens that fit" "d.usage.prompt_tokens == 1020 and d.usage.completion_tokens <= 4 and
        (d.usage.completion_tokens == 4 or d.choices[1].finish_reason == 'stop')"
done
refused completions 400 "{\"prompt\":[$long],\"max_tokens\":5}" 'positions'

# Requests at the same time get the answers that they get alone.
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    printf '{"prompt":"%s and then","max_tokens":%d,"temperature":0}' "$(seq $i | tr '\n' ' ')" $((3 * i)) >body$i
    curl -s -m 60 -d @body$i "$url/completions" | sed 's/.*"choices"//' >alone$i
done
pids=
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    curl -s -m 60 -d @body$i "$url/completions" >raw$i &
    pids="$pids $!"
done
wait $pids
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    is "text $i among others" "$(sed 's/.*"choices"//' raw$i)" "$(cat alone$i)"
done
curl -s "$root/health" >out
truth "prompts that were cached" "d.prompt_tokens_reused > 0 and d.running == 0 and d.queued == 0"

# Mistakes and hostile requests.
refused chat/completions 400 '{"messages":[{"role":"user"' 'request:1:'
refused chat/completions 400 '[]' 'expected a JSON object'
refused chat/completions 400 '{"messages":[]}' '"param":"messages"'
refused chat/completions 400 '{"messages":[{"role":"alien","content":"x"}]}' 'alien'
refused chat/completions 400 '{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"a"}}]}]}' 'parts of type text'
lacks out hint
refused chat/completions 400 "{$hello,\"temperature\":-1}" '"param":"temperature"'
refused chat/completions 400 "{$hello,\"max_tokens\":0}" '"param":"max_tokens"'
refused chat/completions 400 "{$hello,\"n\":1e9}" '"param":"n"'
refused chat/completions 400 "{$hello,\"stop\":[\"\"]}" '"param":"stop"'
refused chat/completions 400 "{$hello,\"top_logprobs\":5}" '"param":"top_logprobs"'
refused chat/completions 400 "{$hello,\"logit_bias\":{\"5\":1}}" 'logit_bias: only {} is supported'
refused chat/completions 400 "{$hello,\"frobnicate\":1}" "unknown member 'frobnicate'"
refused chat/completions 400 "{$hello,\"max_tokens\":900000}" 'positions'
refused chat/completions 404 "{$hello,\"model\":\"other\"}" '"code":"model_not_found"'
refused chat/completions 400 "{$hello,\"stream\":true,\"stream_options\":{\"include_usage\":1}}" \
    'stream_options.include_usage: expected true or false'
ask chat/completions "{$hello,\"max_tokens\":1,\"model\":null,\"tool_choice\":null,\"stream\":true,\"stream_options\":{\"include_usage\":null}}"
is "status of members that are null" "$status" 200
lacks out '"usage"'
refused completions 400 '{"prompt":[1,-5]}' '"param":"prompt"'
refused completions 400 '{"prompt":[99999999]}' 'token 1 of the prompt is 99999999'
refused completions 400 '{"prompt":"a\u0000b"}' 'NUL'
refused completions 400 "$(printf '{"prompt":%01000d' 0 | tr 0 '[')" 'request:1:'
refused nowhere 404 '{}' 'no such path: /v1/nowhere'
is "GET of a path for POST" "$(curl -s -o out -w '%{http_code}' "$url/completions")" 405
curl -s -I "$root/health" >headers
has headers "HTTP/1.1 200"
is "HEAD of a path for POST" "$(curl -s -o out -w '%{http_code}' -I "$url/completions")" 405
curl -s -D headers -X OPTIONS "$url/completions" >out
has headers "HTTP/1.1 204"
has headers "Allow: POST, OPTIONS"
lacks headers Access-Control
head -c 17000000 /dev/zero >large
ask completions '' --data-binary @large
is "a body that is too large" "$status" 413
ask completions '' --data-binary @large -H 'Transfer-Encoding: chunked' -H 'Expect:'
is "a body of unknown size that is too large" "$status" 413
printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n{"pro' |
    curl -s -m 1 "telnet://${root#http://}" >raw
printf '\0\377GARBAGE\r\n\r\n' | curl -s -m 1 "telnet://${root#http://}" >raw
ask completions '{"prompt":"One","max_tokens":2}'
is "an answer after all this" "$status" 200

# A client that leaves gives its place to others.
curl -sN -m 0.5 -d '{"prompt":"One","n":100,"max_tokens":100,"temperature":2,"stream":true}' "$url/completions" >part
curl -s -m 0.5 -d '{"prompt":"One","n":100,"max_tokens":100,"temperature":2}' "$url/completions" >part
await eval 'curl -s "$root/health" | grep -q "\"queued\":0,\"running\":0"'

# One that closes only its sending side cannot be told from it, but reads why it gets no answer.
command -v python3 >dd || echo "skipped: clients that close one side: there is no python3"
for stream in false true; do
    command -v python3 >dd || break
    python3 - "${root#http://}" $stream >out 2>&1 <<'END' || is "a client that closes one side" "$(cat out)" "an answer"
import http.client, socket, sys

is_stream = sys.argv[2] == "true"
connection = http.client.HTTPConnection(sys.argv[1], timeout=60)
connection.request("POST", "/v1/completions", '{"prompt":"One","n":100,"max_tokens":900,"temperature":2,"stream":%s}' % sys.argv[2])
side = connection.sock
if not is_stream:
    side.shutdown(socket.SHUT_WR)
answer = connection.getresponse()
if is_stream:
    answer.readline()
    side.shutdown(socket.SHUT_WR)
print(answer.status, answer.read().decode()[-1000:])
END
    has out '{"error":{"message":"the client closed its side of the connection'
    [ $stream = true ] || is "status of a client that closes one side" "$(cut -d ' ' -f 1 out | head -n 1)" 499
    await eval 'curl -s "$root/health" | grep -q "\"queued\":0,\"running\":0"'
done

# SIGTERM: what is under way is finished.
curl -s -m 60 -d '{"prompt":"One","n":64,"max_tokens":60,"temperature":2}' "$url/completions" >last &
client=$!
await eval '[ -s last ] || curl -s "$root/health" | grep -q "\"running\":1"'
stop
wait $client
has last '"index":63'
curl -s -m 2 "$root/health" >out && is "a server that has ended" answers silent

# A bounded queue, and a key.
start --max-batch 1 --max-queue 1 --api-key 'one key' --allow-origin https://chat.example
curl -s -D headers -X OPTIONS -H 'Origin: https://chat.example' -H 'Access-Control-Request-Method: POST' "$url/chat/completions" >out
has headers "HTTP/1.1 204"
has headers "Access-Control-Allow-Origin: https://chat.example"
has headers "Access-Control-Allow-Methods: POST, OPTIONS"
has headers "Access-Control-Allow-Headers: Authorization, Content-Type"
has headers "Vary: Origin"
# asked HEADERS: a preflight for them
asked() {
    curl -s -D headers -X OPTIONS -H 'Origin: https://chat.example' -H "Access-Control-Request-Headers: $1" "$url/chat/completions" >out
}
asked 'authorization,content-type, x-stainless-lang'
has headers "Access-Control-Allow-Headers: authorization,content-type, x-stainless-lang"
asked 'authorization,x:y'
has headers "Access-Control-Allow-Headers: Authorization, Content-Type"
curl -s -D headers "$url/models" >out
has headers "HTTP/1.1 401"
has headers "Access-Control-Allow-Origin: https://chat.example"
is "no key" "$(curl -s -o out -w '%{http_code}' -d '{"prompt":"One"}' "$url/completions")" 401
has out '"code":"invalid_api_key"'
is "a wrong key" "$(curl -s -o out -w '%{http_code}' -H 'Authorization: Bearer one' "$url/models")" 401
is "the key" "$(curl -s -o out -w '%{http_code}' -H 'Authorization: Bearer one key' "$url/models")" 200
is "the key, from elsewhere" "$(curl -s -o out -w '%{http_code}' -H 'Authorization: Bearer one key' -H 'Host: nrl.example' \
    -H 'Origin: https://other.example' "$url/models")" 200
is "health without a key" "$(curl -s -o out -w '%{http_code}' "$root/health")" 200
pids=
for i in 1 2 3 4 5 6; do
    curl -s -m 60 -o out$i -w '%{http_code}\n' -H 'Authorization: Bearer one key' \
        -d '{"prompt":"One","n":64,"max_tokens":60,"temperature":2}' "$url/completions" >status$i &
    pids="$pids $!"
done
wait $pids
cat status? >statuses
has statuses 200
has statuses 429
grep -h -F '"code":"queue_full"' out? >out || is "an error of a full queue" none one
stop

# A network without a key: any Host, but of other sites only the one that is allowed.
start --host 0.0.0.0 --allow-origin https://chat.example
for origin in https://chat.example http://nrl.example https://nrl.example; do
    ask completions "$short" -H 'Host: nrl.example' -H "Origin: $origin"
    is "status with Origin: $origin" "$status" 200
done
ask completions "$short" -H 'Host: nrl.example' -H 'Origin: https://other.example'
is "status with another Origin" "$status" 403
stop

# A client that leaves while its request waits gives its place in the queue to another one.
start --max-batch 1 --max-queue 1
curl -s -m 60 -d '{"prompt":"One","n":100,"max_tokens":900,"temperature":2}' "$url/completions" >part &
first=$!
await eval 'curl -s "$root/health" | grep -q "\"running\":1"'
curl -s -m 60 -d '{"prompt":"One","max_tokens":2}' "$url/completions" >part2 &
second=$!
await eval 'curl -s "$root/health" | grep -q "\"queued\":1"'
kill $second
await eval 'curl -s "$root/health" | grep -q "\"queued\":0,\"running\":1"'
curl -s -m 60 -o out -w '%{http_code}' -d '{"prompt":"One","max_tokens":2}' "$url/completions" >status &
third=$!
await eval 'curl -s "$root/health" | grep -q "\"queued\":1"'
kill $first
wait $third
is "status of a request that takes the place" "$(cat status)" 200
stop

# A request whose logits are not finite fails alone: token 300 has an embedding of NaN.
sed 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' "$source/configs/models/tiny.json" >untied.json
run 0 run "$source/configs/sft.yaml" train.epochs=0 train.steps=1 data.eval=null eval.every=0 out=untied "$one_thread" \
    "model={config: untied.json, tokenizer: $source/configs/models/tiny-tokenizer}"
weights=untied/model/model.safetensors
header=$(od -An -tu8 -N8 $weights | tr -d ' ')
table=$(head -c $((8 + header)) $weights | tail -c $header | sed 's/.*"model.embed_tokens.weight":{[^}]*"data_offsets":\[\([0-9]*\),.*/\1/')
printf '\377\377\377\377' | dd of=$weights bs=1 seek=$((8 + header + table + 300 * 64 * 4)) conv=notrunc 2>dd
served=untied/model
start
good='{"prompt":[70,71,72],"max_tokens":900,"temperature":0}'
ask completions "$good"
has out '"finish_reason":"length"'
sed 's/.*"choices"//' out >alone
curl -s -m 60 -d "$good" "$url/completions" >beside &
client=$!
await eval '[ -s beside ] || curl -s "$root/health" | grep -q "\"running\":1"'
refused completions 500 '{"prompt":[70,300],"max_tokens":2}' 'is not finite'
wait $client
is "a request beside one that failed" "$(sed 's/.*"choices"//' beside)" "$(cat alone)"
ask completions "$good"
is "a request after one that failed" "$(sed 's/.*"choices"//' out)" "$(cat alone)"
curl -sN -m 60 -d '{"prompt":[70,300],"max_tokens":2,"stream":true}' "$url/completions" >stream
has stream '"type":"server_error"'
stop

run 2 serve model --port 99999
has err "--port: '99999': expected a number from 0 to 65535"
run 2 serve nowhere
exit $failed
