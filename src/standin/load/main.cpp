// aliquot-load: see options.cpp for what it can do.
#include <unistd.h>

#include <cstdio>

#include "standin/load/load.hpp"

namespace {

using namespace aliquot::standin;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

void print_json(const Report& r, int code) {
  std::printf(
      "{\"pid\":%d,\"device\":\"%s\",\"total\":%lu,\"free_before\":%lu,\"allocated\":%lu,"
      "\"pieces\":%u,"
      "\"kernels\":%lu,\"iterations\":%lu,\"gpu_seconds\":%.6f,\"wall_seconds\":%.6f,"
      "\"verified\":\"%s\",\"error\":\"%s\",\"exit\":%d}\n",
      getpid(), escaped(r.device).c_str(), r.total, r.free_before, r.allocated, r.pieces, r.kernels,
      r.iterations, r.gpu_seconds, r.wall_seconds, r.verified.c_str(), escaped(r.error).c_str(),
      code);
}

void print_text(const Report& r) {
  if (!r.device.empty())
    std::printf("device      %s, %lu MiB, %lu MiB free\n", r.device.c_str(), r.total >> 20,
                r.free_before >> 20);
  if (r.pieces > 0) std::printf("allocated   %lu MiB in %u pieces\n", r.allocated >> 20, r.pieces);
  if (r.wall_seconds > 0)
    std::printf("computed    %lu kernels in %.2f s, %.1f per second\n", r.kernels, r.wall_seconds,
                static_cast<double>(r.kernels) / r.wall_seconds);
  if (r.verified != "no") std::printf("verified    %s\n", r.verified.c_str());
  std::fflush(stdout);
  if (!r.error.empty()) std::fprintf(stderr, "aliquot-load: %s\n", r.error.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = parse_options(argc, argv);
  if (!options) return static_cast<int>(ExitCode::usage);
  if (options->help) {
    std::fputs(help_text(), stdout);
    return static_cast<int>(ExitCode::ok);
  }
  DriverApi api{};
  std::string why;
  if (!api.load(&why)) {
    std::fprintf(stderr, "aliquot-load: %s\n", why.c_str());
    return static_cast<int>(ExitCode::no_device);
  }
  Load load(api, *options);
  const int code = static_cast<int>(load.run());
  if (options->json)
    print_json(load.report(), code);
  else
    print_text(load.report());
  return code;
}
