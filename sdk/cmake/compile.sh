#!/bin/sh
# Compiler launcher: compile.sh CHECKOUT CCACHE-OR-none COMPILER ARGUMENTS...
#
# - ccache is told to make paths below the checkout relative and to ignore time stamps, so that
#   checkouts at different places share results.
# - An old precompiled header is removed before a new one is made. GCC would otherwise read the old
#   one while it makes the new one (CMake passes -include of the same header), and keep what it held.
# - The digest of the precompiled header is written beside it; ccache then hashes that (PCH_EXTSUM)
#   and not 400 MB for every source file.
checkout=$1
ccache=$2
shift 2
[ "$ccache" = none ] && ccache=

export CCACHE_BASEDIR="$checkout" CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime

made=
previous=
for argument; do
  case $previous in
    -o) case $argument in *.gch | *.pch) made=$argument ;; esac ;;
  esac
  previous=$argument
done
[ -z "$made" ] && exec ${ccache:+"$ccache"} "$@"

rm -f "$made" "$made.sum"
${ccache:+"$ccache"} "$@" || exit
sha256sum <"$made" >"$made.sum.part" && mv "$made.sum.part" "$made.sum"
