#include "show/feed.hpp"

#include <fmt/format.h>

#include <utility>

namespace aliquot::show {
namespace {

// Names are ours, or those of nodes and jobs: plain, as JSON has them.
void add_name(std::string& out, const std::string& name) {
  out += '"';
  for (const char c : name) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  out += '"';
}

void add_part(std::string& out, const std::string& name, const std::string& json) {
  if (out.back() != '{') out += ',';
  add_name(out, name);
  out += ':';
  out += json;
}

}  // namespace

void Feed::listen(const net::Responder& listener, May may) {
  if (!snapshot_) {
    std::string text = "event: snapshot\ndata: {\"set\":{";
    for (const auto& [name, json] : parts_) add_part(text, name, json);
    snapshot_ = std::make_shared<const std::string>(text + "}}\n\n");
  }
  listener.stream({200, "", "text/event-stream", {{"Cache-Control", "no-store"}}});
  if (!listener.push(snapshot_)) return;
  const std::uint64_t number = ++last_;
  listeners_->emplace(number, Listener{listener, std::move(may)});
  listener.on_close([listeners = std::weak_ptr(listeners_), number] {
    if (const auto all = listeners.lock()) all->erase(number);
  });
}

void Feed::update(Parts parts) {
  std::string changed = "event: delta\ndata: {\"set\":{";
  const std::size_t nothing = changed.size();
  auto before = parts_.begin();
  std::string gone;
  const auto leave = [&] {
    if (!gone.empty()) gone += ',';
    add_name(gone, before->first);
    ++before;
  };
  for (const auto& [name, json] : parts) {
    while (before != parts_.end() && before->first < name) leave();
    const bool known = before != parts_.end() && before->first == name;
    if (!known || before->second != json) add_part(changed, name, json);
    if (known) ++before;
  }
  while (before != parts_.end()) leave();
  if (changed.size() == nothing && gone.empty()) return;
  parts_ = std::move(parts);
  snapshot_.reset();
  if (!watched()) return;
  changed += '}';
  if (!gone.empty()) changed += ",\"gone\":[" + gone + "]";
  tell(std::make_shared<const std::string>(changed + "}\n\n"));
}

void Feed::beat() {
  std::erase_if(*listeners_, [](const auto& one) { return one.second.may && !one.second.may(); });
  tell(std::make_shared<const std::string>(":\n\n"));
}

void Feed::tell(const std::shared_ptr<const std::string>& text) {
  // Who is hung up on leaves the list at once.
  const Listeners all = *listeners_;
  for (const auto& [number, listener] : all) {
    if (!listener.responder.push(text)) listeners_->erase(number);
  }
}

}  // namespace aliquot::show
