#!/bin/sh
# man.sh NRL VERSION FILE: writes the manual page nrl(1) to FILE, and nrl-VERB(1) of each verb beside it, from the output of
# `nrl help` and `nrl help VERB`.
set -eu
nrl=$1 version=$2 file=$3

# Plain text: characters with a meaning in roff are escaped.
verbatim() {
    printf '.nf\n'
    sed 's/\\/\\e/g; s/-/\\-/g; s/`/\\(ga/g; s/^\([.'"'"']\)/\\\&\1/'
    printf '.fi\n'
}

exec >"$file"
help=$(PATH= "$nrl" help) # excludes programs of this machine
cat <<ROFF
.TH NRL 1 "" "nrl $version" "User Commands"
.SH NAME
nrl \\- fine\\-tune language models from a config or a Lua script
.SH SYNOPSIS
.B nrl
.I VERB
.RI [ argument " ...]"
.SH DESCRIPTION
ROFF
printf '%s\n' "$help" | verbatim
# those with an example, and those that are listed by name alone
verbs=$(printf '%s\n' "$help" | sed -n 's/^  nrl \([a-z][a-z-]*\).*/\1/p; s/^  and nrl //p' | tr -s ', ' '\n\n' | awk '!seen[$0]++')
for verb in $verbs; do
    printf '.SH "NRL %s"\n' "$(printf %s "$verb" | tr '[:lower:]' '[:upper:]')"
    "$nrl" help "$verb" | verbatim
done
cat <<'ROFF'
.SH ENVIRONMENT
.TP
.B NRL_PLUGIN_PATH
directories that are searched for plugins first, separated by colons
.TP
.BR NRL_NO_PLUGINS_FROM_CONFIG ", " NRL_NO_SCRIPTS
1: as \-\-no\-plugins\-from\-config and \-\-no\-scripts, for every command
.TP
.BR NRL_JOB_SECRET_FILE ", " NRL_JOB_SECRET
the secret by which the ranks of a job know each other
.TP
.B OMP_NUM_THREADS
threads of a rank on the cpu backend
.SH LICENSE
Apache License, Version 2.0
ROFF

for verb in $verbs; do
    page=$("$nrl" help "$verb")
    exec >"$(dirname "$file")/nrl-$verb.1"
    printf '.TH NRL-%s 1 "" "nrl %s" "User Commands"\n.SH NAME\n' "$(printf %s "$verb" | tr '[:lower:]' '[:upper:]')" "$version"
    printf '%s\n' "$page" | sed -n '1s/^nrl \([a-z-]*\) - \(.*\)/nrl\\-\1 \\- \2/p'
    printf '.SH DESCRIPTION\n'
    printf '%s\n' "$page" | sed '1,2d' | verbatim
    printf '.SH SEE ALSO\n.BR nrl (1)\n'
done
