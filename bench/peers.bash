# Other queues for one machine, for bench/engine: gflow (PyPI: runqd) and HyperQueue (PyPI: hyperqueue), in a virtual
# environment. What is there stays; what is not to be had is named.
# usage: bash bench/peers.bash FOLDER
set -euo pipefail
folder=${1:?usage: bash bench/peers.bash FOLDER}
if [[ ! -x $folder/bin/pip ]]; then
  mkdir -p "$(dirname "$folder")"
  python3 -m venv "$folder" >/dev/null 2>&1 || { echo "no virtual environment: install python3-venv" >&2; exit 1; }
fi
status=0
for package in runqd hyperqueue; do
  "$folder/bin/pip" show -q "$package" 2>/dev/null && continue
  "$folder/bin/pip" install -q --only-binary :all: "$package" >/dev/null 2>&1 || { echo "PyPI has no $package for this machine" >&2; status=1; }
done
exit "$status"
