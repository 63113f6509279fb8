// What MPS clients, the control command and the control daemon say to each other: lines of text
// over the socket `control` in the pipe directory. A client says "client MACHINE", is told "gpus
// N…" or "other", later says "attach SLOT GENERATION" and is told "server SLOT GENERATION FRACTION
// LIMIT…" or "full". A command says "command …" and reads until the end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace aliquot::standin {

[[nodiscard]] std::string pipe_directory();
[[nodiscard]] int connect_to_control(const std::string& directory);  // -1 when nobody listens
[[nodiscard]] int listen_at_control(const std::string& directory);
[[nodiscard]] bool send_line(int fd, std::string line);
[[nodiscard]] bool receive_line(int fd, std::string* line);

// "0=10G,1=512M" for one device; 0 when it names no limit for it.
[[nodiscard]] std::uint64_t limit_of_device(std::string_view text, unsigned ordinal);
// "10G", "512M", "512MB", "1024K"; a bare number is bytes. 0 when it is none.
[[nodiscard]] std::uint64_t parse_size(std::string_view text);

}  // namespace aliquot::standin
