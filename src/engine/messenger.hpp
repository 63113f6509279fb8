// Sends what Notices words: mails, by the sendmail interface, as the job's user; and the events for
// the site's command, as an unprivileged user. Each user's in a lane of its own, one after the
// other: what hangs is ended after half a minute, and what comes too fast is dropped and said so in
// the log. No shell reads any of it.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "engine/executor.hpp"
#include "node/lanes.hpp"

namespace aliquot::engine {

class Messenger {
 public:
  // Returns at once.
  void post(const Notice& notice);

 private:
  std::mutex mutex_;
  std::map<Uid, std::size_t> waiting_;  // of each user's jobs
  node::Lanes lanes_{"aq-messages"};    // last: it ends first
};

// What the program reads: a mail with its headers.
std::string mail_text(const Notice& notice);

}  // namespace aliquot::engine
