# Completion of nrl for bash. Words are split at blanks only: bash itself also splits at '='.
_nrl() {
    local line=${COMP_LINE:0:COMP_POINT} word candidate prefix=
    local -a words
    read -ra words <<<"$line"
    [[ $line == *[[:blank:]] ]] && words+=("")
    word=${words[-1]}
    [[ $word == *=* ]] && prefix=${word%%=*}= # bash replaces what follows the '='
    COMPREPLY=()
    while IFS=$'\t' read -r candidate _; do
        [[ -n $prefix ]] && candidate=${candidate#"$prefix"}
        COMPREPLY+=("$candidate")
    done < <("${words[0]}" complete "${words[@]:1}" 2>/dev/null)
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    return 0
}
complete -o default -F _nrl nrl
