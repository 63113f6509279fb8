// The page's files, as they were built into the program, and the page as it is without JavaScript:
// plain tables that the server writes, and that stand in the page until its program takes over. A
// build without Node.js has the tables alone.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/types.hpp"
#include "base/time.hpp"
#include "net/http.hpp"

namespace aliquot::show {

// What the plain tables show.
struct Plain {
  api::ClusterInfo cluster;
  std::vector<api::JobInfo> jobs;  // those that run, then those that wait, in the order they will
  std::int64_t waiting = 0;        // of which there may be more than are shown
  WallTime now;
};

// Whether this build has the page's program.
bool has_page();
// `/`: the page with the tables in it. Nothing: they are not for this caller to see.
net::Response front_page(const std::optional<Plain>& plain);
// A file of the page, `/page.js`; nothing: there is none of that name.
std::optional<net::Response> page_file(const net::Request& request);

// Whether a job waits.
inline bool waits(const api::JobInfo& job) { return job.state == "PENDING"; }

std::string plain_tables(const Plain& plain);
std::string escape_html(std::string_view text);

}  // namespace aliquot::show
