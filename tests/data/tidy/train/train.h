#include "base/base.h"
#include "train/other.h"
