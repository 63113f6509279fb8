#include "node/enforce_settings.hpp"

#include <string>

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

}  // namespace aliquot::node
