#!/bin/sh
# The launcher, with stand-ins for the system's tools: what it installs, what it says, what it
# leaves alone. Needs nothing but a shell.
set -u
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
check() { # name, condition already evaluated as $2 (0 = holds)
  if [ "$2" = 0 ]; then echo "ok: $1"; else echo "FAILED: $1"; failures=$((failures + 1)); fi
}
stub() { # name, script body
  printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}
# A copy of the launcher in a tree of its own, so that nothing of the real build is touched.
fresh() {
  rm -rf "$work/bin" "$work/tree" "$work/log"
  mkdir -p "$work/bin" "$work/tree/build/release/bin"
  cp "$root/freeformer" "$work/tree/freeformer"
  for tool in sh dirname readlink sed grep mkdir touch cat tail rm printf env nproc; do
    ln -s "$(command -v $tool)" "$work/bin/$tool" 2>/dev/null
  done
  stub id 'echo 0'
  stub cmake 'echo "cmake $*" >>'"$work/log"'; mkdir -p '"$work/tree/build/fuzz; touch $work/tree/build/release/build.ninja $work/tree/build/fuzz/build.ninja"
  stub ninja 'case "$*" in *" -n "*) echo "ninja: no work to do." ;; *) echo "ninja $*" >>'"$work/log"' ;; esac'
  stub ctest 'echo "ctest $*" >>'"$work/log"
  printf '#!/bin/sh\necho "program $*" >>%s\nexit 7\n' "$work/log" >"$work/tree/build/release/bin/freeformer"
  chmod +x "$work/tree/build/release/bin/freeformer"
}
launch() { TMPDIR="$work" PATH="$work/bin" "$work/tree/freeformer" "$@" >"$work/out" 2>"$work/err"; }
all_packages() { sed -n '/^[a-z_]*_packages=/,/^'"'"'/s/^\([a-z0-9+.-]*\): .*/\1/p' "$root/freeformer" | sort -u; }

fresh # --- everything is there: nothing is installed, the program's words and status pass through
stub apt-get "echo apt-get \$* >>$work/log"
stub dpkg-query "for p in $(all_packages | tr '\n' ' '); do echo installed \$p; done"
launch info --json
check "the program's exit status is ours" "$([ $? = 7 ]; echo $?)"
check "words go to the program" "$(grep -qx 'program info --json' "$work/log"; echo $?)"
check "nothing is installed when nothing is missing" "$(! grep -q apt-get "$work/log"; echo $?)"
check "it configures when there is no build" "$(grep -q '^cmake ' "$work/log"; echo $?)"

fresh # --- one package is missing: that one alone is installed, with its reason
stub apt-get "echo apt-get \$* >>$work/log"
stub dpkg-query "for p in $(all_packages | grep -vx libhwy-dev | tr '\n' ' '); do echo installed \$p; done"
launch test -R core
check "apt-get update runs first" "$(sed -n 1p "$work/log" | grep -q 'apt-get update'; echo $?)"
check "only the missing package is installed" "$(grep 'apt-get install' "$work/log" | grep -q -- '--no-install-recommends libhwy-dev$'; echo $?)"
check "it says what and why" "$(grep -q 'libhwy-dev: vector instructions' "$work/err"; echo $?)"
check "test ends in ctest with the caller's options" "$(tail -n 1 "$work/log" | grep -q '^ctest .*-R core$'; echo $?)"

fresh # --- not root: through sudo
stub id 'echo 1000'
stub sudo "echo sudo \$* >>$work/log; \"\$@\""
stub apt-get "echo apt-get \$* >>$work/log"
stub dpkg-query 'exit 1'
launch info
check "without root it asks sudo" "$(grep -q '^sudo env DEBIAN_FRONTEND=noninteractive apt-get install' "$work/log"; echo $?)"

fresh # --- not root, no sudo: says what to run, and builds if it can
stub id 'echo 1000'
stub apt-get "echo apt-get \$* >>$work/log"
stub dpkg-query 'exit 1'
launch info
check "without root and sudo it goes on" "$([ $? = 7 ]; echo $?)"
check "and says what to run" "$(grep -q 'run: apt-get install' "$work/err"; echo $?)"

fresh # --- the installation fails, and so does the configuration
stub apt-get 'echo "E: Unable to locate package" >&2; exit 100'
stub dpkg-query 'exit 1'
stub cmake 'echo "CMake Error at CMakeLists.txt:1: no fmt"; exit 1'
launch info
check "a failed configuration is status 1" "$([ $? = 1 ]; echo $?)"
check "with apt's own last words" "$(grep -q 'Unable to locate' "$work/err"; echo $?)"
check "and cmake's" "$(grep -q 'no fmt' "$work/err"; echo $?)"
check "and the program does not run" "$(! grep -q '^program' "$work/log" 2>/dev/null; echo $?)"

fresh # --- settings that change are not ignored; those that do not are not repeated
launch info
launch info
check "it configures once" "$([ "$(grep -c '^cmake ' "$work/log")" = 1 ]; echo $?)"
FREEFORMER_CMAKE_ARGS=-DCMAKE_PREFIX_PATH=/opt/torch launch info
check "and again with other arguments" "$(grep -q '^cmake .*-DCMAKE_PREFIX_PATH=/opt/torch' "$work/log"; echo $?)"

fresh # --- a LibTorch of one's own
stub apt-get "echo apt-get \$* >>$work/log"
stub dpkg-query 'exit 1'
FREEFORMER_CMAKE_ARGS=-DCMAKE_PREFIX_PATH=/opt/torch launch info
check "with another LibTorch Debian's is not installed" "$(grep -q 'apt-get install' "$work/log" && ! grep -q libtorch "$work/log"; echo $?)"

fresh # --- through a link from another folder
mkdir -p "$work/elsewhere"
ln -s ../tree/freeformer "$work/elsewhere/ff"
TMPDIR="$work" PATH="$work/bin" "$work/elsewhere/ff" info >"$work/out" 2>"$work/err"
check "it works through a link" "$([ $? = 7 ]; echo $?)"
check "and leaves nothing beside it" "$([ ! -e "$work/elsewhere/build" ]; echo $?)"

fresh # --- fuzzing: every target with its own seeds
mkdir -p "$work/tree/build/fuzz/bin" "$work/tree/tests/fuzz/corpus"
for target in "$root"/tests/fuzz/fuzz_*.cc; do
  name=$(basename "$target" .cc)
  printf '#!/bin/sh\nfor a in "$@"; do case $a in -*) ;; *) [ -d "$a" ] || exit 9 ;; esac; done\necho "ran %s" >>%s\n' "$name" "$work/log" >"$work/tree/build/fuzz/bin/$name"
  chmod +x "$work/tree/build/fuzz/bin/$name"
done
cp -r "$root/tests/fuzz/corpus" "$work/tree/tests/fuzz/"
launch fuzz 1
check "every fuzzer finds its seeds" "$([ $? = 0 ] && [ "$(grep -c '^ran ' "$work/log")" = "$(ls "$root"/tests/fuzz/fuzz_*.cc | wc -l)" ]; echo $?)"

fresh # --- another system: say what is needed, go on
launch info
check "elsewhere it goes on" "$([ $? = 7 ]; echo $?)"
check "and names what it needs" "$(grep -q 'libtorch-dev: ' "$work/err"; echo $?)"

fresh # --- a failing build
stub apt-get "echo apt-get \$* >>$work/log"
stub dpkg-query "for p in $(all_packages | tr '\n' ' '); do echo installed \$p; done"
stub ninja 'echo "error: broken"; exit 1'
launch info
check "a failed build is status 1" "$([ $? = 1 ]; echo $?)"
check "and the program does not run" "$(! grep -q '^program' "$work/log"; echo $?)"

[ "$failures" = 0 ] || { echo "$failures failed"; exit 1; }
