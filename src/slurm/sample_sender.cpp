#include <netdb.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "node/worker.hpp"
#include "slurm/munge.hpp"
#include "slurm/samples.hpp"
#include "sys/fd.hpp"

namespace aliquot::slurm {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

// A datagram socket connected to one host; looked up anew after each failure, since names move.
class Target {
 public:
  explicit Target(std::string host, std::uint16_t port) : host_(std::move(host)), port_(port) {}

  Result<void> send(const std::string& datagram) {
    if (!socket_) TRY(open());
    if (put(datagram) || errno == EAGAIN) return {};
    const int error = errno;
    if (error == ECONNREFUSED) {
      // That is about the one before: nobody was listening. This one has not left yet.
      put(datagram);
    } else {
      socket_.reset();
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
      socket_.reset(::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      if (socket_ && ::connect(socket_.get(), entry->ai_addr, entry->ai_addrlen) == 0) return {};
      error = errno;
      socket_.reset();
    }
    return fail(Error::Code::unavailable, "cannot reach {}: {}", host_, std::strerror(error));
  }

  bool put(const std::string& datagram) const {
    return ::send(socket_.get(), datagram.data(), datagram.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >=
           0;
  }

  std::string host_;
  std::uint16_t port_;
  sys::Fd socket_;
};

}  // namespace

class SampleSender::Sending {
 public:
  explicit Sending(SampleEndpoint to) : munge_socket_(std::move(to.munge_socket)) {
    for (auto& host : to.hosts) targets_.push_back(std::make_unique<Target>(host, to.port));
  }

  void put(std::string text) {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(next_, std::move(text))) worker_.post([this] { report(send_all(take())); });
  }

 private:
  std::string take() {
    const std::lock_guard lock(mutex_);
    return *std::exchange(next_, std::nullopt);
  }

  Result<void> send_all(const std::string& text) {
    const std::string credential = TRY(munge_text(text, munge_socket_));
    Result<void> result;
    bool reached = false;
    for (const auto& target : targets_) {
      if (const auto sent = target->send(credential)) {
        reached = true;
      } else {
        result = sent;
      }
    }
    // One controller of two is enough: the other is a spare that may be down for good.
    return reached ? Result<void>() : result;
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
  std::vector<std::unique_ptr<Target>> targets_;  // the worker's alone
  bool working_ = true;                           // the worker's alone
  std::mutex mutex_;
  std::optional<std::string> next_;    // that has not left yet
  node::Worker worker_{"aq-samples"};  // ends first
};

SampleSender::SampleSender(SampleEndpoint to)
    : sending_(std::make_unique<Sending>(std::move(to))) {}
SampleSender::~SampleSender() = default;

void SampleSender::send(const NodeSample& sample) { sending_->put(encode_sample(sample)); }

}  // namespace aliquot::slurm
