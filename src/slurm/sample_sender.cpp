#include <netdb.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "node/worker.hpp"
#include "slurm/munge.hpp"
#include "slurm/samples.hpp"

namespace aliquot::slurm {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

// A datagram socket connected to one host; looked up anew after each failure, since names move.
class Target {
 public:
  explicit Target(std::string host, std::uint16_t port) : host_(std::move(host)), port_(port) {}
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  ~Target() { close(); }

  Result<void> send(const std::string& datagram) {
    if (socket_ < 0) TRY(open());
    if (put(datagram) || errno == EAGAIN) return {};
    const int error = errno;
    if (error == ECONNREFUSED) {
      // That is about the one before: nobody was listening. This one has not left yet.
      put(datagram);
    } else {
      close();
    }
    return fail(Error::Code::unavailable, "cannot send to {} port {}: {}", host_, port_,
                std::strerror(error));
  }

 private:
  Result<void> open() {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    const int failed = ::getaddrinfo(host_.c_str(), std::to_string(port_).c_str(), &wanted, &found);
    if (failed != 0) {
      return fail(Error::Code::not_found, "cannot find the host {}: {}", host_,
                  ::gai_strerror(failed));
    }
    const std::unique_ptr<addrinfo, FreeAddresses> owner(found);
    int error = 0;
    for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
      socket_ = ::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
      if (socket_ >= 0 && ::connect(socket_, entry->ai_addr, entry->ai_addrlen) == 0) return {};
      error = errno;
      close();
    }
    return fail(Error::Code::unavailable, "cannot reach {}: {}", host_, std::strerror(error));
  }

  bool put(const std::string& datagram) const {
    return ::send(socket_, datagram.data(), datagram.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
  }

  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

  std::string host_;
  std::uint16_t port_;
  int socket_ = -1;
};

}  // namespace

class SampleSender::Worker {
 public:
  explicit Worker(SampleEndpoint to) : munge_socket_(std::move(to.munge_socket)) {
    for (auto& host : to.hosts) targets_.push_back(std::make_unique<Target>(host, to.port));
    thread_ = node::start_thread("aq-samples", [this] { run(); });
  }
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  void put(std::string text) {
    {
      const std::lock_guard lock(mutex_);
      next_ = std::move(text);
    }
    wake_.notify_one();
  }

  [[nodiscard]] std::uint64_t sent() const { return sent_; }

 private:
  void run() {
    for (;;) {
      std::string text;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stop_ || next_; });
        if (stop_) return;
        text = std::move(*next_);
        next_.reset();
      }
      report(send_all(text));
    }
  }

  Result<void> send_all(const std::string& text) {
    const std::string credential = TRY(munge_text(text, munge_socket_));
    Result<void> result;
    std::size_t reached = 0;
    for (const auto& target : targets_) {
      if (const auto sent = target->send(credential)) {
        ++reached;
      } else {
        result = sent;
      }
    }
    if (reached > 0) ++sent_;
    // One controller of two is enough: the other is a spare that may be down for good.
    return reached > 0 ? Result<void>() : result;
  }

  void report(const Result<void>& result) {
    if (result.has_value() == working_) return;
    working_ = result.has_value();
    if (working_) {
      spdlog::info("samples reach the balancer again");
    } else {
      spdlog::warn("no samples to the balancer: {}", result.error().message);
    }
  }

  std::string munge_socket_;
  std::vector<std::unique_ptr<Target>> targets_;  // the thread's alone
  bool working_ = true;                           // the thread's alone
  std::atomic<std::uint64_t> sent_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<std::string> next_;
  bool stop_ = false;
  std::thread thread_;
};

SampleSender::SampleSender(SampleEndpoint to) : worker_(std::make_unique<Worker>(std::move(to))) {}
SampleSender::~SampleSender() = default;

void SampleSender::send(const NodeSample& sample) { worker_->put(encode_sample(sample)); }
std::uint64_t SampleSender::sent() const { return worker_->sent(); }

}  // namespace aliquot::slurm
