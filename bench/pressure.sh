#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures two jobs under less and less device memory and writes, for each, a transcript, JSON and a
# plot to bench/results/pressure-JOB.txt, .json and .svg.
#
#   bench/pressure.sh [BUILD [ROUNDS]]
#
# BUILD is a build folder with memrun (build/release), ROUNDS how often each run is repeated (3). On
# two cores a round takes 9 to 13 minutes; nothing else should run meanwhile. What fails is in the
# transcript, and in the exit status.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${1:-build/release}
rounds=${2:-3}

finish() {
  rm -f "$here"/results/pressure-*.new.*
}
trap finish EXIT
trap 'exit 130' INT TERM

# measure JOB TRAIN_OPTIONS...
measure() {
  result="$here/results/pressure-$1"
  shift
  set -- bench pressure "$@" --batch 4 --seq 256 --budgets 50%,25%,12.5%,min --ablations \
    --rounds "$rounds" --steps 4
  echo "\$ memrun $* --results bench/results/${result##*/}" >"$result.new.txt"
  status=0
  "$build/tools/memrun" "$@" --results "$result.new" >>"$result.new.txt" || status=$?
  [ "$status" -ne 130 ] || exit 130
  for ending in txt json svg; do
    mv "$result.new.$ending" "$result.$ending"
  done
  cat "$result.txt"
  [ "$status" -eq 0 ] || worst=$status
}

mkdir -p "$here/results"
worst=0
measure gpt2 --preset gpt2
measure 12x512 --layers 12 --width 512 --heads 8 --vocab 50257
(exit "$worst")
