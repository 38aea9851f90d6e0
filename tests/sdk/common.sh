# What the tests of the SDK share. They work in a folder with a constant name outside of the tree, so
# that ccache knows it again from one run to the next; a lock keeps two runs apart.
: "${KEYSEAT_BUILD:=$PWD/build/release}"
checkout=$PWD
work=${TMPDIR:-/tmp}/keyseat-sdk-test.$(id -u)
# The space is on purpose: paths have to be quoted.
prefix="$work/moved prefix"
export OMP_NUM_THREADS=1

fail() { echo "FAILED: $*" >&2; exit 1; }
say() { echo "== $*"; }

# enter NAME: locks the folder, removes what an earlier test called NAME left, and installs Keyseat
# into a prefix that is moved afterwards.
enter() {
  mkdir -p "$work"
  chmod 700 "$work"
  exec 8>"$work/lock"
  flock -w 600 8 || fail "another run of these tests is going on"
  rm -rf "${work:?}/$1" "$prefix" "$work/first prefix"
  say "installing into a prefix, moving it"
  cmake --install "$KEYSEAT_BUILD" --prefix "$work/first prefix" >"$work/install.log" 2>&1 ||
    { cat "$work/install.log"; fail "cmake --install"; }
  mv "$work/first prefix" "$prefix"
  # LibTorch lies in the prefix, too, so that nothing of the checkout is left to be found.
  libtorch=$(sed -n 's/^KEYSEAT_LIBTORCH:PATH=//p' "$KEYSEAT_BUILD/CMakeCache.txt")
  ln -s "$(realpath "$libtorch")" "$prefix/libtorch"
}

# new_repository KIND NAME: a copy of the template as somebody's repository, in $work/NAME.
new_repository() {
  rm -rf "${work:?}/$2"
  cp -r "$prefix/share/keyseat/template" "$work/$2"
  (cd "$work/$2" && ./rename "$1" "$2")
  ! grep -rn "example\b" "$work/$2" --include='*' -I | grep -v "_example\|example_" ||
    fail "the template's name is left over in $2"
}

# losses RUN_DIR: the loss of every step.
losses() { sed -n 's/.*"loss" *: *\([-0-9.e+]*\).*/\1/p' "$1/metrics.jsonl"; }

# train_digits RUN_DIR STEPS ARGUMENTS...
train_digits() {
  local dir=$1 steps=$2
  shift 2
  "$prefix/bin/keyseat" train "$prefix/share/keyseat/configs/runs/digits.toml" --set run.dir="$dir" \
    --set run.steps="$steps" --set optimizer.schedule.warmup_steps=1 --set log.every=1 \
    --set data.options.micro_batch_size=16 --set data.options.global_batch_size=16 --overwrite "$@"
}
