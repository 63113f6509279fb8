#include "node/notify.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "node/testing.hpp"
#include "sys/fd.hpp"

namespace aliquot::node {
namespace {

// What systemd would hear.
class Listener {
 public:
  explicit Listener(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_DGRAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  std::string hear() const {
    std::array<char, 256> text{};
    const ssize_t size = ::recv(fd_.get(), text.data(), text.size(), MSG_DONTWAIT);
    return size < 0 ? "" : std::string(text.data(), static_cast<std::size_t>(size));
  }

 private:
  sys::Fd fd_;
};

TEST(Notifier, SaysWhatSystemdWantsToHear) {
  const test::Folder folder;
  const std::string path = folder.path() / "notify";
  const Listener systemd(path);
  ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  ::setenv("WATCHDOG_USEC", "15000000", 1);
  ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
  const auto notifier = Notifier::from_environment();
  EXPECT_EQ(notifier.every(), seconds(5));
  notifier.ready();
  EXPECT_EQ(systemd.hear(), "READY=1");
  notifier.alive();
  EXPECT_EQ(systemd.hear(), "WATCHDOG=1");
  EXPECT_EQ(std::getenv("NOTIFY_SOCKET"), nullptr);
  EXPECT_EQ(std::getenv("WATCHDOG_USEC"), nullptr);
}

TEST(Notifier, WithoutSystemdItIsSilent) {
  ::unsetenv("NOTIFY_SOCKET");
  ::setenv("WATCHDOG_USEC", "15000000", 1);
  const auto notifier = Notifier::from_environment();
  EXPECT_FALSE(notifier.every());
  notifier.ready();
  notifier.alive();
}

TEST(Notifier, AnotherProcessesWatchdogIsNotOurs) {
  ::setenv("NOTIFY_SOCKET", "/nowhere", 1);
  ::setenv("WATCHDOG_USEC", "15000000", 1);
  ::setenv("WATCHDOG_PID", "1", 1);
  EXPECT_FALSE(Notifier::from_environment().every());
}

}  // namespace
}  // namespace aliquot::node
