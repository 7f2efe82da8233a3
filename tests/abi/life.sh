#!/bin/sh
# life.sh CMAKE CC: the life of a plugin with an installed nrl: the example repository is built, tested and installed,
# from its folder, an archive and a file; listed, used by its name, and removed. Archives that lead out are refused.
. "$(dirname "$0")/installed.sh"
repository=$prefix/share/nrl/examples/repository
export XDG_DATA_HOME="$work/data" CC="$cc" PATH="$(dirname "$cmake"):$PATH"
user=$work/data/nrl/plugins
mkdir "$work/tmp"
export TMPDIR="$work/tmp"

# ---- the repository, and the guide ----
for page in plugins/index.md plugins/README.md plugins/loggers.md security.md; do
    [ -f "$prefix/share/doc/nrl/$page" ] || is "the installed guide" "without $page" "with it"
done
for file in .gitignore .github/workflows/ci.yml README.md; do
    [ -f "$repository/$file" ] || is "the example repository" "without $file" "with it"
done
build "$repository" built 3
"$cmake" --install built --prefix "$work/beside" >log 2>&1 || is "cmake --install" "$(cat log)" works
[ -f beside/lib/nrl/loggers/table.so ] || is "what cmake --install made" "$(find beside)" lib/nrl/loggers/table.so
readelf -d beside/lib/nrl/loggers/table.so | grep -q "R.*PATH.*$prefix/lib" || is "the path of its libraries" none "$prefix/lib"

# ---- a folder of sources ----
run 0 plugins list
has out "no plugins in $user"
run 0 plugins install "$repository"
has out "building $repository with cmake, which runs the commands in its CMakeLists.txt"
has out "logger table 1.0: $user/loggers/table.so"
run 0 plugins list
has out "loggers/table 1.0"
has out "sha256:$(sha256sum "$user/loggers/table.so" | cut -c1-64)"
run 0 plugins list --json
has out '"path": "'"$user/loggers/table.so"'"'
run 0 plugins
has out "$user/loggers/table.so"
run 0 describe table
has out "which value is written"
run 0 run "$prefix/share/nrl/configs/sft.yaml" train.epochs=0 train.steps=2 eval.every=0 checkpoint.every=0 "$one_thread" out=trained \
    'loggers=[{name: table, value: lr}]'
is "lines of the table" "$(wc -l <trained/table.csv)" 3
run 2 run "$prefix/share/nrl/configs/sft.yaml" "$one_thread" out=denied 'loggers=[table]' 'plugins.allow=[]'
has err "plugins.allow contains neither its name nor its hash"

# ---- once more ----
run 2 plugins install built/plugins/loggers/table.so
has err "cannot install logger 'table': $user/loggers/table.so exists"
run 0 plugins install built/plugins/loggers/table.so --overwrite
run 0 plugins remove loggers/table
has out "removed $user/loggers/table.so"
run 2 plugins remove table
has err "no plugin 'table' in $user"
run 2 describe table

# ---- a folder of built files, an archive of sources ----
run 0 plugins install built/plugins
run 0 plugins remove table
tar -czf table.tar.gz -C "$prefix/share/nrl/examples" repository
run 0 plugins install table.tar.gz
has out "logger table 1.0: $user/loggers/table.so"
run 0 plugins remove table

# ---- what is refused ----
mkdir -p sources/loggers && cp built/plugins/loggers/table.so sources/loggers/
tar -cf up.tar -P --transform 's|^sources|../sources|' sources
run 2 plugins install up.tar
has err "cannot install the archive: '../sources/' is outside of it"
tar -cf absolute.tar -P "$work/sources"
run 2 plugins install absolute.tar
has err "is outside of it"
ln -s /etc sources/etc && tar -cf link.tar sources
run 2 plugins install link.tar
has err "it contains a link that points outside"
rm sources/etc && mkfifo sources/pipe && tar -cf pipe.tar sources
run 2 plugins install pipe.tar
has err "neither a regular file nor a directory"
rm sources/pipe && ln -s table.so sources/loggers/same.so && tar -cf inside.tar sources
run 1 plugins install inside.tar # the link is one of the archive's own, under a name that is not the plugin's
has err "has the name 'table' in its table; expected 'same'"
echo text >broken.so
run 1 plugins install broken.so
has err "broken.so: cannot be opened"
echo text >archive.txt
run 1 plugins install archive.txt
has err "tar failed:"
mkdir none
run 2 plugins install none
has err "cannot install 'none': it contains no plugin"
run 2 plugins install nowhere
echo 'message(FATAL_ERROR "not today")' >none/CMakeLists.txt
run 1 plugins install none
has err "not today"
run 2 plugins remove ../table
[ -z "$(ls -d "$TMPDIR"/nrl-plugins-install-* 2>/dev/null)" ] || is "temporary folders" left none
env -u XDG_DATA_HOME -u HOME "$nrl" plugins list >out 2>err
is "exit code without a home" $? 2

# ---- a program that is not installed ----
nrl=$NRL_TEST_BUILD/bin/nrl
run 0 plugins install "$source/examples/gce"
has out "algorithm gce "
run 0 plugins remove gce
run 0 plugins new algorithm mine mine
sed -n 's/^[a-z]* it: *//p' out >next.sh
is "the commands that come next" "$(wc -l <next.sh)" 3
sh -e next.sh >log 2>&1 || is "the commands that come next" "$(cat log)" "those that work"
has log "strength"
exit $failed
