#!/bin/sh
# Builds a variant of the project in a folder of its own and runs its tests there.
#   subbuild_test.sh SOURCE BUILD [cmake options]
set -eu
source=$1 build=$2
shift 2
cmake -S "$source" -B "$build" -G Ninja "$@" >"$build.log" 2>&1 || { tail -n 20 "$build.log"; exit 1; }
ninja -C "$build" >"$build.log" 2>&1 || { grep -E 'error|FAILED' "$build.log" | head -n 40; exit 1; }
ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$(nproc)"
