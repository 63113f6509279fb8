// A YAML configuration as JSON, read by libyaml: the first document of a text. It takes what
// configurations are written in. Anchors, aliases, tags, merges and keys that are not text are
// refused, so that a small text cannot stand for a large one. Any text may come: what cannot be
// read is an error with its line.
#pragma once

#include <boost/json/value.hpp>
#include <string_view>

#include "base/result.hpp"

namespace aliquot::kube {

// The first document. Scalars: null, true, false, whole numbers, and text for everything else.
Result<boost::json::value> parse_yaml(std::string_view text);

}  // namespace aliquot::kube
