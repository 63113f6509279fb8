#include "standin/cuda/mps_client.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>

#include "standin/mps/wire.hpp"

namespace aliquot::standin {
namespace {

int connection = -1;

}  // namespace

bool mps_connect(State& state, std::vector<unsigned>* offered) {
  connection = connect_to_control(pipe_directory());
  if (connection < 0) return false;
  std::string line;
  if (!send_line(connection, "client " + state.identity()) || !receive_line(connection, &line) ||
      !line.starts_with("gpus")) {
    mps_forget();
    return false;
  }
  std::istringstream words(line.substr(4));
  for (unsigned gpu = 0; words >> gpu;) offered->push_back(gpu);
  return true;
}

CUresult mps_attach(int slot, std::uint32_t generation, MpsPlace* place) {
  std::string line;
  if (connection < 0 ||
      !send_line(connection, "attach " + std::to_string(slot) + " " + std::to_string(generation)) ||
      !receive_line(connection, &line))
    return kMpsConnectionFailed;
  std::istringstream words(line);
  std::string word;
  words >> word;
  if (word == "full") return kMpsMaxClientsReached;
  if (word != "server" || !(words >> place->server >> place->generation >> place->fraction))
    return kMpsConnectionFailed;
  for (auto& limit : place->limit) words >> limit;
  return place->server >= 0 && place->server < static_cast<int>(kMaxProcesses)
             ? kSuccess
             : kMpsConnectionFailed;
}

void mps_forget() {
  if (connection >= 0) close(connection);
  connection = -1;
}

double mps_own_fraction() {
  const char* text = std::getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  if (text == nullptr) return 1;
  const double percent = std::strtod(text, nullptr);
  return percent > 0 && percent <= 100 ? percent / 100 : 1;
}

std::uint64_t mps_own_limit(unsigned ordinal) {
  const char* text = std::getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
  return text == nullptr ? 0 : limit_of_device(text, ordinal);
}

}  // namespace aliquot::standin
