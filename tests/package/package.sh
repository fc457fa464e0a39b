#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# One step of the package tests: installs a build tree beside it, then uses it as a stranger would.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

fail() {
  printf 'package: %s\n' "$*" >&2
  exit 1
}

# install BUILD SCRATCH CMAKE: everything that the documentation names is there, and the library
# exports nothing but its public functions. The tree is moved once: its files must not care.
step_install() {
  local build=$1 scratch=$2 cmake=$3 file name symbol
  rm -rf "$scratch/first" "$scratch/moved"
  mkdir -p "$scratch"
  "$cmake" --install "$build" --prefix "$scratch/first" >/dev/null
  mv "$scratch/first" "$scratch/moved"
  cd "$scratch/moved"
  for file in share/doc/memrun/LICENSE share/bash-completion/completions/memrun bin/memrun; do
    [[ -s $file ]] || fail "$file was not installed"
  done
  for file in "$here"/../../{include/memrun/*.h,man/*.[1-9]}; do
    name=${file##*/}
    [[ $name == *.h ]] && name=include/memrun/$name || name=share/man/man${name##*.}/$name
    cmp -s "$file" "$name" || fail "$name was not installed"
  done
  bin/memrun --version >/dev/null || fail "the installed memrun does not start"
  while read -r symbol; do
    grep -qw -- "$symbol" include/memrun/*.h || fail "libmemrun.so exports the private $symbol"
  done < <(nm -D --defined-only "$(find . -name libmemrun.so)" | awk '$2 ~ /[TDBR]/ { print $3 }')
}

# cmake SCRATCH CMAKE EXAMPLES...: find_package, a C and a C++ consumer, the examples.
step_cmake() {
  local scratch=$1 cmake=$2 example
  shift 2
  rm -rf "$scratch/consumer"
  "$cmake" -S "$here" -B "$scratch/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/moved" \
    -DEXAMPLES="$(IFS=';' && echo "$*")" >"$scratch/consumer.log" ||
    fail "configuring: $(tail -n 20 "$scratch/consumer.log")"
  "$cmake" --build "$scratch/consumer" >"$scratch/consumer.log" ||
    fail "building: $(tail -n 20 "$scratch/consumer.log")"
  "$scratch/consumer/consumer_c"
  "$scratch/consumer/consumer_cxx"
  for example in "$@"; do
    [[ ! -e $example ]] || (cd "$scratch" && "./consumer/example_$(basename "$example" .c)")
  done
}

# pkg_config SCRATCH CC CXX: the same consumers with what pkg-config says and nothing else.
step_pkg_config() {
  local scratch=$1 cc=$2 cxx=$3 libdir
  libdir=$(dirname "$(find "$scratch/moved" -name memrun.pc)")
  export PKG_CONFIG_PATH=$libdir
  local flags=() libs=()
  read -ra flags < <(pkg-config --cflags memrun)
  read -ra libs < <(pkg-config --libs memrun)
  "$cc" "${flags[@]}" -o "$scratch/pc_c" "$here/consumer.c" "${libs[@]}"
  "$cxx" "${flags[@]}" -o "$scratch/pc_cxx" "$here/consumer.cc" "${libs[@]}"
  LD_LIBRARY_PATH=$(dirname "$libdir") "$scratch/pc_c"
  LD_LIBRARY_PATH=$(dirname "$libdir") "$scratch/pc_cxx"
}

# bare SOURCE SCRATCH CMAKE: a configure that finds nothing optional still builds the library and
# the command, unoptimized in half of the time, and asking for what cannot be had stops with the
# option's name.
step_bare() {
  local source=$1 scratch=$2 cmake=$3 feature
  local bare=$scratch/bare log=$scratch/bare.log
  mkdir -p "$scratch"
  "$cmake" -S "$source" -B "$bare" -G Ninja -DMEMRUN_URING=OFF -DMEMRUN_CUDA=OFF \
    -DMEMRUN_TESTS=OFF -DCMAKE_BUILD_TYPE=Debug >"$log" 2>&1 ||
    fail "configuring: $(tail -n 20 "$log")"
  for feature in uring cuda; do
    grep -qi "$feature *off: MEMRUN_$feature=OFF" "$log" ||
      fail "the summary does not say that $feature is off"
  done
  "$cmake" --build "$bare" --target memrun memrun_cli >"$log" 2>&1 ||
    fail "building: $(tail -n 20 "$log")"
  ! readelf -d "$bare/libmemrun.so" | grep -q liburing || fail "liburing is linked all the same"
  for feature in CUDA MPI NCCL; do
    ! "$cmake" -S "$source" -B "$scratch/refused" -G Ninja -DMEMRUN_$feature=ON -DMEMRUN_NVCC= \
      >"$log" 2>&1 ||
      fail "MEMRUN_$feature=ON was accepted"
    rm -rf "$scratch/refused"
    grep -q "MEMRUN_$feature=ON, but" "$log" || fail "no clear refusal of MEMRUN_$feature=ON"
  done
}

step=$1
shift
"step_$step" "$@"
