#include "node/enforce_settings.hpp"

namespace aliquot::node {

TomlReaders enforce_readers(EnforceSettings& to) {
  return {{"fault_domain",
           [&to](const TomlPlace& place) -> Result<void> {
             std::string word;
             TRY(one_of(word, {"gpu", "user", "job"})(place));
             to.domain = core::parse_fault_domain(word).value_or(to.domain);
             return {};
           }},
          {"strict", truth_into(to.strict)},
          {"escape", [&to](const TomlPlace& place) -> Result<void> {
             std::string word;
             TRY(one_of(word, {"report", "kill"})(place));
             to.kill_escapes = word == "kill";
             return {};
           }}};
}

std::vector<std::string> differences(const EnforceSettings& one, const EnforceSettings& other) {
  std::vector<std::string> keys;
  const auto compare = [&](const char* key, auto member) {
    if (one.*member != other.*member) keys.emplace_back(key);
  };
  compare("enabled", &EnforceSettings::enabled);
  compare("fault_domain", &EnforceSettings::domain);
  compare("strict", &EnforceSettings::strict);
  compare("escape", &EnforceSettings::kill_escapes);
  return keys;
}

}  // namespace aliquot::node
