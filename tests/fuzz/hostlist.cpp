// Lists of hosts: what is expanded and folded again expands to the same.
#include "base/hostlist.hpp"

#include "fuzz.hpp"

using namespace aliquot;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = fuzz::as_text(data, size);
  const auto hosts = expand_hostlist(text);
  fuzz::require_one_line(hosts);
  if (!hosts || hosts->size() > 2'000) return 0;
  const auto again = expand_hostlist(fold_hostlist(*hosts));
  fuzz::require(again.has_value() && *again == *hosts);
  return 0;
}
