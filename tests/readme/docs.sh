#!/bin/sh
# docs.sh PAGE CMAKE CC: does what a page of docs/ says, in the page's order and in one folder, with this build installed.
#   ```sh                    is run, and must succeed; but `# exit N` at the end of a line's comment expects N of that line
#   ```yaml title="FILE"     (or any language) is that file from here on
#   ```lua without a title, ```yaml, ```json, ```text ... are not run: they show a form or an output
# The folder holds what a checkout has: configs, scripts, examples. A page that needs files beside the checkout names them in
# a comment, <!-- needs: shared/... -->, and is skipped without them; so is one that needs a program, <!-- needs program: NAME -->.
set -u
page=$1 cmake=$2 cc=$3
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
for need in $(sed -n 's/^<!-- needs: \(.*\) -->$/\1/p' "$page"); do
    [ -e "$NRL_TEST_SHARED/${need#shared/}" ] || { echo "skipped: $need is not there"; exit 77; }
done
for program in $(sed -n 's/^<!-- needs program: \(.*\) -->$/\1/p' "$page"); do
    command -v "$program" >/dev/null || { echo "skipped: there is no $program"; exit 77; }
done
"$cmake" --install "$NRL_TEST_BUILD" --prefix "$work/prefix" >"$work/log" || { cat "$work/log"; exit 1; }
mkdir "$work/here" && cd "$work/here" || exit 1
cp -r "$NRL_TEST_SOURCE/configs" "$NRL_TEST_SOURCE/scripts" "$NRL_TEST_SOURCE/examples" .
[ ! -d "$NRL_TEST_SHARED" ] || ln -s "$NRL_TEST_SHARED" shared
export PATH="$work/prefix/bin:$(dirname "$cmake"):$PATH" CC="$cc" CFLAGS="-Wall -Wextra -Werror"
export CMAKE_PREFIX_PATH="$work/prefix" PKG_CONFIG_PATH="$work/prefix/lib/pkgconfig" OMP_NUM_THREADS=1
export LD_LIBRARY_PATH="$work/prefix/lib" PYTHONPATH="$work/prefix/lib/python3/dist-packages"
export XDG_DATA_HOME="$work/data" # of plugins that a page installs
unset NRL_PLUGIN_PATH 2>"$work/log" || true

# The blocks, each in a file: N.sh, or N.file and its name in N.name.
awk -v out="$work/block" '
    on && /^ *```[ \t]*$/ { on = 0; close(file); next }
    on { print >file; next }
    /^ *```[a-z]/ {
        on = 1
        language = $1; sub(/^`+/, "", language)
        number = sprintf("%s%03d", out, ++n)
        file = "/dev/null"
        if (match($0, /title="[^"]*"/)) {
            file = number ".file"; print substr($0, RSTART + 7, RLENGTH - 8) >(number ".name"); close(number ".name")
        } else if (language == "sh") file = number ".sh"
        if (file != "/dev/null") printf "" >file
    }' "$page"

n_run=0
for block in "$work"/block*; do
    case $block in
    *.name)
        file=$(cat "$block")
        mkdir -p "$(dirname "$file")" && cp "${block%.name}.file" "$file" || exit 1
        ;;
    *.sh)
        n_run=$((n_run + 1))
        # the exit code that a line expects is checked behind it
        sed 's/^\(.*[^ ]\)  *#.* exit \([0-9][0-9]*\)$/code=0; \1 || code=$?; [ $code -eq \2 ] || { echo "exit $code"; exit 1; }/' \
            "$block" >"$work/run.sh"
        sh -eu "$work/run.sh" >"$work/log" 2>&1 </dev/null && continue
        echo "$page: this block failed:"
        cat "$block"
        echo "--- its output:"
        tail -n 20 "$work/log"
        exit 1
        ;;
    esac
done
echo "$page: $n_run blocks of commands"
