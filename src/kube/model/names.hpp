// The names by which pods and nodes speak of GPUs: resources and annotations. One domain, which a
// site may change; gpushare's and NVIDIA's own names are read beside it.
#pragma once

#include <string>
#include <string_view>

namespace aliquot::kube {

struct Names {
  std::string domain = "aliquot.dev";

  // Resources.
  [[nodiscard]] std::string gpu_mem() const { return domain + "/gpu-mem"; }
  [[nodiscard]] std::string gpu_share() const { return domain + "/gpu-share"; }
  [[nodiscard]] std::string gpu() const { return domain + "/gpu"; }
  // Annotations: of nodes, and of pods.
  [[nodiscard]] std::string gpus() const { return domain + "/gpus"; }
  [[nodiscard]] std::string grant() const { return domain + "/grant"; }
  [[nodiscard]] std::string grant_seal() const { return domain + "/grant-seal"; }

  friend bool operator==(const Names&, const Names&) = default;
};

inline constexpr std::string_view kNvidiaGpu = "nvidia.com/gpu";
inline constexpr std::string_view kGpushareMem = "aliyun.com/gpu-mem";
inline constexpr std::string_view kGpushareCount = "aliyun.com/gpu-count";

inline constexpr std::string_view kGpushareIndex = "ALIYUN_COM_GPU_MEM_IDX";
inline constexpr std::string_view kGpusharePod = "ALIYUN_COM_GPU_MEM_POD";
inline constexpr std::string_view kGpushareDevice = "ALIYUN_COM_GPU_MEM_DEV";
inline constexpr std::string_view kGpushareAssumeTime = "ALIYUN_COM_GPU_MEM_ASSUME_TIME";
inline constexpr std::string_view kGpushareAssigned = "ALIYUN_COM_GPU_MEM_ASSIGNED";
inline constexpr std::string_view kGpusharePrefix = "ALIYUN_COM_GPU_MEM_";

}  // namespace aliquot::kube
