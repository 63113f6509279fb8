setup() { install=$BATS_TEST_DIRNAME/../../tools/install-deps; }

@test "the list of a group is printed without installing" {
  run "$install" --list build
  [ "$status" -eq 0 ]
  [[ "$output" == *cmake* && "$output" != *bats* ]]
}

@test "an unknown group is one clear line" {
  run "$install" nonsense
  [ "$status" -eq 1 ]
  [ "$output" = "install-deps: unknown group 'nonsense': use build, test, lint, bundle, bench, slurm, kube, matrix, clients, page or kube-lab" ]
}

@test "neither root nor sudo is one clear line" {
  mkdir "$BATS_TEST_TMPDIR/bin"
  printf '#!/bin/sh\necho 1000\n' >"$BATS_TEST_TMPDIR/bin/id"
  printf '#!/bin/sh\necho installed nothing\n' >"$BATS_TEST_TMPDIR/bin/dpkg-query"
  for tool in bash sed grep; do ln -s "$(command -v $tool)" "$BATS_TEST_TMPDIR/bin/$tool"; done
  chmod +x "$BATS_TEST_TMPDIR"/bin/{id,dpkg-query}
  PATH=$BATS_TEST_TMPDIR/bin run "$BATS_TEST_TMPDIR/bin/bash" "$install" lint
  echo "$output"
  [ "$status" -eq 1 ]
  [ "$output" = "install-deps: neither root nor sudo here: install as root: clang-format clang-tidy git" ]
}
