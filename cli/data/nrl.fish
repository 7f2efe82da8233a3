# Completion of nrl for fish.
function __nrl_complete
    set -l words (commandline -opc) (commandline -ct)
    $words[1] complete $words[2..-1] 2>/dev/null
end
complete -c nrl -n 'test (count (commandline -opc)) -eq 1' -f -a '(__nrl_complete)'
complete -c nrl -n 'test (count (commandline -opc)) -gt 1' -a '(__nrl_complete)'
