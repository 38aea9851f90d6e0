#!/usr/bin/env bash
# tools/setup against package tools that are locked, broken or interrupted. apt-get, dpkg and
# dpkg-query are stand-ins that keep their state in a folder; nothing is installed.
set -euo pipefail
scratch=$(mktemp -d "${TMPDIR:-/tmp}/keyseat-setup.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
fail() { echo "FAILED: $*"; echo "--- log"; cat "$scratch/log"; exit 1; }

# A checkout with nothing but the script, and a LibTorch of the right version.
version=$(sed -n 's/^torch==\([^ ]*\).*/\1/p' tools/wheels/cpu.txt)
mkdir -p "$scratch"/{bin,state,copy/tools,torch/torch/{lib,include/torch/headeronly},torch/nvidia/cu13/lib}
cp -r tools/setup tools/wheels "$scratch/copy/tools"
touch "$scratch/torch/torch/lib/libtorch_cpu.so" "$scratch/torch/nvidia/cu13/lib/libcudart.so.13"
printf '  "%s"\n' "$version" >"$scratch/torch/torch/include/torch/headeronly/version.h"

cat >"$scratch/bin/apt-get" <<'END'
#!/usr/bin/env bash
# $STATE/locked: how many calls find the lock taken; $STATE/broken: what to say and fail with.
count=$(cat "$STATE/locked" 2>/dev/null || echo 0)
if [ "$count" -gt 0 ]; then
  echo $((count - 1)) >"$STATE/locked"
  echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 4711 (apt-get)" >&2
  exit 100
fi
[ ! -e "$STATE/broken" ] || { cat "$STATE/broken" >&2; exit 100; }
case " $* " in *' install '*) for word; do case $word in -*) ;; *) touch "$STATE/have.$word" ;; esac; done ;; esac
END
cat >"$scratch/bin/dpkg" <<'END'
#!/usr/bin/env bash
[ ! -e "$STATE/dpkg_locked" ] || { rm "$STATE/dpkg_locked"; echo "dpkg: error: dpkg frontend lock was locked by another process with pid 4711" >&2; exit 2; }
END
cat >"$scratch/bin/dpkg-query" <<'END'
#!/usr/bin/env bash
for name; do :; done
[ -e "$STATE/have.$name" ] && echo installed
END
printf '#!/usr/bin/env bash\nexec "$@"\n' >"$scratch/bin/sudo"
chmod +x "$scratch"/bin/*

setup() { # ARGUMENTS...: with the stand-ins; its output is in $scratch/log
  STATE=$scratch/state PATH=$scratch/bin:$PATH KEYSEAT_LOCK_WAIT=${wait:-60} \
    timeout 120 "$scratch/copy/tools/setup" --libtorch "$scratch/torch" "$@" >"$scratch/log" 2>&1
}
fresh() { rm -rf "$scratch/state" "$scratch/copy/.deps"; mkdir "$scratch/state"; }
says() { grep -q -- "$1" "$scratch/log" || fail "it does not say: $1"; }

fresh
setup || fail "a plain run"
[ -e "$scratch/state/have.cmake" ] || fail "cmake was not installed"
[ ! -e "$scratch/state/have.clang" ] || fail "clang was installed without --clang"
[ "$(readlink "$scratch/copy/.deps/libtorch")" = "$scratch/torch" ] || fail "LibTorch is not linked"
setup --clang || fail "a second run"
[ -e "$scratch/state/have.clang" ] || fail "--clang did not install clang"

fresh
echo 2 >"$scratch/state/locked"
touch "$scratch/state/dpkg_locked"
setup || fail "locks that are released"
says "waits for another process: E: Could not get lock /var/lib/apt/lists/lock. It is held by process 4711"
says "waits for another process: dpkg: error: dpkg frontend lock was locked by another process"
says "done in"

fresh
echo 1000 >"$scratch/state/locked"
if wait=3 setup; then fail "a lock that is never released was ignored"; fi
says "error: apt-get update: another process has held apt's lock for 3 s"

fresh
echo "E: Unable to locate package cmake" >"$scratch/state/broken"
if setup; then fail "a package that cannot be installed was ignored"; fi
says "E: Unable to locate package cmake"
says "error: apt-get update failed"
rm "$scratch/state/broken"
setup || fail "a run behind one that failed"

# apt-get says nothing and installs nothing.
fresh
printf '#!/usr/bin/env bash\n' >"$scratch/bin/apt-get"
if setup; then fail "a package that is missing behind the installation was ignored"; fi
says "but g++ is not installed"

echo "locks, failures and second runs of tools/setup are as they should be"
