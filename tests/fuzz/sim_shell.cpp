#include <string>
#include <string_view>

#include "fuzz.hpp"
#include "sim/shell.hpp"

using namespace aliquot;

// A script of any text: every line is answered or refused on one line, and what is saved can be
// restored. It starts with a node, so that short inputs get somewhere.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string file;
  sim::Shell shell({.read = [&](const std::string&) -> Result<std::string> { return file; },
                    .write = [&](const std::string&, std::string_view text) -> Result<void> {
                      file = std::string(text);
                      return {};
                    }});
  fuzz::require(shell.execute("node add n cpus=8 memory=8G").has_value());
  fuzz::require(shell.execute("gpu add n model=m memory=8G count=2").has_value());
  auto rest = fuzz::as_text(data, size);
  while (!rest.empty() && !shell.done()) {
    const auto end = rest.find('\n');
    fuzz::require_one_line(shell.execute(rest.substr(0, end)));
    rest = end == rest.npos ? std::string_view() : rest.substr(end + 1);
  }
  const auto shown = shell.execute("show ledger");
  fuzz::require(shown.has_value() && shell.execute("save f").has_value());
  fuzz::require(shell.execute("restore f").has_value());
  fuzz::require(shell.execute("show ledger") == shown);
  return 0;
}
