// For trying the library on a real GPU by hand: makes a grant folder, and shows what is charged
// there.
//   make_grant FOLDER UUID BYTES     UUID as nvidia-smi -L prints it
//   make_grant FOLDER                prints the usage, one line per process
// Then: LD_PRELOAD=…/libaliquot.so ALIQUOT_GRANT=FOLDER program
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "enforce/abi.h"

namespace {

template <class T>
T* map(const std::string& path, mode_t mode, bool make) {
  const int fd = open(path.c_str(), make ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
  if (fd < 0 || (make && (ftruncate(fd, sizeof(T)) != 0 || fchmod(fd, mode) != 0))) {
    std::perror(path.c_str());
    std::exit(1);
  }
  void* memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) std::exit(1);
  return static_cast<T*>(memory);
}

void make_grant(const std::string& folder, const char* uuid, std::uint64_t bytes) {
  mkdir(folder.c_str(), 0755);
  auto* limits = map<aliquot_limits>(folder + "/limits", 0444, true);
  limits->magic = ALIQUOT_LIMITS_MAGIC;
  limits->version = ALIQUOT_ABI_VERSION;
  limits->size = sizeof *limits;
  limits->gpu_count = 1;
  limits->flags = ALIQUOT_FLAG_METER;
  limits->gpus[0].memory_bytes = bytes;
  std::string digits;
  for (const char* at = std::strchr(uuid, '-'); at != nullptr && *at != '\0'; ++at)
    if (*at != '-') digits += *at;
  for (std::size_t i = 0; i < 16 && digits.size() == 32; ++i)
    limits->gpus[0].uuid[i] =
        static_cast<std::uint8_t>(std::stoul(digits.substr(i * 2, 2), nullptr, 16));
  if (aliquot_usage_init(map<aliquot_usage>(folder + "/usage", 0600, true)) != 0) std::exit(1);
}

void show(const std::string& folder) {
  const auto* usage = map<aliquot_usage>(folder + "/usage", 0, false);
  for (std::uint32_t i = 0; i < usage->high_water; ++i) {
    const aliquot_use& use = usage->slots[i].gpus[0];
    if (usage->slots[i].pid == 0) continue;
    std::printf("pid=%d charged=%lu context=%lu gpu_ns=%lu launches=%lu refusals=%lu\n",
                usage->slots[i].pid, use.charged, use.context, use.gpu_ns, use.launches,
                use.refusals);
  }
  std::printf("peak=%lu\n", usage->past[0].peak_bytes);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4) {
    make_grant(argv[1], argv[2], std::strtoull(argv[3], nullptr, 10));
    return 0;
  }
  if (argc != 2) return 2;
  show(argv[1]);
  return 0;
}
