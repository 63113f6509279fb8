// Names of users, for those who look. The user database may ask the network and not answer: it is
// asked in a thread of its own that nobody waits for longer than a moment, and until it has
// answered a user has his number. On any thread.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "node/monitor.hpp"

namespace aliquot::slurm {

class UserNames {
 public:
  using Ask = std::string (*)(Uid);
  explicit UserNames(Ask ask) : shared_(std::make_shared<Shared>(ask)) {}

  [[nodiscard]] std::string of(Uid uid) const;
  // Whose jobs these are, and whose processes, which get their names here.
  void add(const std::vector<node::RunningJob>& running, std::vector<node::GpuView>& views);

 private:
  struct Shared {
    explicit Shared(Ask to) : ask(to) {}
    const Ask ask;
    std::mutex mutex;
    std::condition_variable answered;
    std::map<Uid, std::string> names;
    bool asking = false;
  };
  void learn(std::vector<Uid> uids);

  std::shared_ptr<Shared> shared_;  // the thread may outlive us
};

}  // namespace aliquot::slurm
