// Where this process's grant is. In a job the daemon names it: ALIQUOT_GRANT. A process that has
// lost its environment is known by its control group, where an administrator has the library loaded
// into every process (/etc/ld.so.preload): a daemon says in a file of root's which groups are its
// jobs' and where their grants lie. The group counts for more: the environment is the user's. In a
// container the grant has a fixed place.
#pragma once

#include <cstddef>

#include <sys/types.h>

namespace aliquot::enforce {

// The number of the job in the text of /proc/self/cgroup: a line whose path has `group` in it and,
// after that, a folder job_N. 0: none.
unsigned long long job_in_groups(const char* text, const char* group);

// The grant of the job whose control group this process is in, as the files in `places`
// (ALIQUOT_PLACES) say; they must be `owner`'s alone to write. False: there is none.
bool find_grant_by_group(const char* places, uid_t owner, const char* cgroup_file, char* folder,
                         std::size_t size);

// The grant of the container that this process is in: the folder `here` (ALIQUOT_GRANT_HERE), where
// it is there and `owner`'s alone to write. False: we are in no such container.
bool find_grant_here(const char* here, uid_t owner, char* folder, std::size_t size);

}  // namespace aliquot::enforce
