#include "kube/api/api.hpp"

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>

#include "base/text.hpp"
#include "net/http.hpp"

namespace aliquot::kube {

namespace json = boost::json;

namespace {

Error::Code code_of(int status, std::string_view reason) {
  switch (status) {
    case 401:
    case 403:
      return Error::Code::permission_denied;
    case 404:
      return Error::Code::not_found;
    case 409:
      return reason == "AlreadyExists" ? Error::Code::already_exists : Error::Code::failed_state;
    case 410:
      return Error::Code::out_of_range;
    case 429:
      return Error::Code::unavailable;
    default:
      return status >= 400 && status < 500 ? Error::Code::invalid_argument
                                           : Error::Code::unavailable;
  }
}

std::string_view view_of(const json::string& text) { return {text.data(), text.size()}; }

}  // namespace

Result<json::object> parse_object(std::string_view text) {
  try {
    json::parse_options options;
    options.max_depth = 128;
    boost::system::error_code error;
    json::value value = json::parse({text.data(), text.size()}, error, {}, options);
    if (error) return fail(Error::Code::invalid_argument, "this is no JSON: {}", error.message());
    json::object* const object = value.if_object();
    if (object == nullptr) {
      return fail(Error::Code::invalid_argument, "this JSON is no object");
    }
    return std::move(*object);
  } catch (const std::exception& error) {
    return fail(Error::Code::invalid_argument, "this is no JSON: {}", error.what());
  }
}

Result<json::object> object_of(const Result<ApiResponse>& response) {
  if (!response) return tl::unexpected<Error>(response.error());
  auto object = parse_object(response->body);
  const int status = response->status;
  if (status >= 200 && status < 300) {
    if (object) return object;
    return fail(Error::Code::unavailable, "the API server answered with no object: {}",
                object.error().message);
  }
  std::string_view reason;
  std::string_view message;
  if (object) {
    reason = find_text(*object, "reason");
    message = find_text(*object, "message");
  }
  return fail(code_of(status, reason), "the API server refused ({}{}{}): {}", status,
              reason.empty() ? "" : " ", make_plain(reason),
              message.empty() ? "without a word" : make_plain(message.substr(0, 2'000)));
}

std::string object_path(std::string_view api, std::string_view in_namespace,
                        std::string_view resource, std::string_view name,
                        std::string_view subresource) {
  std::string path = "/" + std::string(api);
  const auto add = [&path](std::string_view part) {
    if (!part.empty()) path += "/" + net::percent_encode(part);
  };
  if (!in_namespace.empty()) {
    add("namespaces");
    add(in_namespace);
  }
  add(resource);
  add(name);
  add(subresource);
  return path;
}

const json::object* find_object(const json::object& in, std::string_view key) {
  const json::value* const found = in.if_contains({key.data(), key.size()});
  return found == nullptr ? nullptr : found->if_object();
}

const json::array* find_array(const json::object& in, std::string_view key) {
  const json::value* const found = in.if_contains({key.data(), key.size()});
  return found == nullptr ? nullptr : found->if_array();
}

std::string_view find_text(const json::object& in, std::string_view key) {
  const json::value* const found = in.if_contains({key.data(), key.size()});
  const json::string* const text = found == nullptr ? nullptr : found->if_string();
  return text == nullptr ? std::string_view() : view_of(*text);
}

std::optional<std::int64_t> find_number(const json::object& in, std::string_view key) {
  const json::value* const found = in.if_contains({key.data(), key.size()});
  if (found == nullptr) return std::nullopt;
  if (const auto* number = found->if_int64()) return *number;
  if (const auto* number = found->if_uint64(); number != nullptr && *number <= INT64_MAX) {
    return static_cast<std::int64_t>(*number);
  }
  return std::nullopt;
}

std::string_view meta_text(const json::object& object, std::string_view key) {
  const json::object* const metadata = find_object(object, "metadata");
  return metadata == nullptr ? std::string_view() : find_text(*metadata, key);
}

}  // namespace aliquot::kube
