/* Class numbers of one byte to numbers of 4 or 8 bytes; 255 to a separate number. */

#include "rows.h"

struct widen {
    struct rows rows;
    /* The replacement of 255; only the bits of an element are used. */
    u64 unknown;
};

_Static_assert(sizeof(struct widen) == 104, "as in src/kernel/arguments.rs");

INLINE void widen(const struct widen *args, u32 block, u32 thread, enum dtype dtype) {
    const struct rows *rows = &args->rows;
    const struct position position = position_of(rows, block, thread, dtype, 0);
    const u32 unit = UNIT(dtype);
    const struct part part = part_of(position.first, unit, rows->count);
    if (part.from >= part.to)
        return;
    const struct view view = view_of(rows, position.row);
    const u32 first = (u32)(position.first + (i32)part.from);
    const u64 to = position.output + (i64)position.first * BYTES(dtype);

    u64 elements[4];
    UNROLL
    for (u32 n = 0; n < unit; n++) {
        elements[n] = 0;
        if (n < part.from || n >= part.to)
            continue;
        const u32 number = load1(pixels_at(rows, &view, first + n - part.from, 1).at);
        elements[n] = number == 255 ? args->unknown : number;
    }
    if (part.from == 0 && part.to == unit && to % 16 == 0) {
        u32 four[4];
        UNROLL
        for (u32 n = 0; n < unit; n++) {
            if (dtype == I64)
                __builtin_memcpy(four + 2 * n, elements + n, 8);
            else
                four[n] = (u32)elements[n];
        }
        store16(to, four);
        return;
    }
    UNROLL
    for (u32 n = 0; n < unit; n++) {
        if (n < part.from || n >= part.to)
            continue;
        if (dtype == I64)
            store8(to + n * 8, elements[n]);
        else
            store4(to + n * 4, (u32)elements[n]);
    }
}

KERNEL(widen_i32, struct widen, widen(args, block, thread, I32))
KERNEL(widen_i64, struct widen, widen(args, block, thread, I64))
