# The front door. The work is done by CMake (CMakePresets.json) and by the scripts in tools/.
JOBS ?= $(shell nproc)
export JOBS

.DEFAULT_GOAL := help
.PHONY: help build install run stop bundle image test test-all test-slurm-matrix test-slurm-init test-kube test-conformance test-clients test-page bench fuzz soak walk tidy format clean update-shell-tests deps-build deps-test deps-kube deps-all

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-19s %s\n", $$1, $$2 }' Makefile

build: deps-build ## build the release in build/release
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS)

PREFIX ?= /usr/local
install: build ## install to PREFIX (/usr/local) below DESTDIR, and say how sbatch becomes ours
	@tools/install "$(DESTDIR)" "$(PREFIX)"

run: build ## install what is missing, build, start the engine and run the tutorial
	@tools/run

stop: ## stop the engine that make run left running
	@tools/run stop

bundle: build ## make build/bundle/aliquot-*: a folder that runs on a machine where nothing can be installed
	@tools/install-deps bundle
	@tools/bundle

image: bundle ## make build/image/aliquot-*.tar: the image for Kubernetes, without docker or a registry
	@tools/image

test: deps-all ## install what is missing, build from nothing what is shipped and its unit tests, run every test
	@tools/run-tests

test-all: deps-all ## what CI runs: the same, with sanitizers under the unit tests and the daemon, and each fuzzer for a moment
	@tools/run-tests release dev fuzz

test-slurm-matrix: bundle ## the tests on Slurm 22.05, 24.11 and 26.05, in folders filled by debootstrap, and test-slurm-init
	@tools/install-deps matrix
	@tools/test-slurm-matrix

test-slurm-init: bundle ## the guide "A cluster from nothing", on five bare Debians made of namespaces
	@tools/install-deps matrix
	@tools/test-slurm-init

test-kube: deps-kube build ## the tests on real Kubernetes, 1.20 and a current one, each built once from source
	@tools/test-kube

test-conformance: deps-all build ## the tables of Slurm's texts, against a real Slurm and against Aliquot, and the count
	@tools/test-conformance

test-clients: build ## submitit, dask-jobqueue, parsl, snakemake and batchspawner from PyPI drive our commands, ROUNDS (50) each
	@tools/install-deps clients
	@tools/test-clients

test-page: build ## the live page in a real Chromium, and how long each change takes to be seen
	@tools/install-deps page
	@tools/test-page

bench: deps-test build ## run the benchmarks of the release build
	@tools/bench

fuzz: deps-test ## run every fuzzer for FUZZ_SECONDS (default 60)
	@cmake --preset fuzz -DALIQUOT_FUZZ_SECONDS=$(or $(FUZZ_SECONDS),60) >/dev/null
	@cmake --build --preset fuzz -j $(JOBS)
	@ctest --preset fuzz -j $(JOBS)

soak: deps-test ## kill the daemon SOAK (default 200) times under load and count what is lost
	@cmake --preset dev >/dev/null
	@cmake --build --preset dev -j $(JOBS) --target engine_test
	@ALIQUOT_SOAK=$(or $(SOAK),200) build/dev/bin/engine_test \
	  --gtest_filter=DaemonTest.NothingIsLostWhenItIsKilledAtRandom

walk: deps-test ## walk over the daemon's API at random for WALK_SECONDS (default 60), or for WALK_COMMANDS
	@cmake --preset dev >/dev/null
	@cmake --build --preset dev -j $(JOBS) --target api_walk
	@$(if $(WALK_COMMANDS),ALIQUOT_WALK_COMMANDS=$(WALK_COMMANDS),ALIQUOT_WALK_SECONDS=$(or $(WALK_SECONDS),60)) \
	  build/dev/bin/api_walk

tidy: deps-all ## clang-tidy over the sources, warnings as errors
	@cmake --preset tidy >/dev/null
	@cmake --build --preset tidy -j $(JOBS)

format: deps-all ## format every source in place
	@tools/format

update-shell-tests: build ## write the expected files of tests/shell anew: read the difference
	@for script in tests/shell/*.txt; do \
	  ALIQUOT_BIN=build/release/bin tests/shell/transcript $$script >$${script%.txt}.expected; \
	done
	@git --no-pager diff --stat -- tests/shell

clean: ## remove everything that was built
	@rm -rf build

deps-build:
	@tools/install-deps build

deps-test:
	@tools/install-deps build test

deps-kube:
	@tools/install-deps build kube kube-lab

deps-all:
	@tools/install-deps build test lint slurm kube
