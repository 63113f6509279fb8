// What the node agents tell the balancer: how busy the GPUs of a node are. A sample is JSON inside
// a munge credential inside one UDP datagram: nothing to connect, nothing to wait for, and nobody
// but root on a machine of the cluster can make one. A sample that is lost is made good by the
// next, a second later.
//
// Here are the payload, the sending end (agent) and the receiving end (balancer). What a sample
// means for the placement of jobs is balancer/weights.hpp's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/units.hpp"
#include "sys/fd.hpp"

namespace aliquot::slurm {

// A process on a GPU that belongs to no job.
struct ForeignProcess {
  std::int64_t pid = 0;
  std::string user = {};  // a plain name; is_plain_name()
  Bytes memory = {};
  friend bool operator==(const ForeignProcess&, const ForeignProcess&) = default;
};

// What a job does on a GPU.
struct JobUse {
  std::int64_t job = 0;
  Compute utilisation = {};  // time with a kernel of it running, of kWholeGpu
  Bytes memory = {};
  friend bool operator==(const JobUse&, const JobUse&) = default;
};

struct GpuLoad {
  std::int64_t index = 0;
  Compute utilisation = {};  // time with a kernel running, of kWholeGpu
  Bytes memory_used = {};
  Bytes memory = {};
  std::vector<ForeignProcess> foreign = {};  // at most kMostForeign, the largest first
  std::string trouble = {};                  // gpu/trouble.hpp; empty: it is well
  std::vector<JobUse> jobs = {};             // at most kMostJobs, the largest first
  friend bool operator==(const GpuLoad&, const GpuLoad&) = default;
};
inline constexpr std::size_t kMostForeign = 4;
inline constexpr std::size_t kMostJobs = 20;

// What processes of no job hold of it.
Bytes foreign_memory(const GpuLoad& gpu);

struct NodeSample {
  NodeId node;
  std::vector<GpuLoad> gpus;
  std::string version = {};  // of Aliquot there; empty: from an agent that does not say
  friend bool operator==(const NodeSample&, const NodeSample&) = default;
};

// The version of Aliquot that this is.
std::string_view own_version();

// {"v":1,"node":"n1","version":"1.0","gpus":[{"index":0,"utilisation":3500,"memory_used":1,
//  "memory":2,"foreign":[{"pid":7,"user":"eve","memory":1}],"trouble":"xid79",
//  "jobs":[{"job":7,"utilisation":1200,"memory":1}]}]}; the last three only where there are any.
std::string encode_sample(const NodeSample& sample);
// Refuses whatever no agent says: a name that is no host's, a GPU twice, numbers out of range.
// Fields that it does not know are from a newer agent, and skipped.
Result<NodeSample> decode_sample(std::string_view text);

// Where the agents send to, and who vouches for them.
struct SampleEndpoint {
  std::vector<std::string> hosts;  // each gets every sample: a cluster may have several controllers
  std::uint16_t port = 6821;
  std::string munge_socket = {};  // empty: munge's own default
};

// Sends from a thread of its own: asking munged and the name service may take its time, and the
// caller must not wait for either. Failing and working again are logged, once each.
class SampleSender {
 public:
  explicit SampleSender(SampleEndpoint to);
  SampleSender(const SampleSender&) = delete;
  SampleSender& operator=(const SampleSender&) = delete;
  ~SampleSender();  // waits for a send under way

  // Returns at once. A sample that has not left yet is replaced: only the newest is of interest.
  void send(const NodeSample& sample);

 private:
  class Sending;
  std::unique_ptr<Sending> sending_;
};

// Listens on the port, of all addresses unless `address` is one of this machine's.
class SampleReceiver {
 public:
  // Port 0 takes any free one.
  static Result<SampleReceiver> create(const std::string& address, std::uint16_t port,
                                       std::string munge_socket);

  // To poll on.
  [[nodiscard]] int descriptor() const { return socket_.get(); }
  [[nodiscard]] std::uint16_t port() const { return port_; }

  struct Sample {
    NodeSample sample;
    std::int64_t encoded_s = 0;  // the sender's wall clock, in seconds
  };
  // The next sample that has arrived; nothing when there is none. Never waits for the network, only
  // for munged. An error is a datagram that was dropped, and why: forged, expired, seen before, not
  // root's or no sample. There may be more behind it.
  Result<std::optional<Sample>> receive();

 private:
  SampleReceiver(sys::Fd socket, std::uint16_t port, std::string munge_socket);

  sys::Fd socket_;
  std::uint16_t port_ = 0;
  std::string munge_socket_;
  std::string buffer_;
};

}  // namespace aliquot::slurm
