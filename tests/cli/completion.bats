# Completion offers what the command takes: every option of --help, every policy.

setup() {
  source "$BATS_TEST_DIRNAME/../../packaging/completion/aliquot.bash"
}

complete_words() { # words…: what is offered for the last one
  COMP_WORDS=("$@")
  COMP_CWORD=$(($# - 1))
  COMPREPLY=()
  _aliquot
}

@test "every option of each command is offered" {
  for command in replay shell generate policies; do
    complete_words aliquot sim "$command" --
    offered=" ${COMPREPLY[*]} "
    for option in $("$ALIQUOT_BIN/aliquot" sim "$command" --help | grep -oE '^ +(-h,)?--[a-z-]+' | sed 's/.*--/--/'); do
      echo "$command $option: $offered"
      [[ $offered == *" $option "* ]]
    done
  done
}

@test "every option of slurm's commands is offered" {
  for command in setup check; do
    complete_words aliquot slurm "$command" --
    offered=" ${COMPREPLY[*]} "
    for option in $("$ALIQUOT_BIN/aliquot" slurm "$command" --help | grep -oE '^ +(-h,)?--[a-z-]+' | sed 's/.*--/--/'); do
      echo "$command $option: $offered"
      [[ $offered == *" $option "* ]]
    done
  done
}

@test "every option of setup is offered" {
  complete_words aliquot setup preload --
  offered=" ${COMPREPLY[*]} "
  for option in $("$ALIQUOT_BIN/aliquot" setup preload --help | grep -oE '^ +(-h,)?--[a-z-]+' | sed 's/.*--/--/'); do
    echo "$option: $offered"
    [[ $offered == *" $option "* ]]
  done
}

@test "commands and policies" {
  complete_words aliquot s
  [ "${COMPREPLY[*]}" = "setup sim slurm" ]
  complete_words aliquot setup preload o
  [ "${COMPREPLY[*]}" = "on off" ]
  complete_words aliquot slurm s
  [ "${COMPREPLY[*]}" = "setup sandbox" ]
  complete_words aliquot slurm sandbox up --mo
  [ "${COMPREPLY[*]}" = --model ]
  complete_words aliquot sim re
  [ "${COMPREPLY[*]}" = replay ]
  complete_words "$ALIQUOT_BIN/aliquot" sim replay --policy fg
  [ "${COMPREPLY[*]}" = fgd ]
  complete_words "$ALIQUOT_BIN/aliquot" sim replay --policy best-fit,fg
  [ "${COMPREPLY[*]}" = best-fit,fgd ]
}
