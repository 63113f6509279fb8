# tools/image: the archive is one that runtimes import, is the same each time, and has the programs in it.
bats_require_minimum_version 1.5.0

setup_file() {
  export folder=$BATS_FILE_TMPDIR
  # A bundle of the right shape: its programs are others.
  mkdir -p "$folder/bundle"/{sbin,lib/aliquot/standin}
  for program in aliquot-kube-scheduler aliquot-kube-node; do cp /usr/bin/true "$folder/bundle/sbin/$program"; done
  echo library >"$folder/bundle/lib/aliquot/libaliquot.so"
  echo standin >"$folder/bundle/lib/aliquot/standin/libcuda.so.1"
  ln -s libcuda.so.1 "$folder/bundle/lib/aliquot/standin/libcuda.so"
  SOURCE_DATE_EPOCH=1700000000 IMAGE=localhost/test:1 "$BATS_TEST_DIRNAME/../../tools/image" "$folder/bundle" "$folder/image.tar" >"$folder/said"
  mkdir "$folder/archive"
  tar -C "$folder/archive" -xf "$folder/image.tar"
}

blob() { echo "$folder/archive/blobs/sha256/${1#sha256:}"; }
manifest() { blob "$(jq -r '.manifests[0].digest' "$folder/archive/index.json")"; }
layer() { blob "$(jq -r '.layers[0].digest' "$(manifest)")"; }

@test "every blob is what its name says, and as large as its descriptor says" {
  for file in "$folder"/archive/blobs/sha256/*; do
    [ "$(sha256sum "$file" | cut -d' ' -f1)" = "${file##*/}" ]
  done
  [ "$(ls "$folder/archive/blobs/sha256" | wc -l)" -eq 3 ]
  local digest size count=0
  while read -r digest size; do
    [ "$(stat -c %s "$(blob "$digest")")" = "$size" ]
    count=$((count + 1))
  done < <(jq -r '.manifests[], .config, .layers[] | select(.) | "\(.digest) \(.size)"' <(jq '. + {config: null, layers: []}' "$folder/archive/index.json") \
    <(jq '. + {manifests: []}' "$(manifest)"))
  [ "$count" -eq 3 ]
  [ "$(jq -r .imageLayoutVersion "$folder/archive/oci-layout")" = 1.0.0 ]
}

@test "index, manifest and configuration are OCI's" {
  jq -e '.schemaVersion == 2 and .mediaType == "application/vnd.oci.image.index.v1+json" and (.manifests | length) == 1' "$folder/archive/index.json"
  jq -e '.manifests[0] | .mediaType == "application/vnd.oci.image.manifest.v1+json" and .platform.os == "linux"
    and .annotations["io.containerd.image.name"] == "localhost/test:1" and .annotations["org.opencontainers.image.ref.name"] == "localhost/test:1"' "$folder/archive/index.json"
  jq -e '.schemaVersion == 2 and .config.mediaType == "application/vnd.oci.image.config.v1+json" and (.layers | length) == 1' "$(manifest)"
  config=$(blob "$(jq -r .config.digest "$(manifest)")")
  jq -e --arg arch "$(dpkg --print-architecture)" '.architecture == $arch and .os == "linux" and .created == "2023-11-14T22:13:20Z"' "$config"
  [ "$(jq -r '.rootfs.diff_ids[0]' "$config")" = "sha256:$(zcat "$(layer)" | sha256sum | cut -d' ' -f1)" ]
}

@test "the layer has the programs that the manifests start, glibc, and no shell" {
  run -0 tar -tzf "$(layer)"
  for path in $(grep -hoE '/usr/sbin/[a-z-]+' "$BATS_TEST_DIRNAME"/../../packaging/kubernetes/chart/templates/*.yaml | sort -u); do
    echo "$path"
    grep -qxF ".$path" <<<"$output"
  done
  grep -qxF ./usr/lib/aliquot/libaliquot.so <<<"$output"
  grep -qxF ./usr/lib/aliquot/standin/libcuda.so <<<"$output"
  grep -qE '^\./usr/lib/.*/libc\.so\.6$' <<<"$output"
  [ -z "$(grep -E '/(sh|bash|dash)$' <<<"$output")" ]
  [ "$(tar -tvzf "$(layer)" | awk '{ print $2 }' | sort -u)" = 0/0 ]
}

@test "its root runs a program" {
  [ "$(id -u)" -eq 0 ] || skip "chroot needs root"
  mkdir "$BATS_TEST_TMPDIR/root"
  tar -C "$BATS_TEST_TMPDIR/root" -xzf "$(layer)"
  chroot "$BATS_TEST_TMPDIR/root" /usr/sbin/aliquot-kube-node
}

@test "the same bundle makes the same archive" {
  touch "$folder/bundle/sbin/aliquot-kube-node"
  SOURCE_DATE_EPOCH=1700000000 IMAGE=localhost/test:1 "$BATS_TEST_DIRNAME/../../tools/image" "$folder/bundle" "$BATS_TEST_TMPDIR/again.tar"
  cmp "$folder/image.tar" "$BATS_TEST_TMPDIR/again.tar"
}

@test "a bundle without the programs is refused, and what is missing is said" {
  run ! "$BATS_TEST_DIRNAME/../../tools/image" "$BATS_TEST_TMPDIR" "$BATS_TEST_TMPDIR/image.tar"
  [[ $output == *"has no sbin/aliquot-kube-scheduler"* ]]
  [ ! -e "$BATS_TEST_TMPDIR/image.tar" ]
}

@test "containerd imports it" {
  ctr version >/dev/null 2>&1 || skip "no containerd answers here"
  space=aliquot-test-$$
  ctr -n "$space" images import --no-unpack "$folder/image.tar"
  run ctr -n "$space" images ls -q
  ctr -n "$space" images rm localhost/test:1
  ctr namespaces rm "$space" || true
  [ "$output" = localhost/test:1 ]
}

@test "podman imports it" {
  command -v podman >/dev/null || skip "podman is not here"
  podman --root "$BATS_TEST_TMPDIR/podman" --runroot "$BATS_TEST_TMPDIR/podman-run" --storage-driver vfs load -i "$folder/image.tar"
  podman --root "$BATS_TEST_TMPDIR/podman" --runroot "$BATS_TEST_TMPDIR/podman-run" --storage-driver vfs image exists localhost/test:1
}
