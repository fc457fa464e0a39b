#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# arm64.sh TEST SOURCE SCRATCH FLAGS VECTOR_FLAGS: builds the unit test TEST (vectors or team) for
# arm64 and runs it under an emulator of the processor, not of the machine: a second or two. For the
# other libraries a machine has no arm64 packages, so the programs take the C library alone, linked
# in. FLAGS are those of every source, VECTOR_FLAGS those that vector.c takes besides.
set -euo pipefail

name=$1 source=$2 scratch=$3
read -ra flags <<<"$4"
read -ra vector_flags <<<"$5"

skip() {
  printf 'arm64: skipped without %s; Debian: %s\n' "$1" "$2"
  exit 77
}

cc=$(command -v aarch64-linux-gnu-gcc) || skip "a compiler for arm64" gcc-aarch64-linux-gnu
emulator=$(command -v qemu-aarch64 || command -v qemu-aarch64-static) ||
  skip "an emulator of arm64" qemu-user
mkdir -p "$scratch"
cd "$source"
printf '#include <math.h>\nint main(void) { return 0; }\n' >"$scratch/empty.c"
"$cc" -static -o "$scratch/empty" "$scratch/empty.c" 2>"$scratch/empty.log" ||
  skip "a C library for arm64" libc6-dev-arm64-cross

flags+=(-std=c11 -D_GNU_SOURCE -O2 -Iinclude -I. -Itests/arm64)
parts=()
if [[ $name == vectors ]]; then
  parts=(train/kernels/vector_best.c)
  for table in plain plain_bf16; do
    bf16=0
    [[ $table != *_bf16 ]] || bf16=1
    "$cc" "${flags[@]}" "${vector_flags[@]}" -DVECTOR_TABLE="vector_table_$table" \
      -DVECTOR_NAME="\"$table\"" -DVECTOR_BF16=$bf16 -c -o "$scratch/$table.o" \
      train/kernels/vector.c
    parts+=("$scratch/$table.o")
  done
fi
"$cc" "${flags[@]}" -static -o "$scratch/$name" "tests/unit/$name.c" "${parts[@]}" device/team.c \
  base/{assert,clock,counter,log,random}.c -lm -lpthread
"$emulator" "$scratch/$name"
