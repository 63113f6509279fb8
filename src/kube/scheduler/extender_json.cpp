#include "kube/scheduler/extender_json.hpp"

#include "base/text.hpp"
#include "kube/model/json_read.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

const json::value* find_any_case(const json::object& in, std::string_view key) {
  if (const json::value* found = find_value(in, key)) return found;
  for (const auto& entry : in) {
    if (equals_ignoring_case({entry.key().data(), entry.key().size()}, key)) return &entry.value();
  }
  return nullptr;
}

std::string_view text_any_case(const json::object& in, std::string_view key) {
  const json::value* found = find_any_case(in, key);
  const json::string* text = found == nullptr ? nullptr : found->if_string();
  return text == nullptr ? std::string_view() : std::string_view(text->data(), text->size());
}

const json::array* items_of(const json::value* nodes) {
  const json::object* list = nodes == nullptr ? nullptr : nodes->if_object();
  return list == nullptr ? nullptr : find_array(*list, "items");
}

std::string_view node_name(const json::value& node) {
  const json::object* object = node.if_object();
  return object == nullptr ? std::string_view() : meta_text(*object, "name");
}

// Appended by hand: a thousand nodes as json::values would take longer than deciding about them.
void append_text(std::string& out, std::string_view text) {
  out += '"';
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      out += '\\';
      out += letter;
    } else if (code < 0x20) {
      out += fmt::format("\\u{:04x}", code);
    } else {
      out += letter;
    }
  }
  out += '"';
}

void append_failed(std::string& out, std::string_view key, const std::vector<FailedNode>& failed,
                   bool all) {
  append_text(out, key);
  out += ":{";
  bool first = true;
  for (const FailedNode& node : failed) {
    if (!all && node.curable) continue;
    if (!std::exchange(first, false)) out += ',';
    append_text(out, node.node);
    out += ':';
    append_text(out, node.why);
  }
  out += '}';
}

void append_nodes(std::string& out, const FilterArgs& args,
                  const std::vector<std::string_view>& fitting) {
  if (args.by_name) {
    out += "\"NodeNames\":[";
    bool first = true;
    for (const std::string_view name : fitting) {
      if (!std::exchange(first, false)) out += ',';
      append_text(out, name);
    }
    out += "],";
    return;
  }
  out += R"("Nodes":{"apiVersion":"v1","kind":"NodeList","metadata":{},"items":[)";
  const json::array* items = items_of(find_any_case(args.text.as_object(), "Nodes"));
  auto next = fitting.begin();
  bool first = true;
  // Both are in the same order.
  for (const json::value& node : *items) {
    if (next == fitting.end() || *next != node_name(node)) continue;
    ++next;
    if (!std::exchange(first, false)) out += ',';
    out += json::serialize(node);
  }
  out += "]},";
}

}  // namespace

Result<FilterArgs> read_filter_args(std::string_view body, const Names& names) {
  FilterArgs args;
  args.text = TRY(parse_json(body));
  const json::object* object = args.text.if_object();
  if (object == nullptr) return fail(Error::Code::invalid_argument, "the request is no object");
  const json::value* pod = find_any_case(*object, "Pod");
  if (pod == nullptr) return fail(Error::Code::invalid_argument, "the request has no pod");
  args.pod = TRY(read_pod(*pod, names));
  const json::value* by_name = find_any_case(*object, "NodeNames");
  if (const json::array* list = by_name == nullptr ? nullptr : by_name->if_array()) {
    args.nodes.reserve(list->size());
    for (const json::value& name : *list) {
      const json::string* text = name.if_string();
      if (text == nullptr) {
        return fail(Error::Code::invalid_argument, "the name of a node is no text");
      }
      args.nodes.emplace_back(text->data(), text->size());
    }
    return args;
  }
  const json::array* items = items_of(find_any_case(*object, "Nodes"));
  if (items == nullptr) return fail(Error::Code::invalid_argument, "the request has no nodes");
  args.by_name = false;
  for (const json::value& node : *items) {
    args.nodes.push_back(node_name(node));
    if (args.nodes.back().empty()) {
      return fail(Error::Code::invalid_argument, "a node has no name");
    }
  }
  return args;
}

std::string write_filter_result(const FilterArgs& args,
                                const std::vector<std::string_view>& fitting,
                                const std::vector<FailedNode>& failed) {
  std::string out = "{";
  append_nodes(out, args, fitting);
  // Schedulers that do not know the second list read the reasons in the first; for the others the
  // second one counts.
  append_failed(out, "FailedNodes", failed, true);
  out += ',';
  append_failed(out, "FailedAndUnresolvableNodes", failed, false);
  out += R"(,"Error":""})";
  return out;
}

std::string write_filter_error(std::string_view error) {
  std::string out = "{\"Error\":";
  append_text(out, error);
  return out + "}";
}

std::string write_priorities(const std::vector<HostPriority>& priorities) {
  std::string out = "[";
  bool first = true;
  for (const HostPriority& one : priorities) {
    if (!std::exchange(first, false)) out += ',';
    out += "{\"Host\":";
    append_text(out, one.host);
    out += fmt::format(",\"Score\":{}}}", one.score);
  }
  return out + "]";
}

Result<BindArgs> read_bind_args(std::string_view body) {
  const json::value parsed = TRY(parse_json(body));
  const json::object* object = parsed.if_object();
  if (object == nullptr) return fail(Error::Code::invalid_argument, "the request is no object");
  BindArgs args{.pod = {std::string(text_any_case(*object, "PodNamespace")),
                        std::string(text_any_case(*object, "PodName")),
                        std::string(text_any_case(*object, "PodUID"))},
                .node = std::string(text_any_case(*object, "Node"))};
  if (args.pod.space.empty() || args.pod.name.empty() || args.pod.uid.empty() ||
      args.node.empty()) {
    return fail(Error::Code::invalid_argument,
                "the request lacks one of PodNamespace, PodName, PodUID and Node");
  }
  return args;
}

std::string write_bind_result(std::string_view error) { return write_filter_error(error); }

}  // namespace aliquot::kube
