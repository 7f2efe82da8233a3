#!/bin/sh
# homes.sh ROOT: each third-party header, and each call that is restricted to one place, is only used there.
set -u
cd "$1" || exit 1
bad=0

# home HEADER-REGEX ALLOWED-PATH-REGEX
home() {
    if grep -rnE "^ *# *include *[<\"]$1[>\"]" lib core cli tools plugins --include='*.[ch]' --include='*.cpp' --include='*.cu' |
        grep -vE "^($2)"; then
        echo "  ^ $1 belongs to $2"
        bad=1
    fi
}
home 'dlfcn\.h' 'core/plugin/|plugins/(backends/cuda|collectives/nccl)/'
home 'yaml\.h' 'lib/base/yaml\.c'
home 'jansson\.h' 'lib/base/json\.c'
home 'l(ua|ualib|auxlib)\.h(pp)?' 'plugins/(frontends/lua|algorithms/grpo)/'
home 'pcre2\.h' 'plugins/adapters/lora/|plugins/tokenizers/bpe/'
home 'utf8proc\.h' 'plugins/(tokenizers/bpe|templates/jinja)/'
home 'sodium\.h' 'lib/base/(hash|secret|sign)\.c'
home 'zlib\.h' 'plugins/datasets/common/'
home '(arrow|parquet)/[^>"]*' 'plugins/datasets/parquet/'
home 'microhttpd\.h' 'plugins/loggers/prometheus/|tools/(serve/http|watch/watch_serve)\.c'
home 'curl/curl\.h' 'plugins/loggers/mlflow/|tools/download/'
home 'lzma\.h' 'plugins/datasets/common/'
home 'zstd(_errors)?\.h' 'lib/base/codec\.c|plugins/datasets/common/'
home '(oneapi/)?dnnl[^>"]*' 'plugins/backends/cpu/'
home 'uv\.h' 'plugins/collectives/gloo/'
home 'nccl\.h' 'plugins/collectives/nccl/'
home 'cu(da|blas|dnn)[^>"]*' 'plugins/backends/cuda/|plugins/collectives/nccl/'

# only_in WHAT REGEX ALLOWED-PATH-REGEX FOLDERS
only_in() {
    if grep -rnE "$2" $4 --include='*.[ch]' | grep -vE "^($3)" | grep -vE '^[^:]*:[0-9]+: *(/?\*|//)'; then
        echo "  ^ $1 only in $3"
        bad=1
    fi
}
only_in 'ending the process' '(^|[^a-zA-Z_.>])(_?[eE]xit|abort|quick_exit) *\(' \
    '(cli|tools)/|lib/base/arena\.c|core/api/status\.c|lib/base/apart\.c|lib/profiling/links\.c|lib/testing/conformance/(conformance|report|store)\.c' 'lib core cli tools plugins'
only_in 'reading the environment' '(^|[^a-zA-Z_.>])(secure_)?getenv *\(' '(cli|tools)/|lib/base/file\.c|plugins/(collectives/gloo/address|algorithms/grpo/reward)\.c' 'lib core cli tools plugins'
only_in 'the preprocessor asking for CUDA' '^ *# *if.*CUDA' 'plugins/(backends/cuda|collectives/nccl)/' 'lib core cli tools plugins'
exit $bad
