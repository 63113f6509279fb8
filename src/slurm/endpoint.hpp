// Where samples go, from the site's settings and slurm.conf: every SlurmctldHost, unless the
// settings name a host, with munge's socket as Slurm itself uses it (AuthInfo=socket=…).
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "slurm/samples.hpp"
#include "slurm/settings.hpp"
#include "slurm/site.hpp"

namespace aliquot::slurm {

std::vector<std::string> controllers(const Site& site);  // addresses where given, else names
std::string munge_socket(const Site& site);              // empty: munge's default

// By slurm.conf; where there is none, by the one that slurmd has fetched.
Result<SampleEndpoint> find_endpoint(const Settings& settings);

}  // namespace aliquot::slurm
