#!/usr/bin/env bash
# A plugin compiled by clang, against the core that g++ compiled: it loads, with a warning about the
# compiler, passes the conformance of its kind, and gives the losses of the one that g++ compiled.
set -euo pipefail
command -v clang++ >/dev/null || { echo "no clang++ here (tools/setup --clang installs it)"; exit 77; }
source tests/sdk/common.sh
steps=5
enter clang
name=by_clang
new_repository dispatcher $name

say "building with $(clang++ --version | head -1)"
cd "$work/$name"
CXX=clang++ cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" >"$work/clang.log" &&
  cmake --build build >>"$work/clang.log" || { tail -40 "$work/clang.log"; fail "the build"; }
ctest --test-dir build --output-on-failure || fail "the plugin's own tests"
cd "$checkout"

say "check"
library=$work/$name/build/plugins/keyseat_dispatcher_$name.so
"$prefix/bin/keyseat" check "$library" | tee "$work/check.txt"
grep -q "warning: .*clang" "$work/check.txt" || fail "no warning that the compilers differ"

say "train"
train_digits "$work/runs/local" $steps >/dev/null
train_digits "$work/runs/clang" $steps --overlay "$work/$name/plugins/dispatcher/$name/digits.toml" 2>"$work/clang.log" >/dev/null
grep -q "loading dispatcher/$name from $library" "$work/clang.log" || fail "the run did not load the plugin"
[ "$(losses "$work/runs/clang" | wc -l)" = $steps ] || fail "the run has no loss per step"
diff <(losses "$work/runs/local") <(losses "$work/runs/clang") || fail "the losses differ"
rm -rf "$work/runs"
echo "a plugin by clang loads, conforms and trains"
