# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Completion for memrun. The words come from the program itself (memrun complete), so they are those
# of the version that runs.

_memrun() {
  local current previous command word words=()
  # A colon is part of PATH:SIZE; an equals sign stands between an option and its value.
  COMPREPLY=()
  current=${COMP_WORDS[COMP_CWORD]}
  previous=${COMP_WORDS[COMP_CWORD - 1]}
  if [[ $current == "=" ]]; then
    current=""
  elif [[ $previous == "=" && $COMP_CWORD -ge 2 ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi

  if [[ $previous == --* ]]; then
    mapfile -t words < <("$1" complete -- "$previous" 2>/dev/null)
    case ${words[0]-} in
      "<file>")
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
        ;;
      "<folder>")
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -d -- "$current")
        return
        ;;
      "<"*) return ;;
      ?*)
        mapfile -t COMPREPLY < <(compgen -W "${words[*]}" -- "$current")
        return
        ;;
    esac
  fi

  command=
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case $word in
      train | plan | verify | info | bench | layout) command=$word ;;
    esac
  done
  if [[ -n $command ]]; then
    mapfile -t words < <("$1" complete "$command" 2>/dev/null)
    [[ $command != bench ]] || words+=(machine offload pressure)
    if [[ $command == layout && $current != -* ]]; then
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
    fi
  else
    mapfile -t words < <("$1" complete 2>/dev/null)
  fi
  mapfile -t COMPREPLY < <(compgen -W "${words[*]}" -- "$current")
}

complete -F _memrun memrun
