// Tells systemd how a daemon is doing, where systemd wants to know ($NOTIFY_SOCKET, Type=notify):
// that it serves, and again and again that it still does ($WATCHDOG_USEC, WatchdogSec=). The
// protocol is a datagram with one line; libsystemd is not needed for it.
#pragma once

#include <optional>
#include <string>

#include "base/time.hpp"

namespace aliquot::node {

class Notifier {
 public:
  // Takes the variables out of the environment, so that no child speaks for us: before there are
  // threads.
  static Notifier from_environment();

  void ready() const { send("READY=1"); }
  void alive() const { send("WATCHDOG=1"); }
  // How often alive() is wanted: three times in the time it takes to be killed. Nothing: never.
  [[nodiscard]] std::optional<Millis> every() const { return every_; }

 private:
  void send(std::string_view line) const;

  std::string socket_;  // empty: nobody listens
  std::optional<Millis> every_;
};

}  // namespace aliquot::node
