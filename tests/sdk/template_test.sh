#!/usr/bin/env bash
# The template of a plugin repository, copied out of the tree and renamed awkwardly: it builds
# against a moved prefix only, passes its tests and the conformance of its kind, and trains.
set -euo pipefail
source tests/sdk/common.sh
steps=5
enter template

"$prefix/bin/keyseat" list >"$work/list.txt"
[ "$(grep -c ' ok ' "$work/list.txt")" -ge 8 ] || { cat "$work/list.txt"; fail "plugins of the prefix"; }
grep -q "$checkout" "$work/list.txt" && fail "the prefix finds plugins of the checkout"

say "a name that is none is refused, and changes nothing"
cp -r "$prefix/share/keyseat/template" "$work/template"
(cd "$work/template" && ! ./rename dispatcher Not-A-Name 2>/dev/null && ! ./rename optimizer fine 2>/dev/null)
diff -r "$prefix/share/keyseat/template" "$work/template" || fail "a refused rename changed files"

# The awkward names hold the template's own name, digits and runs of _.
for plugin in dispatcher/x9__of_two_example_words block/example2_1__b; do
  kind=${plugin%%/*} name=${plugin##*/}
  say "$plugin: copy, rename, build, test, list, describe, check, train"
  new_repository "$kind" "$name"
  (cd "$work/$name" && .ci/run "$prefix" 2) || fail ".ci/run of $plugin"
  grep -q "$checkout/" "$work/$name/build/build.ninja" && fail "$plugin was built with files of the checkout"
  # Through a file: grep -q closes a pipe at the first match, and the command would die of that.
  "$prefix/bin/keyseat" list --json --plugin-dir "$work/$name/build/plugins" >"$work/list.json"
  grep -q "\"name\": *\"$name\"" "$work/list.json" || fail "$plugin is not listed"
done

say "the dispatcher gives the losses of dispatcher/local"
dispatcher=$work/x9__of_two_example_words
train_digits "$work/runs/local" $steps >/dev/null
train_digits "$work/runs/own" $steps --overlay "$dispatcher"/plugins/*/*/digits.toml 2>"$work/own.log" >/dev/null
grep -q "loading dispatcher/x9__of_two_example_words from $dispatcher/build/plugins" "$work/own.log" ||
  fail "the run did not load the plugin"
[ "$(losses "$work/runs/own" | wc -l)" = $steps ] || fail "the run has no loss per step"
diff <(losses "$work/runs/local") <(losses "$work/runs/own") || fail "the losses differ"

say "the projector learns"
block=$work/example2_1__b
train_digits "$work/runs/block" 12 --overlay "$block"/plugins/*/*/digits.toml 2>"$work/block.log" >/dev/null
grep -q "loading block/example2_1__b from $block/build/plugins" "$work/block.log" || fail "the run did not load the plugin"
losses "$work/runs/block" | awk 'NR == 1 {first = $1} {last = $1} END {exit !(last < 0.7 * first)}' ||
  { losses "$work/runs/block"; fail "the loss does not fall"; }
"$prefix/bin/keyseat" eval "$prefix/share/keyseat/configs/runs/digits.toml" --overlay "$block"/plugins/*/*/digits.toml \
  --set run.dir="$work/runs/block" --set eval.samples=8 >/dev/null || fail "eval"
rm -rf "$work/template" "$work/runs"
echo "both plugins are built, checked and trained out of the tree"
