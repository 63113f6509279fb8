# Completion offers what the commands take: every command and every option of every --help, and the values it can know.

setup() {
  PATH=$ALIQUOT_BIN:$PATH
  source "$BATS_TEST_DIRNAME/../../packaging/completion/aliquot.bash"
}

offers() { # EXPECTED WORD…: just this is offered for the last word
  local expected=$1
  shift
  COMP_WORDS=("$@")
  COMP_CWORD=$(($# - 1))
  COMPREPLY=()
  _aliquot
  echo "$*: ${COMPREPLY[*]}, not $expected"
  [ "${COMPREPLY[*]}" = "$expected" ]
}

# Goes down the tree of commands by what CLI11 lists below "Subcommands:".
walk() { # WORD…
  local help option command
  help=$("$@" --help)
  COMP_WORDS=("$@" --)
  COMP_CWORD=$#
  _aliquot
  for option in $(grep -oE '^ +(-[a-zA-Z],)? *--[a-z-]+' <<<"$help" | sed 's/.*--/--/'); do
    echo "$* $option: ${COMPREPLY[*]}"
    [[ " ${COMPREPLY[*]} " == *" $option "* ]] || return 1
  done
  for command in $(sed -n '/^Subcommands:/,/^$/s/^  \([a-z]*\) .*/\1/p' <<<"$help"); do
    COMP_WORDS=("$@" "$command")
    COMP_CWORD=$#
    _aliquot
    echo "$* $command: ${COMPREPLY[*]}"
    [[ " ${COMPREPLY[*]} " == *" $command "* ]] || return 1
    walk "$@" "$command" || return 1
    walked=$((walked + 1))
  done
}

@test "every command and every option of each is offered" {
  walked=0
  walk aliquot
  [ "$walked" -ge 20 ]
  for command in sbatch srun salloc scancel squeue sinfo sacct sprio sshare sacctmgr sstat sreport sattach sdiag; do walk aliquot "$command"; done
}

@test "commands" {
  offers "sacct sacctmgr salloc sattach sbatch scancel scontrol sdiag seff setup shims sim sinfo slurm sprio squeue sreport srun sshare sstat status" aliquot s
  offers "sandbox setup" aliquot slurm s
  offers "restart" aliquot slurm sandbox r
  offers "replay" aliquot sim re
  offers "--gpu-bind --gpu-mem --gpu-share --gpus --gpus-per-node --gpus-per-task" aliquot sbatch --gpu
  offers "reconfigure release requeue requeuehold resume" aliquot scontrol re
  offers "partition" aliquot scontrol show p
  offers "account association" aliquot sacctmgr show a
  offers "add" aliquot sacctmgr a
}

@test "Slurm's commands are completed, too: those that the program lists" {
  local name
  for name in $("$ALIQUOT_BIN/aliquot" --help | sed -n "/^Slurm's commands/,/^$/s/^  \([a-z]*\) .*/\1/p"); do
    echo "$name"
    complete -p "$name"
    listed+=" $name"
  done
  [ "$listed" = " sbatch srun salloc scancel squeue sinfo scontrol sacct seff sprio sshare sacctmgr sstat sreport sattach sdiag" ]
}

@test "values" {
  offers "on off" aliquot setup preload o
  offers "h200 h100" aliquot slurm sandbox up --model h
  offers "fgd" "$ALIQUOT_BIN/aliquot" sim replay --policy fg
  offers "best-fit,fgd" aliquot sim replay --policy best-fit,fg
  offers "pending,running" aliquot squeue -t pending,ru
  cd "$BATS_TEST_TMPDIR"
  touch script.sh
  offers "script.sh" aliquot sbatch scr
  offers "script.sh" aliquot sbatch --output scr
  offers "" aliquot sbatch --time 1
}

@test "Slurm's names, as links" {
  ln -s "$ALIQUOT_BIN/aliquot" "$BATS_TEST_TMPDIR/sbatch"
  ln -s "$ALIQUOT_BIN/aliquot" "$BATS_TEST_TMPDIR/scontrol"
  PATH=$BATS_TEST_TMPDIR:$PATH
  offers "--gpu-mem" sbatch --gpu-m
  offers "hold" scontrol h
  offers "job" scontrol show j
}

@test "a key pressed runs nothing but --help and what lists" {
  local name
  cd "$BATS_TEST_TMPDIR"
  touch script.sh
  for name in sbatch srun salloc scancel scontrol squeue sinfo sacct seff; do
    printf '#!/bin/bash\necho "%s $*" >>"%s/calls"\n[[ $1 == --help ]] && exec "%s/aliquot" %s --help\n[[ %s == squeue ]] && echo 17 || echo part\n' \
      "$name" "$PWD" "$ALIQUOT_BIN" "$name" "$name" >"$name"
    chmod +x "$name"
  done
  PATH=$PWD:$PATH
  offers "17" srun --jobid 1
  offers "17" scancel 1
  offers "17" sacct -j 1
  offers "part" srun -p p
  offers "part" salloc --partition p
  offers "part" sbatch -p p
  offers "script.sh" sbatch -o scr
  offers "show" scontrol -o sho
  cat calls
  ! grep -vE ' --help$|^squeue --me|^sinfo -h -o %R$' calls
}

@test "kubectl completes its plugin" {
  plugin=$BATS_TEST_DIRNAME/../../packaging/kubectl/kubectl_complete-aliquot
  printf '#!/bin/sh\necho "pod/train"\n' >"$BATS_TEST_TMPDIR/kubectl"
  chmod +x "$BATS_TEST_TMPDIR/kubectl"
  PATH=$BATS_TEST_TMPDIR:$PATH
  said() { # EXPECTED WORD…
    local expected=$1
    shift
    output=$("$plugin" "$@" | tr '\n' ' ')
    echo "$*: $output"
    [ "$output" = "$expected" ]
  }
  said "status why gpus top :4 " ""
  said "status why gpus top :4 " s
  said "pod/train :4 " why ""
  said "train :4 " status -n ""
  said ":4 " gpus ""
  [[ $("$plugin" status --) == *--all-namespaces*--context*--namespace* ]]
}
