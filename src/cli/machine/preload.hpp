// /etc/ld.so.preload: loads the library into every process of the machine. So a process that has
// lost its environment (`env -i`, su, ssh) is held to its job's limits as well. `aliquot setup
// preload` changes the file, `aliquot doctor` checks it.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace aliquot::cli {

inline constexpr const char* kPreloadFile = "/etc/ld.so.preload";

// The text of the file with the library in it, once, and with any other of ours taken out; or, for
// an empty library, without. Everything else stays as it is.
std::string edit_preload(std::string_view text, std::string_view library);
// The full path of ours that is named there; empty: none.
std::string find_in_preload(std::string_view text);

// root: "" for this machine, or the folder of another's files. Each says what it did.
Result<std::string> preload_on(const std::string& root, std::string library);
Result<std::string> preload_off(const std::string& root);

}  // namespace aliquot::cli
