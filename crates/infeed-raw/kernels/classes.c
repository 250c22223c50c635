/* Colours to their classes, by a table that is passed with the launch. */

#include "rows.h"

/* Slots of the table, the factor of the hash, and its upper bits. As in src/kernel/colours.rs. */
#define SLOTS 512u
#define HASH(colour) (((colour) * 0x9e3779b1u) >> 23)

struct classes {
    struct rows rows;
    /* One more than the colour; 0 for an empty slot. */
    u32 slots[SLOTS];
    u8 classes[SLOTS];
    u32 unknown, unused;
};

_Static_assert(sizeof(struct classes) == 2664, "as in src/kernel/arguments.rs");

/* Terminates: at most half of the slots are used. */
INLINE u32 class_of(const struct classes *args, u32 colour) {
    for (u32 at = HASH(colour);; at = (at + 1) % SLOTS) {
        if (args->slots[at] == colour + 1)
            return args->classes[at];
        if (args->slots[at] == 0)
            return args->unknown;
    }
}

/* Larger than all colours. */
#define NO_COLOUR 0xffffffffu

/* Returns the colour of pixel `n` in words. */
INLINE u32 colour_of(const u32 *bytes, u32 n) {
    return byte_of(bytes, 3 * n) | byte_of(bytes, 3 * n + 1) << 8 | byte_of(bytes, 3 * n + 2) << 16;
}

/* A thread computes 16 pixels. Masks consist of runs, so a pixel usually has the colour of the
 * previous one, and the threads look up colours at the same time. */
INLINE void classes(const struct classes *args, u32 block, u32 thread) {
    const struct rows *rows = &args->rows;
    const struct position position = position_of(rows, block, thread, U8, 0);
    const struct part part = part_of(position.first, 16, rows->count);
    if (part.from >= part.to)
        return;
    const struct view view = view_of(rows, position.row);
    const u32 first = (u32)(position.first + (i32)part.from);
    struct run run = {0, 0};
    if (part.from == 0 && part.to == 16)
        run = pixels_at(rows, &view, first, 16);

    const u64 to = position.output + (i64)position.first;
    u32 colour = NO_COLOUR, class = 0;
    if (run.at != 0) {
        u32 bytes[12], elements[16];
        load(run.at, 48, bytes);
        UNROLL
        for (u32 n = 0; n < 16; n++) {
            const u32 forward = colour_of(bytes, n), backward = colour_of(bytes, 15 - n);
            const u32 next = run.is_reversed ? backward : forward;
            if (next != colour)
                class = class_of(args, next);
            colour = next;
            elements[n] = class;
        }
        store(to, U8, elements, 0, 16);
        return;
    }
    for (u32 n = part.from; n < part.to; n++) {
        const u64 at = pixels_at(rows, &view, first + n - part.from, 1).at;
        const u32 next = load1(at) | load1(at + 1) << 8 | load1(at + 2) << 16;
        if (next != colour)
            class = class_of(args, next);
        colour = next;
        store1(to + n, class);
    }
}

KERNEL(classes, struct classes, classes(args, block, thread))
