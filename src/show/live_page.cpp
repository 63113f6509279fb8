#include "show/live_page.hpp"

#include <fmt/format.h>

#include <utility>

#include "api/json.hpp"
#include "show/page.hpp"

namespace aliquot::show {

bool LivePage::admit(const net::Request& request, const net::Responder& respond) const {
  if (!calls_us(request, listen_)) {
    respond({403, "this machine is not called so here\n", "text/plain"});
    return false;
  }
  if (request.method != "GET") {
    respond({405, "GET only\n", "text/plain"});
    return false;
  }
  return true;
}

bool LivePage::handle(const net::Request& request, const net::Responder& respond) {
  if (auto file = page_file(request)) {
    respond(std::move(*file));
  } else if (request.path == "/") {
    std::optional<Plain> plain;
    if (picture_) plain = plain_of(*picture_, now_);
    respond(front_page(plain));
  } else if (request.path == "/v1/me") {
    respond({200, api::to_json(api::CallerInfo{})});
  } else if (request.path != "/events") {
    return false;
  } else if (picture_) {
    feed_.listen(respond);
  } else {
    respond({503, trouble_ + "\n", "text/plain"});
  }
  return true;
}

void LivePage::look(WallTime now, api::Overview overview) {
  now_ = now;
  trouble_.clear();
  std::vector<api::JobInfo> holders;
  for (const api::JobInfo& job : overview.jobs) {
    if (!job.gpus.empty() && !waits(job)) holders.push_back(job);
  }
  history_.look(now, nodes_of(overview.cluster), holders);
  picture_ = make_picture(std::move(overview.cluster), std::move(overview.jobs));
  parts_ = parts_of(*picture_, history_);
  feed_.update(parts_);
}

bool LivePage::look_in_vain(const std::string& trouble) {
  if (std::exchange(trouble_, trouble) == trouble) return false;
  parts_["trouble"] =
      fmt::format("{{\"why\":{},\"seen_ms\":{}}}", api::json_text(trouble), now_.ms());
  if (picture_) feed_.update(parts_);
  return true;
}

}  // namespace aliquot::show
