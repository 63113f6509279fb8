# The `aliquot` command as users type it: what it prints, and one clear line for everything it cannot do.
# shellcheck source=tests/eventually.bash
. "$BATS_TEST_DIRNAME/../eventually.bash"

setup() {
  aliquot=$ALIQUOT_BIN/aliquot
  cd "$BATS_TEST_TMPDIR"
  cat >nodes.csv <<'CSV'
sn,cpu_milli,memory_mib,gpu,model
n1,16000,65536,2,T4
n2,64000,262144,8,V100
n3,32000,65536,0,
CSV
  cat >pods.csv <<'CSV'
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos
p1,4000,8192,1,500,,LS
p2,4000,8192,1,1000,T4|V100,LS
p3,8000,8192,2,1000,,LS
p4,4000,8192,0,0,,LS
p5,1000,1024,1,250,T4|K80,LS
CSV
}

# Runs the command; it must end with this status and say exactly one line, on stderr, that contains the text.
refuses() { # status, text, arguments…
  local expected=$1 text=$2
  shift 2
  run bash -c '"$0" "$@" 2>errors' "$aliquot" "$@"
  echo "status $status, stdout: $output, stderr: $(cat errors)"
  [ "$status" -eq "$expected" ]
  [ -z "$output" ]
  [ "$(wc -l <errors)" -eq 1 ]
  grep -qF -- "$text" errors
}

# The command must fail. A line that begins with ! would not end the test.
refute() { ! "$@"; }

replay() { "$aliquot" sim replay --nodes nodes.csv --pods pods.csv "$@"; }

@test "version and help" {
  run "$aliquot" --version
  [ "$status" -eq 0 ]
  [[ "$output" =~ ^aliquot\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
  for command in "" "sim" "sim replay" "sim shell" "sim generate" "sim policies"; do
    run "$aliquot" $command --help
    [ "$status" -eq 0 ]
    [[ "$output" == *Usage* ]]
  done
  [ "$("$aliquot" help)" = "$("$aliquot" --help)" ]
  [ "$("$aliquot")" = "$("$aliquot" --help)" ]
}

@test "nonsense on the command line is misuse" {
  refuses 2 "subcommand is required" sim
  refuses 2 "--frobnicate" --frobnicate
  refuses 2 "no command 'simm'; did you mean 'sim'?" simm
  refuses 2 "no command 'sbach'; did you mean 'sbatch'?" sbach
  refuses 2 "no command 'sqeue'; did you mean 'squeue'?" sqeue
  refuses 2 "no command 'relpay'; did you mean 'replay'?" sim relpay
  refuses 2 "--colour" sim replay --colour red
  refuses 2 "extra" sim policies extra
  refuses 2 "--nodes" sim generate --pods x
  refuses 2 "--policy" sim replay --policy
}

@test "policies are listed, the default first" {
  run "$aliquot" sim policies
  [ "$status" -eq 0 ]
  [[ "${lines[1]}" == aliquot* ]]
  for policy in least-occupied least-utilised best-fit dot-product gpu-packing gpu-clustering fgd; do
    [[ "$output" == *$policy* ]]
  done
}

@test "a replay prints a line for each policy" {
  run replay --policy fgd,best-fit --seeds 1-3
  echo "$output"
  [ "$status" -eq 0 ]
  [[ "$output" == *"3 nodes, 10 GPUs"* ]]
  [[ "$output" == *"5 pods of 5 kinds"* ]]
  [[ "$output" == *130%* ]]
  [ "$(grep -c '^fgd ' <<<"$output")" -eq 1 ]
  [ "$(grep -c '^best-fit ' <<<"$output")" -eq 1 ]
  [[ "$output" == *"peak memory"* ]]
}

@test "a replay is silent on stderr when nobody watches" {
  replay --seeds 1 >/dev/null 2>errors
  [ ! -s errors ]
}

@test "all means every policy" {
  run replay --policy all --seeds 7
  [ "$status" -eq 0 ]
  [ "$(grep -cE '^(aliquot|least-occupied|least-utilised|best-fit|dot-product|gpu-packing|gpu-clustering|fgd) ' <<<"$output")" -eq 8 ]
}

# Everything but speed and memory.
results() { sed -E 's/"(cpu_seconds|decisions_per_second|peak_memory_bytes|jobs)": [0-9.]+//g'; }

@test "the same seeds give the same results, on any number of threads" {
  replay --policy all --seeds 1-6 --json | results >one
  replay --policy all --seeds 1-6 --jobs 3 --json | results >three
  cmp one three
  replay --policy all --seeds 2-7 --json | results >others
  run cmp -s one others
  [ "$status" -eq 1 ]
}

@test "JSON is JSON and has the figures" {
  replay --policy fgd --seeds 1,5 --json >out.json
  command -v python3 >/dev/null || skip "no python3 to read JSON with"
  python3 - <<'PYTHON'
import json
report = json.load(open("out.json"))
assert report["nodes"]["gpus"] == 10 and report["seeds"] == [1, 5] and report["overcommit"] == 1
policy, = report["policies"]
assert policy["policy"] == "fgd" and policy["placed"] + policy["refused"] == policy["decisions"]
points = policy["allocation"]
assert [p["arrived"] for p in points] == [90, 95, 100, 110, 120, 130]
for point in points:
    assert 0 < point["mean"] <= 100 and set(point["seeds"]) == {"1", "5"}
PYTHON
}

@test "points beyond the end are left out, the end is one" {
  run replay --seeds 1 --arrived 105
  [[ "${lines[3]}" =~ 90%.*95%.*100%.*105% ]]
  [[ ! "${lines[3]}" =~ 110% ]]
  run replay --seeds 1 --arrived 50
  [[ "${lines[3]}" =~ 50% ]]
}

@test "over-commit allocates more, and a copied cluster has more nodes" {
  run replay --seeds 1 --overcommit 1.5
  [ "$status" -eq 0 ]
  [[ "$output" == *"over-committed 1.5 times"* ]]
  run replay --seeds 1 --scale 3
  [[ "$output" == *"9 nodes, 30 GPUs"* ]]
}

@test "published results are compared by workload" {
  cat >expected.csv <<'CSV'
workload,policy,seeds,alloc_100,alloc_130,alloc_sd_100
pods,06-FGD,10,95.23,95.39,0.10
other,06-FGD,10,1,1,1
CSV
  run replay --policy fgd,best-fit --seeds 1 --expected expected.csv
  echo "$output"
  [ "$status" -eq 0 ]
  [[ "$output" == *PUBLISHED* ]]
  [ "$(grep -cE '^fgd +1[03]0% +95\.' <<<"$output")" -eq 2 ]
  grep -qE '^fgd +100% .*0\.032$' <<<"$output"
  run replay --policy fgd --seeds 1 --expected expected.csv --workload other
  grep -qE '^fgd +100% +1\.00' <<<"$output"
  refuses 1 "no published workload 'none'" sim replay --nodes nodes.csv --pods pods.csv --expected expected.csv --workload none
  refuses 2 "--workload goes with --expected" sim replay --workload x
}

@test "orders: our own, and those of published results" {
  run replay --policy fgd --seeds 1 --order published
  [ "$status" -eq 0 ]
  [[ "$output" == *"seeds 1, orders as published"* ]]
  replay --policy best-fit,fgd --seeds 1-5 --order published --json | results | sed "s|\"order\": \"[a-z]*\"||" >published
  replay --policy best-fit,fgd --seeds 1-5 --order own --json | results | sed "s|\"order\": \"[a-z]*\"||" >own
  replay --policy best-fit,fgd --seeds 1-5 --json | results | sed "s|\"order\": \"[a-z]*\"||" >default
  refute cmp -s published own
  cmp own default
  refuses 2 "no order 'publishd'; did you mean 'published'?" sim replay --order publishd
  refuses 2 "--order published goes without --scale" sim replay --order published --scale 2
}

@test "impossible seeds" {
  refuses 2 "42 is less than 51" sim replay --seeds 51-42
  refuses 2 "more than 10000" sim replay --seeds 1-999999999999
  refuses 2 "more than 10000" sim replay --seeds 0-9223372036854775807
  refuses 2 "bad seeds 'x'" sim replay --seeds x
  refuses 2 "bad seeds ''" sim replay --seeds ""
  refuses 2 "bad seeds '1,'" sim replay --seeds 1,
  refuses 2 "bad seeds '-5'" sim replay --seeds=-5
  refuses 2 "1 is there twice" sim replay --seeds 1,1
  refuses 2 "bad seeds" sim replay --seeds 99999999999999999999
}

@test "policies that are not there" {
  refuses 2 "did you mean 'fgd'?" sim replay --policy fdg
  refuses 2 "did you mean 'best-fit'?" sim replay --policy bestfit
  refuses 2 "did you mean 'aliquot'?" sim replay --policy Aliqout
  refuses 2 "there are: aliquot" sim replay --policy xyzzy
  refuses 2 "no policy ''" sim replay --policy fgd,
  refuses 2 "twice" sim replay --policy fgd,fgd
}

@test "numbers out of bounds" {
  refuses 2 "--arrived '0'" sim replay --arrived 0
  refuses 2 "--arrived '1e3'" sim replay --arrived 1e3
  refuses 2 "--arrived '5000'" sim replay --arrived 5000
  refuses 2 "--overcommit '0.5'" sim replay --overcommit 0.5
  refuses 2 "--overcommit 'nan'" sim replay --overcommit nan
  refuses 2 "--overcommit '101'" sim replay --overcommit 101
  refuses 2 "--scale '0'" sim replay --scale 0
  refuses 2 "--scale '99999999999999999999'" sim replay --scale 99999999999999999999
  refuses 2 "--jobs '0'" sim replay --jobs 0
  refuses 2 "--jobs '100000'" sim replay --jobs 100000
  refuses 2 "both --nodes and --pods" sim replay --nodes nodes.csv
  refuses 2 "both --nodes and --pods" sim replay --pods pods.csv
}

@test "files that cannot be read" {
  refuses 1 "'none.csv': No such file" sim replay --nodes none.csv --pods pods.csv
  refuses 1 "'none.csv': No such file" sim replay --nodes nodes.csv --pods none.csv
  refuses 1 "'.': Is a directory" sim replay --nodes . --pods pods.csv
  refuses 1 "'.': Is a directory" sim shell .
  refuses 1 "'none.txt': No such file" sim shell none.txt
  refuses 1 "'none.csv': No such file" sim replay --nodes nodes.csv --pods pods.csv --expected none.csv
  if [ "$(id -u)" -ne 0 ]; then
    chmod 0 nodes.csv
    refuses 1 "'nodes.csv': Permission denied" sim replay --nodes nodes.csv --pods pods.csv
  fi
}

@test "files that are no traces" {
  : >empty
  refuses 1 "empty: the file is empty" sim replay --nodes empty --pods pods.csv
  printf '\177ELF\002\001\001\000\000\377,\003\000>\n\001\002,\r\n\377\376' >binary
  refuses 1 "binary:1: no column 'sn'" sim replay --nodes binary --pods pods.csv
  refuses 1 "binary:1: no column 'name'" sim replay --nodes nodes.csv --pods binary
  refuses 1 "pods.csv:1: no column 'sn'" sim replay --nodes pods.csv --pods nodes.csv
  head -n 1 nodes.csv >header
  refuses 1 "header: no nodes in it" sim replay --nodes header --pods pods.csv
  head -c -12 pods.csv >cut
  refuses 1 "cut:6: 5 fields where the first line names 7" sim replay --nodes nodes.csv --pods cut
  refuses 1 "pods.csv:1: no column 'workload'" sim replay --nodes nodes.csv --pods pods.csv --expected pods.csv
}

# One wrong line in an otherwise good file.
bad_node() { # text, line
  { cat nodes.csv; echo "$2"; } >bad.csv
  refuses 1 "bad.csv:5: $1" sim replay --nodes bad.csv --pods pods.csv
}
bad_pod() {
  { cat pods.csv; echo "$2"; } >bad.csv
  refuses 1 "bad.csv:7: $1" sim replay --nodes nodes.csv --pods bad.csv
}

@test "wrong lines are named with their column" {
  bad_node "column cpu_milli: '1x' is not a whole number" "n9,1x,1,1,T4"
  bad_node "column cpu_milli: '-1' is not a whole number" "n9,-1,1,1,T4"
  bad_node "column memory_mib: '99999999999999' is not between" "n9,1,99999999999999,1,T4"
  bad_node "column gpu: '65' is not between 0 and 64" "n9,1,1,65,T4"
  bad_node "column model: '' is not a name" "n9,1,1,1,"
  bad_node "column sn: 'n1' is there twice" "n1,1,1,1,T4"
  bad_node "column sn: '' is not a name" ",1,1,1,T4"
  bad_node "column 1: a quote is not closed" '"n9,1,1,1,T4'
  bad_pod "column gpu_milli: '1001' is not between" "p9,1,1,1,1001,,LS"
  bad_pod "column gpu_milli: '0' of a GPU is nothing" "p9,1,1,1,0,,LS"
  bad_pod "column num_gpu: '1.5' is not a whole number" "p9,1,1,1.5,1000,,LS"
  bad_pod "column gpu_spec: 'T4||V100' has an empty model" "p9,1,1,1,1000,T4||V100,LS"
  bad_pod "3 fields where the first line names 7" "p9,1,1"
}

@test "traces without GPUs" {
  printf 'sn,cpu_milli,memory_mib,gpu,model\nn1,1,1,0,\n' >cpus.csv
  refuses 1 "no node has a GPU" sim replay --nodes cpus.csv --pods pods.csv
  printf 'name,cpu_milli,memory_mib,num_gpu,gpu_milli\np1,1,1,0,0\n' >none.csv
  refuses 1 "no pod asks for a GPU" sim replay --nodes nodes.csv --pods none.csv
}

@test "without files there is a synthetic trace, and it says so" {
  run "$aliquot" sim replay --policy best-fit --seeds 1 --arrived 20
  echo "$output"
  [ "$status" -eq 0 ]
  [[ "$output" == *"nodes synthetic (1200 nodes"* ]]
  [[ "$output" == *cluster-trace-gpu-v2023* ]]
}

@test "a generated trace is the same for the same seed, and can be replayed" {
  "$aliquot" sim generate --nodes a --pods b --seed 3 --nodes-count 50 --pods-count 300
  "$aliquot" sim generate --nodes c --pods d --seed 3 --nodes-count 50 --pods-count 300
  "$aliquot" sim generate --nodes e --pods f --seed 4 --nodes-count 50 --pods-count 300
  cmp a c
  cmp b d
  refute cmp -s a e
  refute cmp -s b f
  [ "$(wc -l <a)" -eq 51 ]
  [ "$(wc -l <b)" -eq 301 ]
  run "$aliquot" sim replay --nodes a --pods b --policy fgd --seeds 1
  [ "$status" -eq 0 ]
}

@test "the knobs of the generator" {
  "$aliquot" sim generate --nodes n --pods p --share 0% --multi 0 --cpu-only 0% --spec 0%
  refute grep -qvE '^pod-[0-9]+,[0-9]+,[0-9]+,1,1000,$' <(tail -n +2 p)
  "$aliquot" sim generate --nodes n --pods p --cpu-only 100% --share 0 --multi 0
  refute grep -qvE ',0,0,$' <(tail -n +2 p)
  refuses 2 "more than 100 %" sim generate --nodes n --pods p --share 80% --multi 30%
  refuses 2 "--share '150%'" sim generate --nodes n --pods p --share 150%
  refuses 2 "--seed '-1'" sim generate --nodes n --pods p --seed=-1
  refuses 2 "--nodes-count '0'" sim generate --nodes n --pods p --nodes-count 0
  refuses 2 "--pods-count '99999999999'" sim generate --nodes n --pods p --pods-count 99999999999
  refuses 1 "cannot write '/nonexistent/n'" sim generate --nodes /nonexistent/n --pods p
}

@test "a full disk is told" {
  [ -e /dev/full ] || skip "no /dev/full"
  run bash -c '"$0" sim policies 2>errors >/dev/full' "$aliquot"
  [ "$status" -eq 1 ]
  [ "$(wc -l <errors)" -eq 1 ]
  refuses 1 "No space left" sim generate --nodes /dev/full --pods p
}

@test "Ctrl-C stops a long replay cleanly" {
  # With SIGINT as the terminal would have it, once the program listens.
  env --default-signal=INT "$aliquot" sim replay --seeds 1-2000 --jobs 2 >said 2>&1 3>&- &
  pid=$!
  # Its threads leave SIGINT to the first of them. The shell that becomes it blocks SIGINT, too, and then ignores it.
  listens() { [ "$(cat "/proc/$pid/comm")" = aliquot ] && grep -qs '^SigBlk:.*[2367abef]$' "/proc/$pid/task/"*/status; }
  eventually listens
  kill -INT "$pid"
  status=0
  wait "$pid" || status=$?
  cat said
  [ "$status" -eq 130 ]
  [ "$(head -1 said)" = "aliquot: stopped before the end: no results" ]
}

# Loading OpenSSL takes as long as all that squeue does.
@test "the commands load nothing that only servers need" {
  command -v ldd >/dev/null || skip "ldd is not here"
  run ldd "$aliquot"
  [ "$status" -eq 0 ]
  [[ $output != *libssl* && $output != *libcrypto* && $output != *libtoml* ]]
}
