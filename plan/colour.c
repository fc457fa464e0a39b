/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interval colouring of pages. Stays on a line are taken by their first op, and each takes any free
 * pages: that needs no more pages than are in use at once. A stay that goes round the end of the
 * step has pages of its own, which are free for others in the middle of the step alone; a stay that
 * ends soon takes those first (best fit by the time at which a page is wanted again). Among equals,
 * long runs of neighbours are preferred, since a run is mapped at once.
 *
 * Neighbours. On the processor pages that follow one another need not be moved to be bound
 * (device/device.h). There the smallest run that holds a stay comes first, of equals the one that
 * is wanted again first: a quarter of the moves are left so. Where that needs too many pages, they
 * are taken as above. Where a move takes as long as a short step's ops, all cuts of the circle are
 * tried for the fewest moves, and while there is room a stay that no run holds has new pages: steps
 * of jobs with some MiB get 1 to 30 % shorter on average.
 *
 * Halves. A device that maps pages of twice the size at once maps a stay of an odd count so that
 * the page it has a half of comes last, where that is the lower one, or first, where it is the
 * upper one; so two stays can share it. Whole pages are coloured as above, and halves of pages that
 * were split go to stays that end before they are wanted; where both are free the page is whole
 * again.
 *
 * Where the line begins is free: the circle may be cut before any op, and what goes round is what
 * lives there. What an update changed leaves at many times in the forward pass, so the end of the
 * step is a bad place; a few cuts are tried until one needs no more than there is.
 */
#include "plan/colour.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/books.h"
#include "plan/runs.h"

/* Cuts of the circle that are tried, and in which order: each a stride further than the one before,
 * from the end of the step, which needs no more than is in use at once where nothing goes round. */
#define CUTS       16u
#define CUT_STRIDE 5u
/* Fewer of them for many items: 16 for 4,096, but never fewer than 4. */
#define CUT_ITEMS  65536u
#define LEAST_CUTS 4u
/* So many in a row that need no fewer pages than one before end it, unless a page less would do: of
 * 2,000 colourings one in six came to enough after that, of those short of a page every second. */
#define VAIN_CUTS 3u
/* Of the pages in use at once, this part more may be taken to spare moves. */
#define ROOM_PART 8u

/* A half that is free, of a page that is split: the lower one of page p is 2 p, the upper 2 p + 1.
 */
struct half {
  uint32_t number;
  uint32_t wanted_at;
};

struct colouring {
  const struct mr_colour_item *items;
  bool halves;     /* items have so many halves, else pages */
  bool neighbours; /* sizes count before times */
  uint32_t *pages; /* of each item: whole pages, then the half where the count is odd */
  uint32_t op_count;
  uint32_t *wanted_at; /* of each page */
  uint32_t wanted_capacity;
  struct mr_runs runs;
  uint32_t page_count;
  uint64_t most_pages; /* a colouring that needs as many is given up */
  uint64_t room_pages; /* below so many a stay has new ones rather than parts of several runs */
  struct half *free_halves;
  uint32_t half_count;
  uint32_t half_capacity;
  uint32_t *half_wanted; /* of each half of a page that is split: its wanted_at */
  uint32_t half_wanted_capacity;
  uint32_t *by_first; /* line items by first op */
  uint32_t *by_last;  /* all items by the op after which their pages are free */
};

/* Whole pages of an item. */
static uint32_t whole_pages(const struct colouring *c, const struct mr_colour_item *item) {
  return c->halves ? item->page_count / 2 : item->page_count;
}

static bool has_half(const struct colouring *c, const struct mr_colour_item *item) {
  return c->halves && item->page_count % 2 != 0;
}

static mr_status add_pages(struct colouring *c, uint32_t *numbers, uint32_t count,
                           uint32_t wanted_at) {
  uint64_t needed = (uint64_t)c->page_count + count;
  mr_status status =
      mr_array_reserve((void **)&c->wanted_at, &c->wanted_capacity, needed, sizeof *c->wanted_at);
  if (status != MR_OK) {
    return status;
  }
  for (uint32_t i = 0; i < count; i++) {
    numbers[i] = c->page_count;
    c->wanted_at[c->page_count++] = wanted_at;
  }
  return MR_OK;
}

static mr_status free_pages(struct colouring *c, const uint32_t *numbers, uint32_t count) {
  uint32_t start = 0;
  for (uint32_t i = 1; i <= count; i++) {
    bool joined = i < count && numbers[i] == numbers[i - 1] + 1 &&
                  c->wanted_at[numbers[i]] == c->wanted_at[numbers[start]];
    if (joined) continue;
    mr_status status = mr_runs_add(
        &c->runs, (struct mr_run){numbers[start], i - start, c->wanted_at[numbers[start]]});
    if (status != MR_OK) {
      return status;
    }
    start = i;
  }
  return MR_OK;
}

static mr_status push_half(struct colouring *c, uint32_t number, uint32_t wanted_at) {
  mr_status status = mr_array_reserve((void **)&c->free_halves, &c->half_capacity,
                                      c->half_count + 1ull, sizeof *c->free_halves);
  if (status == MR_OK) {
    c->free_halves[c->half_count++] = (struct half){number, wanted_at};
  }
  return status;
}

/* Splits a page that nobody has: the lower half is the caller's, the upper one is free. */
static mr_status split_page(struct colouring *c, uint32_t page, uint32_t wanted_at) {
  mr_status status = mr_array_reserve((void **)&c->half_wanted, &c->half_wanted_capacity,
                                      2 * (uint64_t)c->page_count, sizeof *c->half_wanted);
  if (status != MR_OK) {
    return status;
  }
  uint32_t *wanted = &c->half_wanted[2 * (size_t)page];
  wanted[0] = wanted_at;
  wanted[1] = wanted_at;
  return push_half(c, 2 * page + 1, wanted_at);
}

/* Of the free halves that nobody wants up to the end of last_op the one that is wanted first;
 * half_count: there is none. */
static uint32_t best_half(const struct colouring *c, uint32_t last_op) {
  uint32_t best = c->half_count;
  for (uint32_t i = 0; i < c->half_count; i++) {
    const struct half *half = &c->free_halves[i];
    const struct half *than = best < c->half_count ? &c->free_halves[best] : NULL;
    bool better = than == NULL || half->wanted_at < than->wanted_at ||
                  (half->wanted_at == than->wanted_at && half->number < than->number);
    best = half->wanted_at > last_op && better ? i : best;
  }
  return best;
}

/* A half for a stay to the end of last_op. */
static mr_status take_half(struct colouring *c, uint32_t last_op, uint32_t *number_out) {
  uint32_t i = best_half(c, last_op);
  if (i < c->half_count) {
    *number_out = c->free_halves[i].number;
    c->free_halves[i] = c->free_halves[--c->half_count];
    return MR_OK;
  }
  uint32_t at = mr_runs_best(&c->runs, last_op, 1, c->neighbours);
  uint32_t page = c->page_count;
  uint32_t wanted_at = c->op_count;
  mr_status status = MR_OK;
  if (at < c->runs.count) {
    page = c->runs.pages[at];
    wanted_at = c->runs.wanted_at[at];
    status = mr_runs_cut(&c->runs, at, page, 1);
  } else {
    status = add_pages(c, &page, 1, wanted_at);
  }
  *number_out = 2 * page;
  return status == MR_OK ? split_page(c, page, wanted_at) : status;
}

/* Gives back a half; a page whose halves are both free is whole again. */
static mr_status free_half(struct colouring *c, uint32_t number) {
  uint32_t wanted_at = c->half_wanted[number];
  uint32_t i = 0;
  while (i < c->half_count && c->free_halves[i].number != (number ^ 1u)) {
    i++;
  }
  if (i == c->half_count) {
    return push_half(c, number, wanted_at);
  }
  uint32_t other = c->free_halves[i].wanted_at;
  uint32_t page = number / 2;
  c->free_halves[i] = c->free_halves[--c->half_count];
  c->wanted_at[page] = other < wanted_at ? other : wanted_at;
  return mr_runs_add(&c->runs, (struct mr_run){page, 1, c->wanted_at[page]});
}

/* A half that a stay has from before the line begins and again from op wanted_at on. */
static mr_status own_half(struct colouring *c, uint32_t wanted_at, uint32_t *number_out) {
  mr_status status = take_half(c, c->op_count - 1, number_out);
  if (status == MR_OK) {
    c->half_wanted[*number_out] = wanted_at;
  }
  return status;
}

/* Whether an item begins and ends in the step; wrapping items are there from the start. */
static bool on_line(const struct colouring *c, const struct mr_colour_item *item) {
  return !item->always && item->last_op < c->op_count;
}

/* True where the item that this one is like has its pages. */
static bool has_wish(const struct colouring *c, const struct mr_colour_item *item) {
  if (item->like == UINT32_MAX || c->halves) {
    return false;
  }
  const struct mr_colour_item *like = &c->items[item->like];
  return !on_line(c, like) || like->first_op <= item->first_op;
}

/* How many pages from *pages on, neighbours, are in one run that is free to the end of last_op;
 * *at_out: which. 0: the first is in none. */
static uint32_t free_together(const struct colouring *c, const uint32_t *pages, uint32_t count,
                              uint32_t last_op, uint32_t *at_out) {
  uint32_t at = mr_runs_after(&c->runs, pages[0] + 1);
  if (at == 0) {
    return 0;
  }
  const struct mr_run run = mr_runs_at(&c->runs, at - 1);
  uint32_t into = pages[0] - run.page;
  if (into >= run.count || run.wanted_at <= last_op) {
    return 0;
  }
  uint32_t most = (uint32_t)mr_min_u64(count, run.count - into);
  uint32_t together = 1;
  while (together < most && pages[together] == pages[0] + together) {
    together++;
  }
  *at_out = at - 1;
  return together;
}

/* Takes the very pages of an earlier stay where all are free for long enough. */
static mr_status take_same(struct colouring *c, const struct mr_colour_item *item,
                           bool *taken_out) {
  *taken_out = false;
  if (!has_wish(c, item)) {
    return MR_OK;
  }
  const uint32_t *wish = &c->pages[c->items[item->like].first_page];
  uint32_t count = item->page_count;
  uint32_t together = 0;
  uint32_t at = 0;
  for (uint32_t i = 0; i < count; i += together) {
    together = free_together(c, &wish[i], count - i, item->last_op, &at);
    if (together == 0) {
      return MR_OK;
    }
  }
  for (uint32_t i = 0; i < count; i += together) {
    together = free_together(c, &wish[i], count - i, item->last_op, &at);
    memcpy(&c->pages[item->first_page + i], &wish[i], together * sizeof *wish);
    mr_status status = mr_runs_cut(&c->runs, at, wish[i], together);
    if (status != MR_OK) {
      return status;
    }
  }
  *taken_out = true;
  return MR_OK;
}

/* Puts the pages of a run among the ascending `have` numbers. */
static void add_run(uint32_t *numbers, uint32_t have, uint32_t page, uint32_t count) {
  uint32_t low = 0;
  uint32_t high = have;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    low = numbers[middle] < page ? middle + 1 : low;
    high = numbers[middle] < page ? high : middle;
  }
  memmove(&numbers[low + count], &numbers[low], (have - low) * sizeof *numbers);
  for (uint32_t i = 0; i < count; i++) {
    numbers[low + i] = page + i;
  }
}

/* Whether so many pages are more than the best run has, while there is room for new ones. */
static bool had_better_be_new(const struct colouring *c, uint32_t best, uint32_t wanted) {
  return c->runs.counts[best] < wanted && (uint64_t)c->page_count + wanted <= c->room_pages;
}

static mr_status take(struct colouring *c, const struct mr_colour_item *item) {
  bool taken = false;
  mr_status status = take_same(c, item, &taken);
  if (status != MR_OK || taken) {
    return status;
  }
  uint32_t *numbers = &c->pages[item->first_page];
  uint32_t wanted = whole_pages(c, item);
  uint32_t have = 0;
  while (have < wanted) {
    uint32_t at = mr_runs_best(&c->runs, item->last_op, wanted - have, c->neighbours);
    if (at == c->runs.count || (have == 0 && had_better_be_new(c, at, wanted))) break;
    uint32_t page = c->runs.pages[at];
    uint32_t count = (uint32_t)mr_min_u64(c->runs.counts[at], wanted - have);
    add_run(numbers, have, page, count);
    have += count;
    status = mr_runs_cut(&c->runs, at, page, count);
    if (status != MR_OK) {
      return status;
    }
  }
  status = add_pages(c, &numbers[have], wanted - have, c->op_count);
  return status == MR_OK && has_half(c, item) ? take_half(c, item->last_op, &numbers[wanted])
                                              : status;
}

/* Sorts items with a line part by first op, and all that free pages in the step by last op. */
static void sort_items(struct colouring *c, uint32_t item_count, uint32_t *first_starts,
                       uint32_t *last_starts) {
  for (uint32_t i = 0; i < item_count; i++) {
    const struct mr_colour_item *item = &c->items[i];
    if (on_line(c, item)) {
      first_starts[item->first_op + 1]++;
    }
    if (!item->always) {
      last_starts[mr_op_in_turn(item->last_op, c->op_count) + 1]++;
    }
  }
  for (uint32_t k = 0; k < c->op_count; k++) {
    first_starts[k + 1] += first_starts[k];
    last_starts[k + 1] += last_starts[k];
  }
  for (uint32_t i = 0; i < item_count; i++) {
    const struct mr_colour_item *item = &c->items[i];
    if (on_line(c, item)) {
      c->by_first[first_starts[item->first_op]++] = i;
    }
    if (!item->always) {
      c->by_last[last_starts[mr_op_in_turn(item->last_op, c->op_count)]++] = i;
    }
  }
}

/* What lasts over the end of the step has its pages from the start. */
static mr_status colour_wrapping(struct colouring *c, uint32_t item_count) {
  const struct mr_colour_item *items = c->items;
  for (uint32_t i = 0; i < item_count; i++) {
    bool wraps = !items[i].always && items[i].last_op >= c->op_count;
    if (items[i].always || wraps) {
      uint32_t *numbers = &c->pages[items[i].first_page];
      uint32_t count = whole_pages(c, &items[i]);
      uint32_t wanted_at = wraps ? items[i].first_op : c->op_count;
      mr_status status = add_pages(c, numbers, count, wanted_at);
      if (status == MR_OK && has_half(c, &items[i])) {
        status = own_half(c, wanted_at, &numbers[count]);
      }
      if (status != MR_OK) {
        return status;
      }
    }
  }
  return MR_OK;
}

static mr_status free_item(struct colouring *c, const struct mr_colour_item *item) {
  const uint32_t *numbers = &c->pages[item->first_page];
  uint32_t count = whole_pages(c, item);
  mr_status status = free_pages(c, numbers, count);
  return status == MR_OK && has_half(c, item) ? free_half(c, numbers[count]) : status;
}

static mr_status colour_line(struct colouring *c, const uint32_t *first_ends,
                             const uint32_t *last_ends) {
  uint32_t next = 0;
  uint32_t freed = 0;
  for (uint32_t k = 0; k < c->op_count && c->page_count < c->most_pages; k++) {
    for (; k > 0 && freed < last_ends[k - 1]; freed++) {
      const struct mr_colour_item *item = &c->items[c->by_last[freed]];
      bool again =
          item->last_op >= c->op_count && item->last_op - c->op_count + 1 == item->first_op;
      mr_status status = again ? MR_OK : free_item(c, item);
      if (status != MR_OK) {
        return status;
      }
    }
    for (; next < first_ends[k]; next++) {
      mr_status status = take(c, &c->items[c->by_first[next]]);
      if (status != MR_OK) {
        return status;
      }
    }
  }
  return MR_OK;
}

/* Colours with the circle cut before op 0. */
static mr_status colour_cut(struct colouring *c, uint32_t item_count) {
  uint32_t *first_starts = mr_allocate(c->op_count + 1ull, sizeof *first_starts);
  uint32_t *last_starts = mr_allocate(c->op_count + 1ull, sizeof *last_starts);
  c->by_first = mr_allocate(item_count, sizeof *c->by_first);
  c->by_last = mr_allocate(item_count, sizeof *c->by_last);
  mr_status status = MR_NO_MEMORY;
  if (first_starts != NULL && last_starts != NULL && c->by_first != NULL && c->by_last != NULL) {
    sort_items(c, item_count, first_starts, last_starts);
    status = colour_wrapping(c, item_count);
  }
  if (status == MR_OK) {
    /* Sorting moved each start to the end of its op. */
    status = colour_line(c, first_starts, last_starts);
  }
  free(first_starts);
  free(last_starts);
  free(c->by_first);
  free(c->by_last);
  free(c->wanted_at);
  mr_runs_fini(&c->runs);
  free(c->free_halves);
  free(c->half_wanted);
  return status;
}

/* From whole pages and a half to halves, in the order of their bytes. */
static void list_halves(const struct mr_colour_item *item, uint32_t *numbers) {
  uint32_t whole = item->page_count / 2;
  bool odd = item->page_count % 2 != 0;
  uint32_t half = odd ? numbers[whole] : 0;
  uint32_t shift = odd && half % 2 != 0 ? 1 : 0;
  for (uint32_t i = whole; i-- > 0;) {
    uint32_t page = numbers[i];
    numbers[2 * i + shift] = 2 * page;
    numbers[2 * i + shift + 1] = 2 * page + 1;
  }
  if (odd) {
    numbers[shift == 1 ? 0 : 2 * whole] = half;
  }
}

static uint64_t count_entries(const struct mr_colour_item *items, uint32_t item_count) {
  uint64_t entries = 0;
  for (uint32_t i = 0; i < item_count; i++) {
    entries += items[i].page_count;
  }
  return entries;
}

/* The most pages in use at once: no colouring needs fewer. */
static mr_status measure_peak(const struct mr_colour_item *items, uint32_t item_count,
                              uint32_t op_count, uint64_t *peak_out) {
  struct mr_books books = {0};
  mr_status status = mr_books_init(&books, op_count);
  if (status != MR_OK) {
    return status;
  }
  for (uint32_t i = 0; i < item_count; i++) {
    const struct mr_colour_item *item = &items[i];
    uint32_t from = item->always ? 0 : item->first_op;
    uint32_t to = item->always ? op_count : item->last_op + 1;
    mr_books_add(&books, from, to, item->page_count);
  }
  *peak_out = mr_books_peak(&books);
  mr_books_fini(&books);
  return MR_OK;
}

/* The items as they are on a line that begins with op `cut`. */
static void turn_items(const struct mr_colour_item *items, uint32_t item_count, uint32_t op_count,
                       uint32_t cut, struct mr_colour_item *turned) {
  for (uint32_t i = 0; i < item_count; i++) {
    uint32_t length = items[i].last_op - items[i].first_op;
    turned[i] = items[i];
    turned[i].first_op = mr_op_in_turn(items[i].first_op + op_count - cut, op_count);
    turned[i].last_op = turned[i].first_op + length;
  }
}

/* How often neighbours among an item's pages do not follow each other. */
static uint32_t count_breaks(const struct colouring *c, uint32_t item_count) {
  uint32_t breaks = 0;
  for (uint32_t i = 0; i < item_count; i++) {
    const uint32_t *numbers = &c->pages[c->items[i].first_page];
    for (uint32_t k = 1; k < c->items[i].page_count; k++) {
      breaks += numbers[k] != numbers[k - 1] + 1;
    }
  }
  return breaks;
}

/* Colours the circle cut at this sixteenth of it. */
static mr_status colour_at(struct colouring *c, const struct colouring *how, uint32_t item_count,
                           uint32_t sixteenth, struct mr_colour_item *turned) {
  uint32_t cut = (uint32_t)((uint64_t)how->op_count * sixteenth / CUTS);
  c->items = turned;
  turn_items(how->items, item_count, how->op_count, cut, turned);
  return colour_cut(c, item_count);
}

/* Of all cuts that need no more pages than are enough, the one that leaves the fewest neighbours
 * apart; *best_out: its pages, where there is one. */
static mr_status try_all_cuts(const struct colouring *how, uint32_t item_count, uint64_t entries,
                              uint64_t enough, uint64_t *best_out) {
  struct mr_colour_item *turned = mr_allocate(item_count, sizeof *turned);
  uint32_t *pages = mr_allocate(entries, sizeof *pages);
  mr_status status = turned == NULL || pages == NULL ? MR_NO_MEMORY : MR_OK;
  uint32_t least = UINT32_MAX;
  for (uint32_t i = 0; i < CUTS && least > 0 && status == MR_OK; i++) {
    struct colouring c = *how;
    c.pages = pages;
    c.most_pages = enough + 1;
    status = colour_at(&c, how, item_count, i * CUT_STRIDE % CUTS, turned);
    uint32_t breaks =
        status == MR_OK && c.page_count <= enough ? count_breaks(&c, item_count) : least;
    if (breaks < least) {
      least = breaks;
      *best_out = c.page_count;
      memcpy(how->pages, pages, entries * sizeof *pages);
    }
  }
  free(turned);
  free(pages);
  return status;
}

/* Tries cuts until one needs no more pages than are enough; *best_out: the fewest of all so far. */
static mr_status try_cuts(const struct colouring *how, uint32_t item_count, uint64_t enough,
                          uint64_t *best_out) {
  uint64_t cuts = mr_min_u64(mr_max_u64(CUT_ITEMS / (item_count + 1ull), LEAST_CUTS), CUTS);
  struct mr_colour_item *turned = mr_allocate(item_count, sizeof *turned);
  mr_status status = turned == NULL ? MR_NO_MEMORY : MR_OK;
  uint32_t vain = 0;
  for (uint32_t i = 0; i < cuts && status == MR_OK && *best_out > enough; i++) {
    if (vain == VAIN_CUTS && *best_out > enough + 1) break;
    struct colouring c = *how;
    c.most_pages = *best_out;
    status = colour_at(&c, how, item_count, i * CUT_STRIDE % CUTS, turned);
    vain = c.page_count < *best_out ? 0 : vain + 1;
    *best_out = mr_min_u64(*best_out, c.page_count);
  }
  free(turned);
  return status;
}

mr_status mr_colour(const struct mr_colour_item *items, uint32_t item_count, uint32_t op_count,
                    uint64_t page_limit, enum mr_colouring how, uint32_t *pages,
                    uint64_t *page_count_out) {
  const uint32_t parts = how == MR_COLOUR_HALVES ? 2 : 1; /* of what is coloured */
  struct colouring c = {.items = items,
                        .halves = how == MR_COLOUR_HALVES,
                        .neighbours = how == MR_COLOUR_NEIGHBOURS || how == MR_COLOUR_CLOSEST,
                        .pages = pages,
                        .op_count = op_count};
  uint64_t limit = page_limit / parts;
  uint64_t peak = 0;
  mr_status status = measure_peak(items, item_count, op_count, &peak);
  uint64_t enough = mr_min_u64(mr_max_u64(mr_div_up(peak, parts), limit), UINT32_MAX);
  uint64_t best = enough + 1; /* of neighbours: how many more they need nobody asks */
  if (status == MR_OK && how == MR_COLOUR_CLOSEST) {
    c.room_pages = mr_min_u64(enough, peak + peak / ROOM_PART);
    status = try_all_cuts(&c, item_count, count_entries(items, item_count), enough, &best);
    c.room_pages = 0;
  } else if (status == MR_OK && c.neighbours) {
    status = try_cuts(&c, item_count, enough, &best);
  }
  if (status == MR_OK && best > enough) {
    c.neighbours = false;
    best = UINT64_MAX;
    status = try_cuts(&c, item_count, enough, &best);
  }
  for (uint32_t i = 0; i < item_count && status == MR_OK && c.halves && best <= limit; i++) {
    list_halves(&items[i], &pages[items[i].first_page]);
  }
  if (status == MR_OK) {
    *page_count_out = parts * best;
  }
  return status;
}
