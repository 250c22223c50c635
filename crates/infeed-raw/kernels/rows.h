/* Rows of a batch: their positions in the input, the part that a thread writes, elements. */

#ifndef INFEED_ROWS_H
#define INFEED_ROWS_H

#include "target.h"

/* Element types of the output. */
enum dtype { U8, F32, F16, BF16, I32, I64 };

/* Bytes of an element, and elements of the 16 bytes that a thread stores at once. */
#define BYTES(dtype)                                                                               \
    ((dtype) == I64 ? 8u : (dtype) == F32 || (dtype) == I32 ? 4u : (dtype) == U8 ? 1u : 2u)
#define UNIT(dtype) (16u / BYTES(dtype))

/* Division of numbers below 2^31; src/kernel/arguments.rs explains why it is exact. */
struct divider {
    u32 by, factor, shift;
};

INLINE u32 divide(u32 n, const struct divider *d) {
    return (u32)(((u64)n * d->factor) >> d->shift);
}

/* Documented in src/kernel/arguments.rs. */
struct rows {
    u64 input, output, table;
    u64 input_row, output_row;
    u32 height, width, pixel, count;
    struct divider blocks, line, group;
    u32 unused;
};

_Static_assert(sizeof(struct rows) == 96, "as in src/kernel/arguments.rs");

/* Position of a row of the batch in the input. */
struct view {
    u64 first;
    u64 line_bytes;
    u32 flip_x, flip_y;
    /* Whether the lines are contiguous and in order, so that the row is one line. */
    u32 is_flat;
};

/* A row and the first of the elements, or pixels, that a thread computes. The first may be
 * negative, and the last beyond the end: a unit begins where 16 bytes are aligned. */
struct position {
    u32 row;
    i32 first;
    u64 output;
};

INLINE struct position position_of(const struct rows *rows, u32 block, u32 thread,
                                   enum dtype dtype, int is_by_pixel) {
    struct position position;
    position.row = divide(block, &rows->blocks);
    position.output = rows->output + position.row * rows->output_row;
    const u32 unit = (block - position.row * rows->blocks.by) * BLOCK + thread;
    const u32 before = is_by_pixel ? 0 : (u32)(position.output & 15) / BYTES(dtype);
    position.first = (i32)(unit * UNIT(dtype)) - (i32)before;
    return position;
}

INLINE struct view view_of(const struct rows *rows, u32 row) {
    const u32 dense = rows->width * rows->pixel;
    struct view view = {rows->input + row * rows->input_row, dense, 0, 0, 1};
    if (rows->table != 0) {
        const u64 entry = rows->table + (u64)row * 16;
        const u32 flags = load4(entry + 12);
        view.first = rows->input + load8(entry);
        view.line_bytes = load4(entry + 8);
        view.flip_x = flags & 1;
        view.flip_y = flags >> 1 & 1;
        view.is_flat = flags == 0 && view.line_bytes == dense;
    }
    return view;
}

/* Returns the address of the line for line `y` of the output. */
INLINE u64 line_at(const struct rows *rows, const struct view *view, u32 y) {
    return view->first + (view->flip_y ? rows->height - 1 - y : y) * view->line_bytes;
}

/* Address of `count` pixels for the output's pixels from `first` on, in row-major order. They are
 * contiguous; if `is_reversed`, from the last to the first. 0 if they are not adjacent in one line.
 * A single pixel always has an address. */
struct run {
    u64 at;
    u32 is_reversed;
};

INLINE struct run pixels_at(const struct rows *rows, const struct view *view, u32 first,
                            u32 count) {
    if (view->is_flat)
        return (struct run){view->first + (u64)first * rows->pixel, 0};
    const u32 y = divide(first, &rows->line);
    const u32 x = first - y * rows->width;
    if (x + count > rows->width)
        return (struct run){0, 0};
    const u32 from = view->flip_x ? rows->width - x - count : x;
    return (struct run){line_at(rows, view, y) + (u64)from * rows->pixel, view->flip_x};
}

/* Loads bytes, a multiple of 4, into words: as wide as the alignment allows, and never byte by
 * byte. */
INLINE void load(u64 at, u32 bytes, u32 *to) {
    if (bytes % 16 == 0 && at % 16 == 0) {
        UNROLL
        for (u32 n = 0; n < bytes / 16; n++)
            load16(at + 16 * n, to + 4 * n);
    } else if (bytes % 8 == 0 && at % 8 == 0) {
        UNROLL
        for (u32 n = 0; n < bytes / 8; n++)
            load_pair(at + 8 * n, to + 2 * n);
    } else {
        load_words(at, bytes / 4, at, at + bytes, to);
    }
}

/* Returns byte `n` of words. */
INLINE u32 byte_of(const u32 *from, u32 n) { return from[n / 4] >> SHIFT(n % 4, 8) & 0xff; }

INLINE float value_of(u32 byte, float scale, float bias) {
    return sum(product((float)byte, scale), bias);
}

/* Returns the bits of an element, from a byte and its channel's factors. */
INLINE u32 element_of(enum dtype dtype, u32 byte, float scale, float bias) {
    if (dtype == U8)
        return byte;
    const float value = value_of(byte, scale, bias);
    return dtype == F32 ? bits_of(value) : dtype == F16 ? half_of(value) : brain_of(value);
}

/* Returns the bits of the element 1. */
INLINE u32 one_of(enum dtype dtype) {
    return dtype == U8 ? 1 : dtype == F32 ? 0x3f800000 : dtype == F16 ? 0x3c00 : 0x3f80;
}

INLINE void store_one(u64 at, enum dtype dtype, u32 element) {
    if (dtype == U8)
        store1(at, element);
    else if (dtype == F32)
        store4(at, element);
    else
        store2(at, element);
}

/* Stores elements `from..to` of a unit. `at` is the address of element 0, stored or not. */
INLINE void store(u64 at, enum dtype dtype, const u32 *elements, u32 from, u32 to) {
    const u32 bytes = BYTES(dtype);
    if (from == 0 && to == UNIT(dtype) && at % 16 == 0) {
        u32 four[4] = {0, 0, 0, 0};
        UNROLL
        for (u32 n = 0; n < UNIT(dtype); n++)
            four[n * bytes / 4] |= elements[n] << SHIFT(n % (4 / bytes), 8 * bytes);
        store16(at, four);
    } else {
        UNROLL
        for (u32 n = 0; n < UNIT(dtype); n++)
            if (n >= from && n < to)
                store_one(at + n * bytes, dtype, elements[n]);
    }
}

/* The part in `0..count` of a unit that begins at `first`, as offsets from `first`. */
struct part {
    u32 from, to;
};

INLINE struct part part_of(i32 first, u32 unit, u32 count) {
    struct part part = {first < 0 ? (u32)-first : 0, unit};
    const i32 left = (i32)count - first;
    if (left < (i32)unit)
        part.to = left < 0 ? 0 : (u32)left;
    return part;
}

#endif
