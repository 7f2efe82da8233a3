#!/bin/sh
# programs.sh: verbs that are programs: those installed with nrl, and any nrl-NAME on PATH; the program replaces the
# nrl process.
. "$(dirname "$0")/e2e.sh"

mkdir bin
cat >bin/nrl-hello <<'SH'
#!/bin/sh
case ${1:-} in
--help) echo "how to greet" ;;
fail) echo "no greeting" >&2; exit 42 ;;
wait) trap 'echo caught; exit 75' TERM; echo "$$" >pid; while :; do sleep 0.05; done ;;
ignored) sed -n 's/^SigIgn:[^0-9a-f]*//p' /proc/self/status ;;
*) echo "hello $* from $$"; read line && echo "read $line" ;;
esac
SH
chmod +x bin/nrl-hello
printf '#!/bin/sh\necho not this one\n' >bin/nrl-eval
chmod +x bin/nrl-eval
echo 'no program' >bin/nrl-plain
PATH=$PWD/bin:$PATH
export PATH

# arguments, terminal and exit codes are the program's
echo input | "$nrl" hello a 'b c' --flag >out 2>err
is "exit code of a program" $? 0
has out "hello a b c --flag from"
has out "read input"
run 42 hello fail
has err "no greeting"
lacks err "error:"
for words in "hello --help" "help hello"; do
    # shellcheck disable=SC2086
    run 0 $words
    has out "how to greet"
done

# signals: the process that was started is the program
"$nrl" hello wait >waited &
process=$!
await test -s pid
is "process of the program" "$(cat pid)" "$process"
kill -TERM "$process"
wait "$process"
is "exit code after a signal" $? 75
has waited caught
run 0 hello ignored
is "whether SIGPIPE is ignored" "$((0x$(cat out) & 0x1000))" 0

# what comes with nrl is not replaced, and what is there is listed and suggested
run 2 eval nowhere.yaml
lacks out "not this one"
run 0 help
is "lines of programs on PATH" "$(grep '^nrl-VERB' out)" "nrl-VERB on PATH: hello"
run 2 helo
has err "did you mean 'hello'?"
run 1 plain
has err "cannot start 'nrl-plain': Permission denied"
run 2 ../bin/hello
has err "unknown verb '../bin/hello'"
run 2 ""
has err "unknown verb ''"

# a tool by itself is the same verb
"$NRL_TEST_BUILD/libexec/nrl/nrl-report" --help >out 2>err
is "exit code of nrl-report --help" $? 0
has out "example: nrl report"
"$NRL_TEST_BUILD/libexec/nrl/nrl-report" nowhere >out 2>err
is "exit code of nrl-report" $? 2
has err "error: "

# an nrl without its tools says which file is missing
mkdir -p lone/bin lone/lib
cp "$nrl" lone/bin && cp -L "$NRL_TEST_BUILD/lib/libnrl.so.0" "$NRL_TEST_BUILD/lib/libnrl-inference.so.0" lone/lib
LD_LIBRARY_PATH=$PWD/lone/lib lone/bin/nrl eval x.yaml >out 2>err
is "exit code without the program" $? 1
has err "cannot start '"
has err "libexec/nrl/nrl-eval': No such file or directory"
has err "serve needs libmicrohttpd; download and upload need libcurl"
exit $failed
