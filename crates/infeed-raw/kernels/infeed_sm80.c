/* Kernels for compute capability 8.0 and newer, under the names of those that they replace. */

#define INFEED_SM80

#include "expand.c"
