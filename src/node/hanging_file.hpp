// For tests: a file system with one file, `file`, which everybody may open and no write to which
// ever returns, as on a server that is away. Needs root and FUSE; where there is none, mounted() is
// false. What hangs in it is let go when this goes.
#pragma once

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/result.hpp"
#include "sys/fd.hpp"

namespace aliquot::test {

class HangingFile {
 public:
  explicit HangingFile(std::filesystem::path folder)
      : folder_(std::move(folder)), device_(::open("/dev/fuse", O_RDWR | O_CLOEXEC)) {
    std::filesystem::create_directory(folder_);
    const auto options =
        fmt::format("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device_.get());
    mounted_ = device_ && ::mount("hanging", folder_.c_str(), "fuse", MS_NOSUID | MS_NODEV,
                                  options.c_str()) == 0;
    if (mounted_) thread_ = std::thread([this] { serve(); });
  }
  HangingFile(const HangingFile&) = delete;
  HangingFile& operator=(const HangingFile&) = delete;
  ~HangingFile() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    if (mounted_) ::umount2(folder_.c_str(), MNT_DETACH | MNT_FORCE);
  }

  [[nodiscard]] bool mounted() const { return mounted_; }
  [[nodiscard]] std::filesystem::path path() const { return folder_ / "file"; }
  [[nodiscard]] bool somebody_hangs() const { return hanging_; }

 private:
  void serve() {
    std::vector<char> request(1U << 20U);
    while (!stop_) {
      pollfd readable{device_.get(), POLLIN, 0};
      if (::poll(&readable, 1, 50) <= 0) continue;
      const ssize_t n = ::read(device_.get(), request.data(), request.size());
      if (n < 0 && errno != ENODEV) continue;
      if (n < static_cast<ssize_t>(sizeof(fuse_in_header))) return;
      fuse_in_header header{};
      std::memcpy(&header, request.data(), sizeof header);
      answer(header);
    }
  }

  void answer(const fuse_in_header& header) {
    fuse_init_out hello{};
    hello.major = FUSE_KERNEL_VERSION;
    hello.minor = 31;
    hello.max_write = 65536;
    fuse_attr_out attributes{};
    fill(attributes.attr, header.nodeid == FUSE_ROOT_ID);
    fuse_entry_out entry{};
    entry.nodeid = 2;
    fill(entry.attr, false);
    const fuse_open_out opened{};
    switch (header.opcode) {
      case FUSE_INIT:
        return reply(header, &hello, sizeof hello);
      case FUSE_LOOKUP:
        return reply(header, &entry, sizeof entry);
      case FUSE_GETATTR:
      case FUSE_SETATTR:
        return reply(header, &attributes, sizeof attributes);
      case FUSE_OPEN:
      case FUSE_OPENDIR:
        return reply(header, &opened, sizeof opened);
      case FUSE_RELEASE:
      case FUSE_RELEASEDIR:
        return reply(header, nullptr, 0);
      case FUSE_WRITE:
        hanging_ = true;
        return;
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET:
      case FUSE_INTERRUPT:
        return;
      default:
        return reply(header, nullptr, 0, -ENOSYS);
    }
  }

  static void fill(fuse_attr& attributes, bool folder) {
    attributes.ino = folder ? 1 : 2;
    attributes.nlink = 1;
    attributes.mode = folder ? S_IFDIR | 0777 : S_IFREG | 0666;
  }

  void reply(const fuse_in_header& header, const void* body, std::size_t size, int error = 0) {
    fuse_out_header head{};
    head.len = static_cast<std::uint32_t>(sizeof head + size);
    head.error = error;
    head.unique = header.unique;
    std::string text(sizeof head + size, '\0');
    std::memcpy(text.data(), &head, sizeof head);
    if (size > 0) std::memcpy(text.data() + sizeof head, body, size);
    [[maybe_unused]] const auto written = ::write(device_.get(), text.data(), text.size());
  }

  std::filesystem::path folder_;
  sys::Fd device_;
  bool mounted_ = false;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> hanging_ = false;
  std::thread thread_;
};

}  // namespace aliquot::test
