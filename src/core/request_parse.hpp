// The one vocabulary for GPU requests: from what users write to a GpuRequest, and back to words.
// Every engine reads its options through this. Syntax and contradictions are settled here; whether
// a model exists and whether anything fits is Cluster's and placement's to say. Every refusal is
// one line: the option, what is wrong with it, and what to write instead.
//
//   --gres=gpu[:model][:n]   -G, --gpus=[model:]n                  whole GPUs
//   --gpus-per-node=…        --gpus-per-task=…                     the same
//   --gres=mps[:model]:n     --gres=shard[:model][:n]              n of a GPU's tickets
//   --gpu-mem=8G             --gpu-share=25%                       a part of a GPU by amount
//
// A share is on one GPU. `--gpus=2 --gpu-share=25%` is two shares, each on a GPU of its own; the
// same holds for --gpus-per-node, --gpus-per-task and tickets. `--gres=gpu:2 --gpu-share=25%` is
// refused, because --gres=gpu means whole GPUs wherever Slurm reads it. A MIG slice is asked for by
// its profile in place of a model: `gpu:1g.10gb:1`. `--gres=none` asks for nothing but forbids
// nothing; `gpu:0` and `--gpus=0` ask for no GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "core/request.hpp"

namespace aliquot::core {

// The options as written, each without its name; nothing where it was not given.
struct GpuOptions {
  std::optional<std::string> gres = {};
  std::optional<std::string> gpus = {};
  std::optional<std::string> gpus_per_node = {};
  std::optional<std::string> gpus_per_task = {};
  std::optional<std::string> gpu_mem = {};
  std::optional<std::string> gpu_share = {};
  // The GPU models of --constraint, `a100|h100`; node features are for the caller to take out. It
  // only narrows: without another option it asks for no GPU.
  std::optional<std::string> constraint = {};
  std::int64_t tasks = 1;
  std::int64_t nodes = 1;

  friend bool operator==(const GpuOptions&, const GpuOptions&) = default;
};

// What each of the job's nodes must give; nothing: no GPU. --gpus and --gpus-per-task speak of the
// whole job and must spread evenly over the nodes. Models come out in lower case.
Result<std::optional<GpuRequest>> parse_gpu_options(const GpuOptions& options);

// The options that say this and nothing else. parse_gpu_options reads them back, except for an
// amount of zero, which no user can ask for.
GpuOptions options_of(const std::optional<GpuRequest>& request);

// The same as one line of canonical words: `gpu:titanrtx:2`, `mps:25`, `--gpu-mem=8G
// --gpu-share=50%`, `shard:4 --gpus=2`, `gpu:1 --constraint=a100|h100`, `none`.
std::string format_gpu_request(const std::optional<GpuRequest>& request);

}  // namespace aliquot::core
