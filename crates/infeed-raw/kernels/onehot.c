/* Class indices to one element per class and pixel: 1 if the pixel has the class. */

#include "rows.h"

/* To [height, width, classes]. A thread writes 16 bytes of the row, with the classes of a few
 * pixels. */
INLINE void onehot_hwc(const struct rows *rows, u32 block, u32 thread, enum dtype dtype) {
    const struct position position = position_of(rows, block, thread, dtype, 0);
    const u32 unit = UNIT(dtype);
    const struct part part = part_of(position.first, unit, rows->count);
    if (part.from >= part.to)
        return;
    const struct view view = view_of(rows, position.row);
    const u32 classes = rows->group.by;
    const u32 first = (u32)(position.first + (i32)part.from);
    u32 pixel = divide(first, &rows->group);
    u32 class = first - pixel * classes;
    u32 index = load1(pixels_at(rows, &view, pixel, 1).at);

    u32 elements[16];
    UNROLL
    for (u32 n = 0; n < unit; n++) {
        elements[n] = 0;
        if (n < part.from || n >= part.to)
            continue;
        if (class == classes) {
            class = 0;
            pixel++;
            index = load1(pixels_at(rows, &view, pixel, 1).at);
        }
        elements[n] = class == index ? one_of(dtype) : 0;
        class++;
    }
    const u64 to = position.output + (i64)position.first * BYTES(dtype);
    store(to, dtype, elements, part.from, part.to);
}

/* To [classes, height, width]. A thread writes 16 bytes of the row, which are adjacent in one plane
 * except at its end. */
INLINE void onehot_chw(const struct rows *rows, u32 block, u32 thread, enum dtype dtype) {
    const struct position position = position_of(rows, block, thread, dtype, 0);
    const u32 unit = UNIT(dtype);
    const struct part part = part_of(position.first, unit, rows->count);
    if (part.from >= part.to)
        return;
    const struct view view = view_of(rows, position.row);
    const u32 first = (u32)(position.first + (i32)part.from);
    const u32 pixels = rows->group.by;
    u32 class = divide(first, &rows->group);
    u32 pixel = first - class * pixels;
    struct run run = {0, 0};
    if (part.from == 0 && part.to == unit && pixel + unit <= pixels)
        run = pixels_at(rows, &view, pixel, unit);

    const u64 to = position.output + (i64)position.first * BYTES(dtype);
    if (run.at != 0) {
        u32 indices[4], elements[16];
        load(run.at, unit, indices);
        UNROLL
        for (u32 n = 0; n < unit; n++) {
            const u32 forward = byte_of(indices, n);
            const u32 backward = byte_of(indices, unit - 1 - n);
            const u32 index = run.is_reversed ? backward : forward;
            elements[n] = class == index ? one_of(dtype) : 0;
        }
        store(to, dtype, elements, 0, unit);
        return;
    }
    for (u32 n = part.from; n < part.to; n++, pixel++) {
        if (pixel == pixels) {
            pixel = 0;
            class++;
        }
        const u32 index = load1(pixels_at(rows, &view, pixel, 1).at);
        store_one(to + n * BYTES(dtype), dtype, class == index ? one_of(dtype) : 0);
    }
}

KERNEL(onehot_u8_hwc, struct rows, onehot_hwc(args, block, thread, U8))
KERNEL(onehot_f32_hwc, struct rows, onehot_hwc(args, block, thread, F32))
KERNEL(onehot_f16_hwc, struct rows, onehot_hwc(args, block, thread, F16))
KERNEL(onehot_bf16_hwc, struct rows, onehot_hwc(args, block, thread, BF16))
KERNEL(onehot_u8_chw, struct rows, onehot_chw(args, block, thread, U8))
KERNEL(onehot_f32_chw, struct rows, onehot_chw(args, block, thread, F32))
KERNEL(onehot_f16_chw, struct rows, onehot_chw(args, block, thread, F16))
KERNEL(onehot_bf16_chw, struct rows, onehot_chw(args, block, thread, BF16))
