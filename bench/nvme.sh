#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares the NVMe store with fio and writes bench/results/nvme.txt.
#
#   bench/nvme.sh [BUILD [DIRECTORY [ROUNDS]]]
#
# BUILD is a build folder with bench_nvme (build/release), DIRECTORY where a folder for the files is
# made (build), which is removed at the end, ROUNDS at least 20. Takes about six minutes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${1:-build/release}
above=${2:-build}
mkdir -p "$above"
directory=$(mktemp -d "$above/bench-nvme.XXXXXX")
rounds=${3:-24}
result="$here/results/nvme.txt"
pages=/proc/sys/vm/nr_hugepages
pages_before=

finish() {
  rm -rf "$directory"
  rm -f "$result.new"
  if [ -n "$pages_before" ]; then
    echo "$pages_before" >"$pages"
  fi
}
trap finish EXIT
trap 'exit 130' INT TERM

# fio's buffers in huge pages: reserved ones where we may, else transparent ones by malloc.
memory=malloc
export GLIBC_TUNABLES=glibc.malloc.hugetlb=1
if [ -w "$pages" ]; then
  before=$(cat "$pages")
  if [ "$before" -lt 20 ]; then
    pages_before=$before
    echo 20 >"$pages"
  fi
  if [ "$(cat "$pages")" -ge 20 ]; then
    memory=shmhuge
    unset GLIBC_TUNABLES
  fi
fi

mkdir -p "$here/results"
{
  echo "\$ bench/nvme.sh $build $above $rounds"
  echo "$(uname -sr), $(nproc) processors, $(fio --version) with --iomem=$memory"
  timeout 900 "$build/bench/bench_nvme" "$directory" "$memory" "$rounds"
} >"$result.new"
mv "$result.new" "$result"
cat "$result"
