// The API server, as the rest of kube/ sees it: requests and their answers, and watches. All of it
// is asynchronous, on one io_context and in its thread; nothing is called back before the call that
// asked for it has returned. ApiClient is the real one, FakeApi the tests'.
//
// Statuses are values here. object_of() turns an answer into its object, or into an error that says
// what the API server said.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace aliquot::kube {

inline constexpr std::string_view kJson = "application/json";
inline constexpr std::string_view kMergePatch = "application/merge-patch+json";

struct ApiRequest {
  std::string method = "GET";
  std::string target = {};  // path and query, encoded; see object_path()
  std::string body = {};
  std::string content_type = std::string(kJson);  // a patch says which kind it is
};

struct ApiResponse {
  int status = 0;
  std::string body = {};
};

// A watch under way. Destroyed: it ends, and nothing is called any more.
class Watch {
 public:
  Watch() = default;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  virtual ~Watch() = default;
};

class Api {
 public:
  using Done = std::function<void(Result<ApiResponse>)>;
  // One event of the watch, without the end of its line.
  using OnLine = std::function<void(std::string_view)>;
  // Once, at last: status 200 and no body where the server ended it as it does every few minutes;
  // an answer that is no watch (410, 403); or an error where the connection broke. The Watch may be
  // destroyed from within.
  using OnEnd = std::function<void(Result<ApiResponse>)>;

  Api() = default;
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;
  virtual ~Api() = default;

  virtual void send(ApiRequest request, Done done) = 0;
  // `target` has watch=1 and whatever else in its query.
  [[nodiscard]] virtual std::unique_ptr<Watch> watch(std::string target, OnLine on_line,
                                                     OnEnd on_end) = 0;
};

// Any text: not JSON, too deep or not an object are errors.
Result<boost::json::object> parse_object(std::string_view text);

// The object of an answer with a status of 2xx. Else the API server's message, and its status as a
// code: not_found (404), already_exists (409 AlreadyExists), failed_state (409, else), out_of_range
// (410), permission_denied (401, 403), invalid_argument (other 4xx), unavailable (429, 5xx).
Result<boost::json::object> object_of(const Result<ApiResponse>& response);

// `/api/v1/namespaces/n/pods/p/binding` from ("api/v1", "n", "pods", "p", "binding"); what is empty
// is left out. `api` is `api/v1` or `apis/GROUP/VERSION`.
std::string object_path(std::string_view api, std::string_view in_namespace,
                        std::string_view resource, std::string_view name = {},
                        std::string_view subresource = {});

// What is at a place in an object, or nothing: where it is missing or of another type. Numbers that
// no int64 holds are nothing.
const boost::json::object* find_object(const boost::json::object& in, std::string_view key);
const boost::json::array* find_array(const boost::json::object& in, std::string_view key);
// Empty where there is none.
std::string_view find_text(const boost::json::object& in, std::string_view key);
std::optional<std::int64_t> find_number(const boost::json::object& in, std::string_view key);
// Of metadata; empty where there is none.
std::string_view meta_text(const boost::json::object& object, std::string_view key);

}  // namespace aliquot::kube
