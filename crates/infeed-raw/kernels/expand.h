/* The argument of kernels that compute elements from bytes, with a factor and a summand for each
 * channel. */

#ifndef INFEED_EXPAND_H
#define INFEED_EXPAND_H

#include "rows.h"

struct expand {
    struct rows rows;
    float scale[4], bias[4];
};

_Static_assert(sizeof(struct expand) == 128, "as in src/kernel/arguments.rs");

#endif
