// What the parts of the victim (victim.cpp) have in common.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "standin/abi/cuda.hpp"

namespace victim {

using namespace aliquot::standin;
using std::size_t;

struct Api {
#define FN(name, base, version, params) CUresult(*name) params = nullptr;
#include "enforce/victim.def"
#undef FN
};
extern Api api;

struct Piece {
  char kind;  // d device, a array, m mipmap, p pool, v vmm
  std::uint64_t handle;
  std::uint64_t size;
  std::uint64_t extra;
};
extern std::vector<Piece> pieces;
extern std::vector<CUmemGenericAllocationHandle> handles;
extern CUstream stream;
extern CUfunction kernel;

int keep(int r, char kind, std::uint64_t handle, std::uint64_t size, std::uint64_t extra = 0);
CUdevice device();
int load_kernel();
int launch(std::uint64_t iterations, bool cooperative);

// The words of victim_more.cpp. False: it is none of them.
bool run_more(const std::string& word, std::istringstream& in, std::ostringstream& out,
              int* result);

}  // namespace victim
