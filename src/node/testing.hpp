// Help for the tests of this folder: the users that jobs run as there.
#pragma once

#include <pwd.h>
#include <unistd.h>

#include <optional>

#include "sys/identity.hpp"
#include "sys/testing.hpp"

namespace aliquot::test {

inline sys::Identity me() { return *sys::find_identity(Uid(geteuid())); }

// Another user than root, where we are root and there is one that nobody logs in as.
inline std::optional<sys::Identity> someone(const char* name = "games") {
  if (geteuid() != 0) return std::nullopt;
  const passwd* entry = getpwnam(name);
  if (entry == nullptr) return std::nullopt;
  return *sys::find_identity(Uid(entry->pw_uid));
}

}  // namespace aliquot::test
