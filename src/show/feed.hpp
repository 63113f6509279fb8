// What open pages are told, as server-sent events. A picture is a set of named parts, each JSON:
// who begins to listen gets all of them, everybody afterwards only those that have changed and the
// names of those that are gone. A text is made once and shared by all who get it.
//
//   event: snapshot            event: delta
//   data: {"set":{…}}          data: {"set":{"job/7":{…}},"gone":["job/5"]}
//
// It does not know what the parts are. Belongs to the loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "net/server.hpp"

namespace aliquot::show {

class Feed {
 public:
  using Parts = std::map<std::string, std::string>;

  // Answers with the picture as it is, and goes on until the listener is gone, or may not listen
  // any more.
  using May = std::function<bool()>;
  void listen(const net::Responder& listener, May may = {});
  // All there is to be seen now.
  void update(Parts parts);
  // Says nothing, so that it is noticed who is gone, and nobody between takes the connection for
  // dead; and hangs up on who may not listen any more.
  void beat();
  [[nodiscard]] bool watched() const { return !listeners_->empty(); }
  [[nodiscard]] std::size_t listeners() const { return listeners_->size(); }

 private:
  void tell(const std::shared_ptr<const std::string>& text);

  Parts parts_;
  std::shared_ptr<const std::string> snapshot_;  // null: to be made
  std::uint64_t last_ = 0;
  // Shared with the ends of connections, which may come after us.
  struct Listener {
    net::Responder responder;
    May may;
  };
  using Listeners = std::map<std::uint64_t, Listener>;
  std::shared_ptr<Listeners> listeners_ = std::make_shared<Listeners>();
};

}  // namespace aliquot::show
