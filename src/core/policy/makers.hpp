// The makers of all policies, for make_policy alone. Policies that know no workload ignore it.
#pragma once

#include <memory>

#include "core/policy.hpp"

namespace aliquot::core {

std::unique_ptr<Policy> make_aliquot(const Profile& profile);
std::unique_ptr<Policy> make_best_fit(const Profile& profile);
std::unique_ptr<Policy> make_dot_product(const Profile& profile);
std::unique_ptr<Policy> make_fgd(const Profile& profile);
std::unique_ptr<Policy> make_gpu_clustering(const Profile& profile);
std::unique_ptr<Policy> make_gpu_packing(const Profile& profile);
std::unique_ptr<Policy> make_least_occupied(const Profile& profile);
std::unique_ptr<Policy> make_least_utilised(const Profile& profile);

}  // namespace aliquot::core
