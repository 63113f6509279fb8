#include "slurm/balancer/state_file.hpp"

#include <boost/json.hpp>

#include "base/text.hpp"
#include "sys/file.hpp"

namespace aliquot::slurm {
namespace {

namespace json = boost::json;

}  // namespace

std::string format_bases(const Bases& bases) {
  json::object weights;
  for (const auto& [node, base] : bases) weights[node] = base;
  return json::serialize(json::object{{"v", 1}, {"weights", std::move(weights)}}) + "\n";
}

Result<Bases> parse_bases(std::string_view text) {
  try {
    boost::system::error_code error;
    const json::value parsed = json::parse({text.data(), text.size()}, error);
    const json::object* object = error ? nullptr : parsed.if_object();
    const json::value* found = object == nullptr ? nullptr : object->if_contains("weights");
    const json::object* weights = found == nullptr ? nullptr : found->if_object();
    if (weights == nullptr) return fail(Error::Code::invalid_argument, "it holds no weights");
    Bases bases;
    for (const auto& entry : *weights) {
      boost::system::error_code wrong;
      const auto base = entry.value().to_number<std::uint32_t>(wrong);
      if (!wrong) bases[std::string(entry.key())] = base;
    }
    return bases;
  } catch (const std::exception& error) {  // out of memory
    return fail(Error::Code::internal, "{}", error.what());
  }
}

Result<Bases> load_bases(const std::filesystem::path& path) {
  const auto text = sys::read_whole(path);
  if (!text) {
    if (text.error().code == Error::Code::not_found) return Bases();
    return tl::make_unexpected(text.error());
  }
  auto bases = parse_bases(*text);
  if (!bases) {
    return fail(bases.error().code, "cannot read {}: {}", quote(path.string()),
                bases.error().message);
  }
  return bases;
}

Result<void> store_bases(const std::filesystem::path& path, const Bases& bases) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  return sys::write_whole(path, format_bases(bases), 0644, true);
}

}  // namespace aliquot::slurm
