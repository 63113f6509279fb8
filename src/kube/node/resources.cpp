#include "kube/node/resources.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/text.hpp"
#include "kube/model/node_gpus.hpp"

namespace aliquot::kube {

std::string Resource::socket() const {
  std::string file = name;
  std::ranges::replace(file, '/', '_');
  return file + ".sock";
}

std::vector<Resource> served(const Names& names, bool nvidia, bool gpushare) {
  std::vector<Resource> all = {{names.gpu_mem(), Kind::memory}, {names.gpu(), Kind::whole}};
  if (nvidia) all.push_back({std::string(kNvidiaGpu), Kind::whole});
  if (gpushare) {
    all.push_back({std::string(kGpushareMem), Kind::memory});
    all.push_back({std::string(kGpushareCount), Kind::whole});
  }
  return all;
}

DeviceIds sorted(DeviceIds ids) {
  std::ranges::sort(ids);
  const auto twice = std::ranges::unique(ids);
  ids.erase(twice.begin(), twice.end());
  return ids;
}

Result<std::map<GpuId, std::int64_t>> count_by_gpu(Kind kind, const DeviceIds& ids) {
  std::map<GpuId, std::int64_t> count;
  for (const std::string& id : ids) {
    const auto device = parse_device_id(id);
    if (!device || device->second.has_value() != (kind == Kind::memory)) {
      return fail(Error::Code::invalid_argument, "{} is no device of this resource", quote(id));
    }
    ++count[device->first];
  }
  return count;
}

std::string digest_of(const DeviceIds& ids) {
  std::string text;
  for (const std::string& id : sorted(ids)) text.append(id).append("\n");
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), bytes.data(), &size, EVP_sha256(), nullptr) != 1) {
    std::abort();  // of all digests it is the one that is always there
  }
  std::string digest;
  constexpr std::size_t kBytes = 16;
  for (std::size_t i = 0; i < kBytes; ++i) digest += fmt::format("{:02x}", bytes.at(i));
  return digest;
}

}  // namespace aliquot::kube
