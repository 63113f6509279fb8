# What the benchmarks of placement share. ALIQUOT_BIN: the folder of the programs; SEEDS: which seeds to use; OPENB: the
# folder of the published trace.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
aliquot=${ALIQUOT_BIN:-$root/build/release/bin}/aliquot
data=${OPENB:-$root/../shared/data/openb}
nodes=$data/openb_node_list_gpu_node.csv
seeds=${SEEDS:-42-51}
jobs=${JOBS:-$(nproc)}

[[ -x $aliquot ]] || { echo "bench: $aliquot is not built: run 'make build'" >&2; exit 1; }

have_published() { [[ -r $nodes && -r $data/fgd_expected.csv ]]; }
pods_of() { echo "$data/openb_pod_list_$1.csv"; }

# `number "decisions_per_second" <json`: the first number of that name.
number() { grep -oE "\"$1\": [0-9][0-9.]*" | head -n 1 | grep -oE '[0-9.]+$'; }
