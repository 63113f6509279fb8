#include "core/profile.hpp"

namespace aliquot::core {

Profile generic_profile() {
  const auto wholes = [](std::int64_t count, double weight) {
    return ProfileEntry{{.gpus = GpuRequest{.count = count, .what = WholeGpu{}, .models = {}},
                         .cpus = 4 * count * kOneCpu,
                         .memory = gib(16) * count},
                        weight};
  };
  const auto share = [](std::int64_t part, double weight) {
    const Compute compute = scale_down(kWholeGpu, 1, part);
    return ProfileEntry{
        {.gpus = GpuRequest{.count = 1,
                            .what = Amounts{.memory = std::nullopt, .compute = compute},
                            .models = {}},
         .cpus = 2 * kOneCpu,
         .memory = gib(8)},
        weight};
  };
  return {wholes(1, 40), wholes(2, 5), wholes(4, 3), wholes(8, 2),
          share(2, 15),  share(4, 20), share(8, 10), share(10, 5)};
}

}  // namespace aliquot::core
