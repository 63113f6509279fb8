// The live page where no engine of ours serves it: of a cluster (`aliquot page`), or of one of its
// nodes (aliquot-agent). What it shows is handed in, and it is to be read alone. Belongs to the
// loop's thread.
#pragma once

#include <optional>
#include <string>

#include "api/types.hpp"
#include "base/time.hpp"
#include "net/server.hpp"
#include "show/door.hpp"
#include "show/feed.hpp"
#include "show/history.hpp"
#include "show/picture.hpp"

namespace aliquot::show {

class LivePage {
 public:
  explicit LivePage(Listen listen) : listen_(std::move(listen)) {}

  // False: whoever asks calls us by a name that is not ours, or wants to change something; he has
  // been told.
  bool admit(const net::Request& request, const net::Responder& respond) const;
  // The page, its files and its events. False: there is none under this path.
  bool handle(const net::Request& request, const net::Responder& respond);

  void look(WallTime now, api::Overview overview);
  // Why there is nothing new to be seen, which is shown beside what was. True: it is another
  // trouble than the last one.
  bool look_in_vain(const std::string& trouble);
  // Every few seconds.
  void beat() { feed_.beat(); }
  [[nodiscard]] const Listen& listen() const { return listen_; }

 private:
  const Listen listen_;
  Feed feed_;
  Feed::Parts parts_;
  History history_;
  std::optional<Picture> picture_;
  std::string trouble_ = "nothing is known yet";
  WallTime now_;  // of the last look
};

}  // namespace aliquot::show
