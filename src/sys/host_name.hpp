// This machine's name, as the kernel has it. Needs libc alone, for Slurm's plugins.
#pragma once

#include <unistd.h>

#include <string>

namespace aliquot::sys {

inline std::string host_name() {
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0) return "localhost";
  return name;
}

// Without the domain: as nodes are named.
inline std::string short_host_name() {
  const std::string name = host_name();
  return name.substr(0, name.find('.'));
}

}  // namespace aliquot::sys
