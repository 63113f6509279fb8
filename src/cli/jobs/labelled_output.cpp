#include "cli/jobs/labelled_output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

namespace aliquot::cli {

void LabelledOutput::add(std::size_t task, sys::Fd from, int to) {
  streams_.push_back({task, std::move(from), to, {}});
}

void LabelledOutput::poll_for(std::vector<pollfd>& polled) const {
  for (const auto& stream : streams_) polled.push_back({stream.from.get(), POLLIN, 0});
}

void LabelledOutput::read(const std::vector<pollfd>& polled, std::size_t first) {
  // Backwards, because a stream that has ended is erased.
  for (std::size_t i = streams_.size(); i-- > 0;) {
    if (polled[first + i].revents != 0) read_one(i);
  }
}

void LabelledOutput::read_one(std::size_t index) {
  char buffer[16'384];
  auto& stream = streams_[index];
  const auto got = ::read(stream.from.get(), buffer, sizeof buffer);
  if (got < 0 && errno == EINTR) return;
  if (got > 0) {
    stream.line.append(buffer, static_cast<std::size_t>(got));
    write_lines(stream, false);
    return;
  }
  write_lines(stream, true);
  streams_.erase(streams_.begin() + static_cast<std::ptrdiff_t>(index));
}

void LabelledOutput::write_lines(Stream& stream, bool all) const {
  const auto width = fmt::formatted_size("{}", tasks_ - 1);
  const auto label = fmt::format("{:>{}}: ", stream.task, width);
  std::string text;
  std::size_t start = 0;
  while (true) {
    const auto end = stream.line.find('\n', start);
    if (end == stream.line.npos) break;
    text += label;
    text.append(stream.line, start, end - start + 1);
    start = end + 1;
  }
  stream.line.erase(0, start);
  if (!stream.line.empty() && (all || stream.line.size() > 65'536)) {
    text += label + stream.line + '\n';
    stream.line.clear();
  }
  sys::write_all(stream.to, text);
}

void LabelledOutput::flush() {
  for (auto& stream : streams_) write_lines(stream, true);
  streams_.clear();
}

}  // namespace aliquot::cli
