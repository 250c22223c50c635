/* All kernels: one module of PTX, one object of the host. */

#include "classes.c"
#include "expand.c"
#include "onehot.c"
#include "resize.c"
#include "widen.c"
