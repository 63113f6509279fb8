// The files of the job's grant (abi.h): which folder they are in, and their mappings in this
// process. A file counts only if it is a regular one of the right size that only root or this user
// could have written. Functions that can fail return the reason, or null.
#pragma once

#include <sys/types.h>

#include "enforce/abi.h"

namespace aliquot::enforce {

// This process is in a job with a grant (find_grant.hpp): otherwise the library does nothing at
// all.
bool grant_wanted();
const char* grant_folder();

const char* map_limits(const aliquot_limits** out);

// The descriptor under which this process has the usage file open, for the locks on its slot.
struct UsageFile {
  int fd = -1;
  dev_t device = 0;
  ino_t inode = 0;
};
const char* map_usage(aliquot_usage** out, UsageFile* file);
// False when the program has closed our descriptor, or put another file in its place.
bool is_open(const UsageFile& file);
bool reopen(UsageFile* file);

}  // namespace aliquot::enforce
