// libmunge in our words: a text that the cluster's munged vouches for, and who made it. For
// samples.hpp alone. Both calls ask munged over its socket and may take seconds when it is ill.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/ids.hpp"
#include "base/result.hpp"

namespace aliquot::slurm {

struct MungeMessage {
  std::string text;
  Uid uid;
  std::int64_t encoded_s = 0;  // the maker's wall clock
};

// socket: empty for munge's default.
Result<std::string> munge_text(std::string_view text, const std::string& socket);
// Refuses what is forged, expired or has been decoded before.
Result<MungeMessage> unmunge_text(const std::string& credential, const std::string& socket);

}  // namespace aliquot::slurm
