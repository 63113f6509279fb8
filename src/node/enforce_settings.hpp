// How shares are held on a machine: the site's will, the same for every engine.
#pragma once

#include <string>
#include <vector>

#include "base/toml_reader.hpp"
#include "core/enforcement.hpp"

namespace aliquot::node {

struct EnforceSettings {
  bool enabled = true;
  core::FaultDomain domain = core::FaultDomain::user;
  bool strict = false;       // domain gpu: a share is also the most a job gets
  bool kill_escapes = true;  // end what holds more than its job was granted; else report it

  friend bool operator==(const EnforceSettings&, const EnforceSettings&) = default;
};

// The keys that every engine's settings have for it: fault_domain, strict, escape.
TomlReaders enforce_readers(EnforceSettings& to);
// By their keys.
std::vector<std::string> differences(const EnforceSettings& one, const EnforceSettings& other);

}  // namespace aliquot::node
