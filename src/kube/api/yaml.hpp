// The part of YAML that configurations are written in, read into JSON: mappings and lists by
// indentation, JSON's own brackets, plain and quoted scalars, blocks of text (| and >), comments,
// and more than one document where only the first is asked for. Anchors, tags, complex keys and
// merges are refused in words. Any text: what cannot be read is an error with its line.
#pragma once

#include <boost/json/value.hpp>
#include <string_view>

#include "base/result.hpp"

namespace aliquot::kube {

// The first document. Scalars: null, true, false, whole numbers, and text for everything else.
Result<boost::json::value> parse_yaml(std::string_view text);

}  // namespace aliquot::kube
